"""Hold the planner against real starts and the engines' own code, and write docs/accuracy.md.

    python scripts/accuracy [--check]

Where a coefficient was fitted, all rows of a model (any quantization) are left out while it is fitted for them.
`--check` fails where the page that is kept differs from what would be written.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean

from rows import DATA, ROOT, Row, configs, family, read
from starts_sglang import cell_table, device_starts, public_starts
from starts_vllm import learned, replays, vllm_predictions
from starts_vllm import public_starts as public_vllm

from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.planner.layout import stages
from draftmark.planner.vllm.specs import specifications
from draftmark.units import GIB

TEMPLATE = Path(__file__).with_name("page.md")
PAGE = ROOT / "docs" / "accuracy.md"


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


def noted(name: str) -> list[str]:
    """Sources of a file of published starts, with what is not known of them."""
    entries = [json.loads(line) for line in (DATA / "starts" / name).read_text().splitlines()]
    return [
        f"- {entry['model']} on {entry['gpu']}: {entry.get('note', 'as stated')} ({entry['source']})"
        for entry in entries
    ]


def page() -> str:
    """The whole page."""
    vllm, public, replayed = vllm_predictions(), public_starts(), replays()
    device, left = device_starts()
    pairs, before, after = learned()
    return TEMPLATE.read_text().format(
        cache="\n".join(cache_table()),
        cells="\n".join(cell_table()),
        given="\n".join(by_family(vllm["given"])),
        predicted="\n".join(by_family(vllm["predicted"])),
        constant="\n".join(by_family(vllm["constant"])),
        within=sum(error == 0 for error in replayed),
        replayed=len(replayed),
        beyond=f"{max(replayed):.2%}",
        others="\n".join(each(public_vllm())),
        others_notes="\n".join(noted("vllm-public.jsonl")),
        pairs=pairs,
        before=f"{before:.2f}",
        after=f"{after:.2f}",
        device="\n".join(by_family(device)),
        starts="\n".join(each(device)),
        left="\n".join(each(left)),
        left_error=f"{mean(abs(row.error) for row in left):.2f}",
        public="\n".join(each(public)),
        notes="\n".join(noted("sglang.jsonl")),
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
