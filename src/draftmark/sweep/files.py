"""How many connections this process may hold open: each is a file to the kernel."""

import contextlib
import resource
from typing import Final

from draftmark.errors import BadInput

SPARE: Final = 64
"""Files beside the connections: the store, libraries, the look at the server's port."""


def require_open(connections: int) -> None:
    """See that so many connections can be open together, raising this process's own limit where the system lets it.

    Raises:
        BadInput: the system's limit is lower.
    """
    allowed = allow_open(connections)
    if allowed < connections:
        raise BadInput(
            f"{connections:,} requests at once need as many connections, and this process may open {allowed:,}",
            place="--concurrency",
            remedy="raise `ulimit -n`, or ask for fewer",
        )


def allow_open(connections: int) -> int:
    """Raise this process's own limit towards so many connections; how many of them it lets be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    needed = connections + SPARE
    if soft != unlimited and soft < needed:
        reach = needed if hard == unlimited else min(needed, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS has a limit of its own below the one it states
            resource.setrlimit(resource.RLIMIT_NOFILE, (reach, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections if soft == unlimited else min(connections, soft - SPARE)
