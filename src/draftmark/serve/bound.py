"""Runs a command that dies with the process that asked for it: `bound.py PARENT COMMAND ...`.

Run as a file and by itself, so that it costs no imports; the command takes this process's place and number.
"""

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
"""From linux/prctl.h; kept over exec."""


def main() -> None:
    """Ask Linux for a kill when the parent ends, then become the command; elsewhere it runs unbound."""
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):  # it ended before the kill was asked for
            sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
