"""`python -m draftmark` is the `draftmark` command."""

from draftmark.cli.main import main

if __name__ == "__main__":
    main()
