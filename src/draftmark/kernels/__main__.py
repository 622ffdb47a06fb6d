"""`python -m draftmark.kernels`: the kernels' own program, one JSON object a line; `draftmark kernel` shows them."""

import argparse
import contextlib
import json
import sys
from typing import Final

GPU_MISSING: Final = "no CUDA GPU here: benchmarks need one; `draftmark kernel check` does not"

ROWS: Final = sys.stdout
"""Where rows go. What other packages print as they are imported goes to standard error."""


def main() -> int:
    """Run a command; 1 where a check failed, 2 where there is no GPU."""
    parser = argparse.ArgumentParser(prog="python -m draftmark.kernels")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="compile everything for every architecture")
    timed = commands.add_parser("bench", help="check and time on this GPU")
    timed.add_argument("--shapes", type=int, default=300, help="random shapes to check first")
    timed.add_argument("--seed", type=int, default=1)
    timed.add_argument("--kernel", choices=("hopper", "portable"), default=None)
    timed.add_argument("--alone", action="store_true", help="leave the other kernels out")
    arguments = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):
        return run_check() if arguments.command == "check" else run_bench(arguments)


def run_check() -> int:
    """Compile and print; 1 where anything has a fault."""
    from draftmark.kernels.check import check

    faults = 0
    for row in check():
        say(row)
        faults += row["fault"] is not None
    return 1 if faults else 0


def run_bench(arguments: argparse.Namespace) -> int:
    """Check, time and print; 1 where the check is red."""
    import torch

    if not torch.cuda.is_available():
        say({"row": "error", "why": GPU_MISSING})
        return 2
    from draftmark.kernels.bench import bench

    red = 0
    for row in bench(arguments.shapes, arguments.seed, arguments.kernel, not arguments.alone):
        say(row)
        red += row["row"] == "check" and not row["green"]
    return 1 if red else 0


def say(row: dict[str, object]) -> None:
    """Print one row at once."""
    ROWS.write(json.dumps(row, allow_nan=False) + "\n")
    ROWS.flush()


if __name__ == "__main__":
    sys.exit(main())
