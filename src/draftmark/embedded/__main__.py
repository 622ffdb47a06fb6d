"""`python -m draftmark.embedded --model DIR`. Exit code: 0 when told to end, 1 when it died, 2 for bad input."""

import sys


def main() -> int:
    """Check that the heavy libraries are there, then run the server."""
    try:
        from draftmark.embedded.server import run
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.partition(".")[0] not in {"torch", "transformers", "starlette", "uvicorn"}:
            raise
        print(
            f"draftmark.embedded: {missing} is not installed; pip install 'draftmark[local]'",
            file=sys.stderr,
        )
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
