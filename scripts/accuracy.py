"""Hold the planner against real starts and the engines' own code, and write docs/accuracy.md.

    python scripts/accuracy.py [--check]

Where a coefficient was fitted, all rows of a model (any quantization) are left out while it is fitted for them.
`--check` fails where the page that is kept differs from what would be written.
"""

import argparse
import csv
import json
import math
import re
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, median
from typing import Any

import msgspec
import numpy as np

from draftmark.checkpoint.files import Files
from draftmark.checkpoint.load import load_model, read_model
from draftmark.configuration import Configuration, Parallel
from draftmark.engines.sglang_flags import parse_flags
from draftmark.errors import BadInput
from draftmark.machine.catalogue import parse_machine
from draftmark.model import Gqa, Mla, Model, Recurrent, WeightGroup
from draftmark.planner import Plan, plan
from draftmark.planner.layout import rank_weights, stages, vllm_stages
from draftmark.planner.terms import NINETY
from draftmark.planner.vllm import terms
from draftmark.planner.vllm.predict import printed
from draftmark.planner.vllm.rules import rules_for
from draftmark.planner.vllm.specs import grouped, specifications
from draftmark.units import GIB, Bytes, Tokens

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"
TEMPLATE = Path(__file__).with_suffix(".md")
PAGE = ROOT / "docs" / "accuracy.md"
H100 = 79.19 * GIB
UTILIZATION = 0.95


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One prediction beside what was measured."""

    name: str
    family: str
    real: float
    predicted: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """In GiB."""
        return (self.predicted - self.real) / GIB

    @property
    def share(self) -> float:
        """Relative."""
        return self.predicted / self.real - 1


def family(model: Model) -> str:
    """Dense, or what makes a model special."""
    kinds = {type(layer.mixer) for layer in model.layers}
    windowed = any(isinstance(layer.mixer, Gqa) and layer.mixer.window for layer in model.layers)
    if Recurrent in kinds:
        return "recurrent hybrid"
    if Mla in kinds:
        sparse = any(isinstance(layer.mixer, Mla) and layer.mixer.indexer for layer in model.layers)
        return "sparse MLA" if sparse else "MLA"
    if windowed:
        return "windowed hybrid"
    return "MoE" if model.experts is not None else "dense"


def configs() -> dict[str, dict[str, Any]]:
    """All real configurations by name."""
    found = {}
    for path in (DATA / "starts" / "models.jsonl", DATA / "models" / "configs.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found[row["name"]] = row
    return found


def read(row: dict[str, Any]) -> Model:
    """The model of one configuration."""
    files = Files(place=row["name"], name=row["name"], config=row["config"], quantization=row.get("quantization"))
    return read_model(files)


def base(name: str) -> str:
    """A model without its maker and its quantization, so that all its rows are left out together."""
    short = name.split("/")[-1].lower().removeprefix("meta-")
    return re.sub(r"-(instruct|chat|it|quantized.*|fp8-dynamic|hf|v0\.1|\d{4})(?=-|$|\.)", "", short)


def cache_table() -> list[str]:
    """Layers and their bytes against vLLM's own specifications."""
    key = [json.loads(line) for line in (DATA / "models" / "vllm-0.32-specs.jsonl").read_text().splitlines()]
    rows = configs()
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    refused = []
    for entry in key:
        try:
            model = read(rows[entry["name"]])
        except BadInput as error:
            refused.append(f"{entry['name']} ({error.cause})")
            continue
        if "layers" not in entry:
            counts[family(model)][2] += 1
            continue
        wanted = Configuration(engine="vllm", model="m", dtype="bfloat16", kv_dtype="bfloat16")
        ours = sum(
            spec.token or spec.state for spec in specifications(model, wanted, stages(len(model.layers), 1)[0], None)
        )
        theirs = sum(
            layer["count"] * layer["page_bytes"] // (1 if layer["spec"] == "MambaSpec" else layer["block"])
            for layer in entry["layers"]
        )
        counts[family(model)][0 if ours == theirs else 1] += 1
    lines = ["| family | exact | wrong | vLLM gave no answer |", "|---|--:|--:|--:|"]
    lines += [f"| {name} | {good} | {bad} | {open_} |" for name, (good, bad, open_) in sorted(counts.items())]
    exact = sum(good for good, _, _ in counts.values())
    wrong = sum(bad for _, bad, _ in counts.values())
    lines += ["", f"{exact} of {len(key)} exact, {wrong} wrong, {len(refused)} refused by name:", ""]
    return [*lines, *(f"- {line}" for line in refused)]


def vllm_rows() -> list[dict[str, str]]:
    """The public starts."""
    return list(csv.DictReader((DATA / "starts" / "vllm-0.19-h100.csv").read_text().splitlines()))


def vllm_configuration(row: dict[str, str]) -> Configuration:
    """What one public start was asked."""
    return Configuration(
        engine="vllm",
        model=row["model"],
        version="0.19.0",
        parallel=Parallel(tensor=int(row["tensor"]), pipeline=int(row["pipeline"])),
        memory_fraction=UTILIZATION,
        chunk=Tokens(8192),
        max_running=1024,
        context=Tokens(int(row["max_model_len"])),
        page=Tokens(16),
        dtype=row["dtype"],
        kv_dtype=None if row["kv_dtype"] == "auto" else row["kv_dtype"],
    )


def vllm_model(row: dict[str, str], known: dict[str, dict[str, Any]]) -> Model:
    """The model of one start, quantized at load where the start says so."""
    entry = known[row["model"]]
    if row["quantization"] == "fp8" and "quantization_config" not in entry["config"]:
        entry = {**entry, "config": {**entry["config"], "quantization_config": {"quant_method": "fp8"}}}
    if row["dtype"] == "float32":
        entry = {**entry, "config": {**entry["config"], "torch_dtype": "float32"}}
    return read(entry)


def fit(rows: list[tuple[dict[str, str], Model]]) -> terms.Coefficients:
    """The activation law by least squares; float32 and pipelines left out, whose peaks are of another kind."""
    inputs, measured = [], []
    for row, model in rows:
        if row["pipeline"] != "1" or row["dtype"] == "float32":
            continue
        wanted = vllm_configuration(row)
        step = terms.routed(model, wanted)
        inputs.append([1024 * model.vocabulary, 2 * 8192 * model.hidden_size, step])
        measured.append(float(row["activations_gib"]) * GIB)
    solved = np.linalg.lstsq(np.array(inputs), np.array(measured), rcond=None)[0]
    return terms.Coefficients(sampler=float(solved[0]), hidden=float(solved[1]), experts=float(solved[2]))


def predict_vllm(
    row: dict[str, str], model: Model, law: terms.Coefficients, *, given: bool, constant: float | None = None
) -> Row:
    """KV bytes of one start; with `constant` the activations are that number instead of the law."""
    wanted = vllm_configuration(row)
    stage = vllm_stages(len(model.layers), wanted.parallel.pipeline)[0]
    own = terms.weights(rank_weights(model, wanted.parallel, stage), exact=False)
    if given:
        own = msgspec.structs.replace(own, bytes=round(float(row["weights_gib"]) * GIB), deviation=0.005 * GIB)
    peak = terms.activations(model, wanted, last=stage.last, law=law)
    if constant is not None:
        peak = msgspec.structs.replace(peak, bytes=round(constant))
    outside = terms.communication(wanted)
    predicted = math.ceil(H100 * UTILIZATION) - own.bytes - peak.bytes - outside.bytes
    swing = NINETY * math.hypot(own.deviation, peak.deviation, outside.deviation)
    return Row(
        name=f"{row['model']} tp{row['tensor']} pp{row['pipeline']}",
        family=family(model),
        real=float(row["kv_gib"]) * GIB,
        predicted=predicted,
        low=predicted - swing,
        high=predicted + swing,
    )


def vllm_predictions() -> dict[str, list[Row]]:
    """Every start predicted with its own model left out, in three ways."""
    known = configs()
    rows = [(row, vllm_model(row, known)) for row in vllm_rows()]
    found: dict[str, list[Row]] = {"given": [], "predicted": [], "constant": []}
    for row, model in rows:
        rest = [(other, its) for other, its in rows if base(other["model"]) != base(row["model"])]
        law = fit(rest)
        constant = median(float(other["activations_gib"]) for other, _ in rest) * GIB
        found["given"].append(predict_vllm(row, model, law, given=True))
        found["predicted"].append(predict_vllm(row, model, law, given=False))
        found["constant"].append(predict_vllm(row, model, law, given=True, constant=constant))
    return found


def replays() -> list[float]:
    """Relative error of tokens from the budget that the log itself states, beyond what its two decimals leave open."""
    known = configs()
    errors = []
    for row in vllm_rows():
        if row["pipeline"] != "1":
            continue
        wanted, model = vllm_configuration(row), vllm_model(row, known)
        grouping = grouped(specifications(model, wanted, stages(len(model.layers), 1)[0], None), wanted)
        real = int(row["tokens"])
        counts = []
        for slack in (-0.005, 0.0, 0.005):
            blocks = int((float(row["kv_gib"]) + slack) * GIB // grouping.block_bytes)
            counts.append(printed(grouping, wanted, rules_for("0.19.0"), int(row["max_model_len"]), blocks))
        within = counts[0] <= real <= counts[2]
        errors.append(0.0 if within else abs(counts[1] / real - 1))
    return errors


def device_starts() -> list[Row]:
    """The starts of SGLang 0.5.15.post1 on an H200 that were made for this page."""
    plan_of = tomllib.loads((DATA / "sglang-starts" / "starts.toml").read_text())
    sys.path.insert(0, str(ROOT / "scripts"))
    from sglang_starts import write_model

    rows = []
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
                parse_flags(tuple(start["flags_given"])).configuration, version="0.5.15.post1", model=start["model"]
            )
            draft = load_model(str(Path(folder) / start["draft"])) if "draft" in start else None
            model = load_model(str(Path(folder) / start["model"]))
            found = plan(model, asked, parse_machine("h200"), draft=draft)
            rows.append(pool_row(start["name"], model, found, int(next(filter(None, said[-1])))))
    return rows


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
            parse_flags(("--model-path", entry["model"], *entry["flags"])).configuration, version=entry["version"]
        )
        found = plan(model, asked, parse_machine(entry["gpu"]))
        rows.append(pool_row(f"{entry['model']} on {entry['gpu']}", model, found, entry["tokens"]))
    return rows


def with_weights(model: Model, gib: float, ranks: int) -> Model:
    """The model with so many GiB of weights on each rank, as the start itself said."""
    size = round(gib * GIB * ranks)
    whole = WeightGroup(role="mlp", layer=0, bytes=Bytes(size), parameters=size, dtype="U8")
    return msgspec.structs.replace(model, weights=(whole,), exact_weights=True)


def pool_row(name: str, model: Model, found: Plan, real: int) -> Row:
    """Pool bytes, at the bytes a token of the plan."""
    per = found.bytes_per_token
    low, high = found.pool.low or 0, found.pool.high or 0
    return Row(
        name=name,
        family=family(model),
        real=real * per,
        predicted=found.pool.tokens * per,
        low=low * per,
        high=high * per,
    )


def summary(rows: Iterable[Row]) -> str:
    """MAE, mean absolute relative error, worst, and how many intervals hold the truth."""
    rows = list(rows)
    absolute = mean(abs(row.error) for row in rows)
    relative = mean(abs(row.share) for row in rows)
    worst = max(rows, key=lambda row: abs(row.error))
    inside = sum(row.low <= row.real <= row.high for row in rows)
    return (
        f"{len(rows)} | {absolute:.2f} | {relative:.2%} | {worst.error:+.2f} ({worst.name}) | "
        f"{inside} of {len(rows)} ({inside / len(rows):.0%})"
    )


def by_family(rows: list[Row]) -> list[str]:
    """One line a family, and one for all."""
    lines = [
        "| family | starts | MAE, GiB | mean error | worst, GiB | 90 % interval holds it |",
        "|---|--:|--:|--:|---|---|",
    ]
    lines += [
        f"| {name} | {summary(row for row in rows if row.family == name)} |"
        for name in sorted({row.family for row in rows})
    ]
    return [*lines, f"| **all** | {summary(rows)} |"]


def each(rows: list[Row]) -> list[str]:
    """One line a start."""
    lines = ["| start | real, GiB | predicted, GiB | error |", "|---|--:|--:|--:|"]
    return lines + [
        f"| {row.name} | {row.real / GIB:.2f} | {row.predicted / GIB:.2f} | {row.error:+.2f} GiB, {row.share:+.2%} |"
        for row in rows
    ]


def page() -> str:
    """The whole page."""
    vllm, device, public, replayed = vllm_predictions(), device_starts(), public_starts(), replays()
    published = [json.loads(line) for line in (DATA / "starts" / "sglang.jsonl").read_text().splitlines()]
    return TEMPLATE.read_text().format(
        cache="\n".join(cache_table()),
        given="\n".join(by_family(vllm["given"])),
        predicted="\n".join(by_family(vllm["predicted"])),
        constant="\n".join(by_family(vllm["constant"])),
        within=sum(error == 0 for error in replayed),
        replayed=len(replayed),
        beyond=f"{max(replayed):.2%}",
        device="\n".join(by_family(device)),
        starts="\n".join(each(device)),
        public="\n".join(each(public)),
        notes="\n".join(f"- {entry['model']}: {entry['note']} ({entry['source']})" for entry in published),
    )


def main() -> int:
    """Write the page, or compare it with the one that is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    text = page()
    if parser.parse_args().check:
        same = PAGE.read_text() == text
        print("docs/accuracy.md is as it would be written" if same else "docs/accuracy.md differs: run make accuracy")
        return 0 if same else 1
    PAGE.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
