"""Write data/flags: which launch flags each version of an engine has, read from its published wheels.

    pip download --no-deps sglang==0.5.23 ... ; unzip each into FOLDER/sglang-0.5.23, FOLDER/vllm-0.33.0 and so on
    python scripts/engine_flags.py FOLDER

Nothing of an engine is run: flags are calls of `add_argument` in its source, and annotated fields where the engine
makes its flags from them (SGLang since 0.5.14, vLLM's server since 0.10). choices.csv has what some of them can be
set to.
"""

import ast
import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parents[1] / "src" / "draftmark" / "data" / "flags"
SOURCES = {
    "sglang": ("sglang/srt/server_args.py", "sglang/srt/arg_groups/fields/*.py"),
    "vllm": (
        "vllm/engine/arg_utils.py", "vllm/entrypoints/openai/cli_args.py", "vllm/entrypoints/launchers/cli_args.py",
        "vllm/entrypoints/common/cli_args.py",
    ),
}  # fmt: skip
FIELDS = {"vllm": ("vllm/config.py", "vllm/config/*.py")}
"""Where annotations lie that calls of `add_argument` refer to."""
FRONTEND = ("BaseFrontendArgs", "FrontendArgs")
"""Classes of vLLM whose fields become flags."""
CHOICES = {
    "sglang": {
        "--quantization": ("QUANTIZATION_CHOICES",), "--kv-cache-dtype": (), "--dtype": (),
        "--speculative-algorithm": ("SpeculativeAlgorithm", "_RESERVED_ALIASES"),
    },
    "vllm": {
        "--quantization": ("QuantizationMethods", "QUANTIZATION_METHODS"), "--kv-cache-dtype": ("CacheDType",),
        "--dtype": ("ModelDType",), "--block-size": ("BlockSize",), "--speculative-config": ("SpeculativeMethod",),
    },
}  # fmt: skip
"""Flags whose values are listed, and the names of lists, types and enumerations where the source has some.

vLLM's `--speculative-config` stands for its `method`.
"""
LISTS = {
    "sglang": ("sglang/srt/server_args.py", "sglang/srt/arg_groups/*.py", "sglang/srt/speculative/spec_*.py"),
    "vllm": ("vllm/config.py", "vllm/config/*.py", "vllm/model_executor/layers/quantization/__init__.py"),
}
"""Where those lists lie."""


class Option(NamedTuple):
    """One flag: its name, the name that its flag goes by, and how many words follow it."""

    name: str
    of: str
    takes: str


def literal(node: ast.expr | None) -> object:
    """A constant's value; None where it is not one."""
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


def takes_of(keywords: dict[str, ast.expr], annotation: str = "") -> str:
    """`none`, `switch` (also spelled --no-...), `maybe`, `one` or `many`, from a call's keywords or an annotation."""
    action = ast.unparse(keywords["action"]) if "action" in keywords else ""
    nargs = literal(keywords.get("nargs"))
    if "BooleanOptional" in action:
        return "switch"
    if "store_" in action or "StoreTrue" in action or "StoreConst" in action or action == "DeprecatedAction":
        return "none"
    if nargs in ("+", "*") or isinstance(nargs, int):
        return "many"
    return "maybe" if nargs == "?" else annotation or "one"


def of_annotation(text: str, *, engine: str) -> str:
    """What follows a flag that is made from a field's type."""
    if "bool" in text:
        if engine == "sglang":
            return "none"
        return "maybe" if re.search(r"\bstr\b", text) else "switch"
    return "many" if re.search(r"\b(?:list|tuple|set|List|Tuple|Set)\b", text) and "Literal" not in text else "one"


def called(tree: ast.Module, types: dict[tuple[str, str], str]) -> Iterator[Option]:
    """Flags of calls of `add_argument`; `types` are the annotations of fields by class and name."""
    classes = {
        ast.unparse(node.targets[0]): ast.unparse(node.value.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "get_kwargs"
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        names = [name for name in map(literal, node.args) if isinstance(name, str) and name.startswith("-")]
        if node.func.attr != "add_argument" or not names:
            continue
        shared = next((one.value for one in node.keywords if one.arg is None), None)
        keywords = {one.arg: one.value for one in node.keywords if one.arg is not None}
        annotations = [
            types.get((classes.get(ast.unparse(one.value), ""), str(literal(one.slice))), "")
            for one in (ast.walk(shared) if shared is not None else ())
            if isinstance(one, ast.Subscript)
        ]
        takes = takes_of(keywords, of_annotation(annotations[0], engine="vllm") if annotations else "")
        yield from grouped(names, takes)


def annotated(tree: ast.Module) -> Iterator[Option]:
    """Flags of SGLang's annotated fields: `name: A[type, Arg(aliases=[...])]`."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.annotation, ast.Subscript)):
            continue
        wanted = node.annotation
        if ast.unparse(wanted.value) != "A" or not isinstance(wanted.slice, ast.Tuple):
            continue
        calls = [one for one in wanted.slice.elts if isinstance(one, ast.Call) and ast.unparse(one.func) == "Arg"]
        texts = [one for one in wanted.slice.elts if isinstance(literal(one), str) or isinstance(one, ast.JoinedStr)]
        keywords = {one.arg: one.value for call in calls for one in call.keywords if one.arg is not None}
        if literal(keywords.get("no_cli")) is True or not (calls or texts):
            continue
        own = literal(keywords.get("cli_name")) or "--" + ast.unparse(node.target).replace("_", "-")
        aliases = literal(keywords.get("aliases"))
        kind = of_annotation(ast.unparse(wanted.slice.elts[0]), engine="sglang")
        takes = takes_of(keywords, "one" if "type_parser" in keywords else kind)
        yield from grouped([str(own), *(aliases if isinstance(aliases, list) else [])], takes)


def frontend(tree: ast.Module) -> Iterator[Option]:
    """Flags of vLLM's server, made from a class's fields; of some it then deletes that they take many words."""
    single = re.findall(r"del \w+\['(\w+)'\]\['nargs'\]", ast.unparse(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name in FRONTEND:
            for field in node.body:
                if isinstance(field, ast.AnnAssign):
                    name = ast.unparse(field.target)
                    kind = "one" if name in single else of_annotation(ast.unparse(field.annotation), engine="vllm")
                    yield from grouped(["--" + name.replace("_", "-")], kind)


def grouped(names: list[str], takes: str) -> Iterator[Option]:
    """Every name of one flag, --no-... included."""
    plain = [name.replace("_", "-") if name.startswith("--") else name for name in names]
    of = next((name for name in plain if name.startswith("--")), plain[0])
    for name in dict.fromkeys(plain):
        yield Option(name, of, takes)
        if takes == "switch" and name.startswith("--"):
            yield Option("--no-" + name[2:], of, "none")


def trees(wheel: Path, patterns: tuple[str, ...]) -> Iterator[ast.Module]:
    """The parsed files that match any of `patterns`."""
    for path in (path for pattern in patterns for path in sorted(wheel.glob(pattern))):
        yield ast.parse(path.read_text())


def listed(engine: str, wheel: Path, flag: str, names: tuple[str, ...]) -> set[str]:
    """What a flag can be set to: what lists, types and enumerations of these `names` hold, and its own `choices`.

    SGLang's help for `--speculative-algorithm` names aliases that are in no list.
    """
    found: set[str] = set()
    for tree in trees(wheel, LISTS[engine]):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name in names:
                members = (ast.unparse(one.targets[0]) for one in node.body if isinstance(one, ast.Assign))
                found |= {member for member in members if member.isupper()} - {"NONE"}
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                found |= values(node.value, engine, wheel) if ast.unparse(target) in names else set()
    for tree in trees(wheel, SOURCES[engine]):
        for node in ast.walk(tree):
            if flag == "--speculative-algorithm" and isinstance(node, ast.Constant) and isinstance(node.value, str):
                told = re.search(r"Builtins: ([\w, ]+)\.", node.value)
                found |= set(told[1].split(", ")) if told else set()
            if isinstance(node, ast.AnnAssign) and "--" + ast.unparse(node.target).replace("_", "-") == flag:
                calls = [one for one in ast.walk(node.annotation) if isinstance(one, ast.Call)]
            elif isinstance(node, ast.Call) and any(literal(argument) == flag for argument in node.args):
                calls = [node]
            else:
                continue
            chosen = [one.value for call in calls for one in call.keywords if one.arg == "choices"]
            found |= {value for one in chosen for value in values(one, engine, wheel)}
    return found


def values(node: ast.expr, engine: str, wheel: Path) -> set[str]:
    """The values in a list, a set or a `Literal`, those of other types that it names included."""
    inner = node.args[0] if isinstance(node, ast.Call) and node.args else node
    inner = inner.slice if isinstance(inner, ast.Subscript) else inner
    found = set()
    for item in inner.elts if isinstance(inner, ast.List | ast.Tuple | ast.Set) else [inner]:
        value = literal(item)
        if value is not None:
            found.add(str(value))
        elif isinstance(item, ast.Name):
            found |= listed(engine, wheel, "", (item.id,))
    return found


def flags_of(engine: str, wheel: Path) -> dict[str, Option]:
    """The flags of one unpacked wheel."""
    types = {
        (node.name, ast.unparse(field.target)): ast.unparse(field.annotation)
        for tree in trees(wheel, FIELDS.get(engine, ()))
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign)
    }
    found: dict[str, Option] = {}
    for tree in trees(wheel, SOURCES[engine]):
        more = frontend(tree) if engine == "vllm" else annotated(tree)
        found |= {option.name: option for option in (*more, *called(tree, types))}
    return found


def order(version: str) -> tuple[int, ...]:
    """Versions in their order."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def spans(had: dict[str, set[str]]) -> Iterator[tuple[str, str, str]]:
    """(value, first version with it, first version again without it) for values by version, oldest first."""
    versions = list(had)
    for value in sorted(set().union(*had.values())):
        for at, version in enumerate(versions):
            if value not in had[version] or (at and value in had[versions[at - 1]]):
                continue
            yield value, version, next((late for late in versions[at:] if value not in had[late]), "")


def write(engine: str, folder: Path, choices: list[tuple[str, ...]]) -> None:
    """One engine's table: a row for each span of versions that have a flag. What flags can be set to is added."""
    wheels = {path.name.removeprefix(f"{engine}-"): path for path in folder.glob(f"{engine}-*")}
    versions = sorted(wheels, key=order)
    had = {version: flags_of(engine, wheels[version]) for version in versions}
    rows: list[tuple[str, ...]] = []
    for name, since, until in spans({version: set(flags) for version, flags in had.items()}):
        last = versions[versions.index(until) - 1] if until else versions[-1]
        rows.append((name, had[last][name].of, had[last][name].takes, since, until))
    table(DATA / f"{engine}.csv", versions, ("name", "flag", "takes", "since", "until"), rows)
    for flag, names in CHOICES[engine].items():
        known = {version: listed(engine, wheels[version], flag, names) for version in versions}
        choices += [(engine, flag, *span) for span in spans(known)]


def table(path: Path, versions: list[str], head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """A CSV file whose first line tells what was read."""
    with path.open("w", newline="", encoding="utf-8") as opened:
        opened.write(f"# Read in the wheels {' '.join(versions)} by scripts/engine_flags.py\n")
        csv.writer(opened, lineterminator="\n").writerows((head, *rows))


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    known: list[tuple[str, ...]] = []
    for one in SOURCES:
        write(one, Path(sys.argv[1]), known)
    table(
        DATA / "choices.csv",
        ["that", "sglang.csv", "and", "vllm.csv", "name"],
        ("engine", "flag", "value", "since", "until"),
        known,
    )
