"""Starts of SGLang: those that were made for this on an H200, and published ones."""

import json
import math
import re
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Final

import msgspec
from rows import DATA, ROOT, Row, configs, family, pool_row, read, with_weights

from draftmark.checkpoint.load import load_model
from draftmark.configuration import Configuration, Parallel
from draftmark.engines.sglang_flags import parse_flags
from draftmark.machine.catalogue import parse_machine
from draftmark.model import Model
from draftmark.planner import Plan, plan
from draftmark.planner.layout import stages
from draftmark.planner.sglang.cells import cells
from draftmark.planner.sglang.rules import rules_for
from draftmark.units import GIB

VERSION: Final = "0.5.15.post1"
"""What the starts on the H200 ran."""


def cell_table() -> list[str]:
    """Bytes a token against SGLang's own configurator, on 1 and on 8 ranks."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    known, without = configs(), []
    for entry in map(json.loads, (DATA / "models" / "sglang-0.5.15-cells.jsonl").read_text().splitlines()):
        if "cells" not in entry:
            without.append(entry["name"])
            continue
        model = read(known[entry["name"]])
        ours = {ranks: counted(model, int(ranks)) for ranks in entry["cells"]}
        same = all(math.isclose(ours[ranks], theirs) for ranks, theirs in entry["cells"].items())
        counts[family(model)][0 if same else 1] += 1
    rows = [f"| {name} | {good} | {bad} |" for name, (good, bad) in sorted(counts.items())]
    answered = sum(good + bad for good, bad in counts.values())
    exact = sum(good for good, _ in counts.values())
    said = f"{exact} of {answered} exact. It gave no answer on a CPU to {len(without)}: {', '.join(without)}."
    return ["| family | exact | wrong |", "|---|--:|--:|", *rows, "", said]


def counted(model: Model, ranks: int) -> float:
    """Bytes a token by which the planner sizes SGLang's pool, on one of `ranks` ranks, with a bf16 cache."""
    wanted = Configuration(
        engine="sglang", model="m", dtype="bfloat16", kv_dtype="bfloat16", parallel=Parallel(tensor=ranks)
    )
    return cells(model, wanted, stages(len(model.layers), 1)[0], rules_for(VERSION), None).counted


def device_starts() -> tuple[list[Row], list[Row]]:
    """The starts of SGLang 0.5.15.post1 on an H200 that were made for this page: pools, and what stayed free."""
    plan_of = tomllib.loads((DATA / "sglang-starts" / "starts.toml").read_text())
    sys.path.insert(0, str(ROOT / "scripts"))
    from sglang_starts import write_model

    rows, left = [], []
    known = {name: entry["config"] for name, entry in configs().items()}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in plan_of["models"].items():
            write_model(Path(folder) / name, model, known)
        for line in (DATA / "sglang-starts" / "starts.jsonl").read_text().splitlines():
            start = json.loads(line)
            said = re.findall(r"max_total_num_tokens=(\d+),|full_layer_tokens=(\d+)", start["log"])
            if not said:
                continue
            asked = msgspec.structs.replace(
                parse_flags(tuple(start["flags_given"]), (), VERSION).configuration,
                version=VERSION,
                model=start["model"],
            )
            draft = load_model(str(Path(folder) / start["draft"])) if "draft" in start else None
            model = load_model(str(Path(folder) / start["model"]))
            found = plan(model, asked, parse_machine("h200"), draft=draft)
            rows.append(pool_row(start["name"], model, found, int(next(filter(None, said[-1])))))
            free = re.findall(r"available_gpu_mem=([\d.]+)", start["log"])
            if free:
                left.append(free_row(start["name"], model, found, float(free[-1]) * GIB))
    return rows, left


def free_row(name: str, model: Model, found: Plan, real: float) -> Row:
    """Memory free when the server is ready and has served nothing yet."""
    ledger = found.ledgers[0]
    predicted = float(ledger.free + (ledger.amount("activations") or 0) + (ledger.amount("logits") or 0))
    return Row(name=name, family=family(model), real=real, predicted=predicted, low=predicted, high=predicted)


def public_starts() -> list[Row]:
    """Starts of SGLang that people published."""
    known = configs()
    rows = []
    for line in (DATA / "starts" / "sglang.jsonl").read_text().splitlines():
        entry = json.loads(line)
        model = read(known[entry["model"]])
        if "weights_gib" in entry:
            model = with_weights(model, entry["weights_gib"], parse_machine(entry["gpu"]).count)
        asked = msgspec.structs.replace(
            parse_flags(("--model-path", entry["model"], *entry["flags"]), (), entry["version"]).configuration,
            version=entry["version"],
        )
        found = plan(model, asked, parse_machine(entry["gpu"]))
        rows.append(pool_row(f"{entry['model']} on {entry['gpu']}", model, found, entry["tokens"]))
    return rows
