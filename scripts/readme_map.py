"""Write the README's map of the source from the modules' own first lines; with --check, only say whether it is true.

python scripts/readme_map.py [--check]
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "draftmark"
README = ROOT / "README.md"
BEGIN, END = "<!-- map: scripts/readme_map.py -->\n", "<!-- end of map -->\n"


def purpose(path: Path) -> str:
    """The first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0].rstrip(".:")


def lines() -> Iterator[str]:
    """The map: top-level modules, then each package with its modules."""
    for path in sorted(SOURCE.glob("*.py")):
        if path.name != "__init__.py":
            yield f"    {path.name:<26} {purpose(path)}"
    for package in sorted(path.parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE):
        name = f"{package.relative_to(SOURCE)}/"
        yield f"    {name:<26} {purpose(package / '__init__.py')}"
        for path in sorted(package.glob("*.py")):
            if path.name != "__init__.py":
                yield f"      {path.name:<24} {purpose(path)}"


def main() -> int:
    """Write or check."""
    text = README.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    wanted = head + BEGIN + "\n" + "\n".join(lines()) + "\n\n" + END + tail
    if "--check" in sys.argv:
        return int(text != wanted)
    README.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
