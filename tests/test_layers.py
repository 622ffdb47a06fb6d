"""The one-way rule: a module imports only from layers above its own, and peers never import each other."""

import ast
from pathlib import Path

import pytest

import draftmark

ROOT = Path(draftmark.__file__).parent

LAYERS = (
    {"__init__"},
    {"units", "errors"},
    {"model", "hardware", "configuration", "ledger", "sample", "observation"},
    {"trial", "finding"},
    {"physics"},
    {"checkpoint", "engines", "machine"},
    {"store"},
    {"planner", "diagnose", "explain"},
    {"serve", "sweep"},
    {"tuner", "selftest"},
    {"report"},
    {"demo"},
    {"cli"},
    {"__main__"},
)
APART = {"embedded", "kernels", "plugins"}
"""Programs of their own: they may import each other's neighbours below, but nothing of the rest imports them."""
HEAVY = {"torch", "transformers", "triton", "sglang", "vllm"}


def level(package: str) -> int | None:
    return next((index for index, names in enumerate(LAYERS) if package in names), None)


def imports(tree: ast.AST) -> list[str]:
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            base = node.module or ""
            found += [f"{base}.{alias.name}" for alias in node.names] if base == "draftmark" else [base]
    return found


def broken(package: str, name: str) -> str | None:
    """Why `package` must not import `name`, or None where it may."""
    parts = name.split(".")
    if parts[0] != "draftmark":
        heavy = parts[0] in HEAVY and package not in APART
        return f"{package} imports {name}, which only {sorted(APART)} may" if heavy else None
    target = parts[1] if len(parts) > 1 and parts[1] != "__version__" else "__init__"
    if target == package:
        return None
    if target in APART:
        return f"{package} imports {target}, a program of its own" if package not in APART else None
    here, there = level(package), level(target)
    if there is None:
        return f"{target} has no layer in this test"
    if package in APART:
        return None
    if here is None:
        return f"{package} has no layer in this test"
    return None if there < here else f"{package} imports {target}, which is not above it"


SOURCES = sorted(ROOT.rglob("*.py"))


def package_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


@pytest.mark.parametrize("path", SOURCES, ids=[str(path.relative_to(ROOT)) for path in SOURCES])
def test_imports_point_one_way(path: Path) -> None:
    reasons = [broken(package_of(path), name) for name in imports(ast.parse(path.read_text()))]
    assert [reason for reason in reasons if reason] == []


def test_the_rule_bites() -> None:
    assert broken("physics", "draftmark.sweep.client")
    assert broken("serve", "draftmark.sweep")
    assert broken("planner", "torch.cuda")
    assert broken("cli", "draftmark.embedded.server")
    assert broken("report", "draftmark.nonsense")
    assert broken("sweep", "draftmark.engines.sglang") is None
    assert len(SOURCES) > 20
