"""Public starts of vLLM: KV bytes with whole models left out of the fit, and replays of the logs' own budgets."""

import csv
import json
import math
from statistics import mean, median
from typing import Any

import msgspec
import numpy as np
from rows import DATA, Row, base, configs, family, read, with_weights

from draftmark.configuration import Configuration, Parallel
from draftmark.engines.vllm_flags import parse_flags
from draftmark.ledger import Entry, Ledger, close
from draftmark.machine.catalogue import find_gpu, parse_machine
from draftmark.model import Model
from draftmark.planner import Plan, plan
from draftmark.planner.layout import rank_weights, stages, vllm_stages
from draftmark.planner.learn import Past, learn
from draftmark.planner.terms import NINETY
from draftmark.planner.vllm import terms
from draftmark.planner.vllm.predict import printed
from draftmark.planner.vllm.rules import rules_for
from draftmark.planner.vllm.specs import grouped, specifications
from draftmark.units import GIB, Bytes, Tokens

H100 = 79.19 * GIB
UTILIZATION = 0.95


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
        quantization="fp8" if row["quantization"] == "fp8" else None,
        kv_dtype=None if row["kv_dtype"] == "auto" else row["kv_dtype"],
    )


def vllm_model(row: dict[str, str], known: dict[str, dict[str, Any]]) -> Model:
    """The model of one start."""
    return read(known[row["model"]])


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
    own = terms.weights(rank_weights(model, wanted, stage, find_gpu("h100")), exact=False)
    if given:
        own = msgspec.structs.replace(own, bytes=round(float(row["weights_gib"]) * GIB), deviation=0.005 * GIB)
    peak = terms.activations(model, wanted, last=stage.last, law=law)
    if constant is not None:
        peak = msgspec.structs.replace(peak, bytes=round(constant))
    outside = terms.communication(wanted, find_gpu("h100"))
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


def learned() -> tuple[int, float, float]:
    """Pairs of starts of one model with different flags; the MAE in GiB of the second before and after the first."""
    known = configs()
    rows = [(row, vllm_model(row, known)) for row in vllm_rows()]
    before, after = [], []
    for row, model in rows:
        rest = [(other, its) for other, its in rows if base(other["model"]) != base(row["model"])]
        law = fit(rest)
        plain = predict_vllm(row, model, law, given=False)
        for other, its in rows:
            if other is row or other["model"] != row["model"]:
                continue
            seen = predict_vllm(other, its, law, given=False)
            past = Past(
                engine="vllm",
                version="0.19.0",
                device="NVIDIA H100 80GB HBM3",
                architecture=its.architecture,
                model=its.name,
                parallel=vllm_configuration(other).parallel,
                predicted=pool_ledger(seen.predicted),
                observed=pool_ledger(seen.real),
            )
            moved = learn([past], vllm_configuration(row), "h100", model).budget
            before.append(abs(plain.error))
            after.append(abs(plain.predicted + moved - plain.real) / GIB)
    return len(before), mean(before), mean(after)


def pool_ledger(size: float) -> Ledger:
    """A ledger with nothing but a pool."""
    entry = Entry(account="pool", bytes=Bytes(round(size)), why="")
    return close(rank=0, capacity=Bytes(round(H100)), entries=(entry,))


def public_starts() -> list[Row]:
    """Starts of other versions, GPUs and models that people published; nothing was fitted to them."""
    known = configs()
    rows = []
    for line in (DATA / "starts" / "vllm-public.jsonl").read_text().splitlines():
        entry = json.loads(line)
        machine = parse_machine(entry["gpu"])
        model = read(known[entry["model"]])
        if "weights_gib" in entry:
            model = with_weights(model, entry["weights_gib"], machine.count)
        asked = parse_flags((entry["model"], *entry["flags"]), (), entry["version"]).configuration
        found = plan(model, msgspec.structs.replace(asked, version=entry["version"]), machine)
        name = f"{entry['model']} {entry['version']} on {entry['gpu']}"
        rows.append(pool_bytes(name, model, found, entry))
    return rows


def pool_bytes(name: str, model: Model, found: Plan, entry: dict[str, Any]) -> Row:
    """Pool bytes; where only tokens were printed, they are scaled by the plan's own bytes and tokens."""
    predicted, tokens = float(found.pool.bytes or 0), max(1, found.pool.tokens)
    real = entry["kv_gib"] * GIB if "kv_gib" in entry else predicted / tokens * entry["tokens"]
    low, high = (predicted / tokens * (end or 0) for end in (found.pool.low, found.pool.high))
    return Row(name=name, family=family(model), real=real, predicted=predicted, low=low, high=high)
