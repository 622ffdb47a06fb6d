"""The runs of a store, and one run as JSON or CSV."""

import csv
import io
import time
from collections.abc import Sequence
from typing import Final

import msgspec
from rich.table import Table

from draftmark.store import RunExport, RunRecord

_COLUMNS: Final = (
    "run", "trial", "point", "finished", "invalid", "asked", "output", "concurrency", "mode", "sample", "warm_up",
    "seed",
    "prompt_tokens", "cached_tokens", "completion_tokens", "counted_by", "ttft_s", "decode_time_s", "decode_tokens",
    "chunks", "finish_reason", "error",
)  # fmt: skip


def runs(records: Sequence[RunRecord]) -> Table:
    """One row a run, newest last. A run without an end was killed, or still goes on."""
    table = Table()
    for heading in ("run", "started", "command", "status", "model", "engine"):
        table.add_column(heading, justify="right" if heading == "run" else "left")
    for record in records:
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.started))
        engine = " ".join(part for part in (record.environment.engine, record.environment.engine_version) if part)
        status = record.status or "open or killed"
        table.add_row(str(record.id), began, record.command, status, record.environment.model or "–", engine or "–")
    return table


def as_json(export: RunExport) -> str:
    """Everything about the run, one document."""
    return msgspec.json.format(msgspec.json.encode(export), indent=2).decode()


def as_csv(export: RunExport) -> str:
    """One row a request, with its point's keys; empty where unknown. Times in seconds."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(_COLUMNS)
    for record in export.points:
        point = record.point
        for number, sample in enumerate(point.samples, 1):
            table.writerow(
                [
                    export.run.id, record.trial, record.id, record.finished, point.invalid, point.asked, point.output,
                    point.concurrency, point.mode, number, sample.warm_up, sample.seed, sample.prompt_tokens,
                    sample.cached_tokens, sample.completion_tokens, sample.counted_by, sample.ttft, sample.decode_time,
                    sample.decode_tokens, len(sample.arrivals), sample.finish_reason, sample.error,
                ]
            )  # fmt: skip
    return text.getvalue()
