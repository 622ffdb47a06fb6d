import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.errors import BadInput
from draftmark.physics.figures import figures
from draftmark.sample import Point
from draftmark.sweep.imports import read_results
from draftmark.sweep.imports.timed import CLIENT_COUNT

DATA = Path(__file__).parents[1] / "data" / "imports"


def only(name: str) -> Point:
    (imported,) = read_results(DATA / name)
    (point,) = imported.points
    return point


@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        ("vllm-bench-serve-0.32.0.json", 520),
        ("sglang-bench-serving-0.5.23.jsonl", 512),
        ("guidellm-0.8.1.json", 520),
        ("aiperf-0.13.0.jsonl", 520),
    ],
)
def test_clients_of_servers(name: str, prompt: int) -> None:
    point = only(name)
    shown = figures(point)
    assert (point.asked, point.output, len(point.measured)) == (prompt, 256, 3)
    assert shown.ttft is not None
    assert shown.ttft.value == pytest.approx(0.504, abs=0.01)
    assert shown.step_time is not None
    assert shown.step_time.value == pytest.approx(0.020, rel=0.01)
    assert shown.decode_rate is None, "the first chunk may have brought several tokens"
    assert shown.decode_rate_bounds is not None
    low, high = shown.decode_rate_bounds
    assert low < 125 < high + 1


def test_llama_bench_has_prefill_and_decode_apart() -> None:
    (imported,) = read_results(DATA / "llama-bench.json")
    prefill, decode = imported.points
    assert imported.model == "models/Qwen2.5-7B-Q4_K_M.gguf"
    assert (prefill.asked, prefill.output, prefill.mode) == (512, 0, "cold")
    shown = figures(prefill).prefill_rate
    assert shown is not None
    assert shown.value == pytest.approx(7136.37, rel=1e-4)
    assert (decode.asked, decode.output, decode.mode) == (8192, 128, "warm")
    rate = figures(decode).decode_rate
    assert rate is not None
    assert rate.value == pytest.approx(119.03, rel=1e-3)
    assert figures(decode).ttft is None


def test_one_token_a_chunk_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(
        '{"backend": "vllm", "duration": 1.0, "input_lens": [9], "output_lens": [3], "ttfts": [0.5],'
        ' "itls": [[0.1, 0.1]], "errors": [""], "request_rate": Infinity}'
    )
    ((point,),) = (imported.points for imported in read_results(file))
    rate = figures(point).decode_rate
    assert rate is not None
    assert rate.value == pytest.approx(10.0)


def test_failed_requests_make_a_point_invalid(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(
        '{"backend": "vllm", "duration": 1.0, "input_lens": [9], "output_lens": [0], "ttfts": [0.0], "itls": [[]],'
        ' "errors": ["connection refused"], "request_rate": 2.0}'
    )
    ((point,),) = (imported.points for imported in read_results(file))
    assert point.invalid == "connection refused"
    assert point.rate == 2.0


def test_other_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text('{"backend": "vllm", "mean_ttft_ms": 3}')
    with pytest.raises(BadInput, match="no result file of"):
        read_results(file)
    with pytest.raises(BadInput, match="cannot be read"):
        read_results(tmp_path / "missing.json")


def vllm_run(**fields: object) -> dict[str, object]:
    requests = {"input_lens": [9, 9], "output_lens": [3, 3], "ttfts": [0.5, 0.5], "itls": [[0.1, 0.1], [0.1, 0.1]]}
    return {"backend": "vllm", "duration": 1.0, "request_rate": "inf", "queue_times": [0.0, 0.0], **requests, **fields}


def written(folder: Path, *documents: object) -> Path:
    file = folder / "run.json"
    file.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in documents))
    return file


@pytest.mark.parametrize(
    ("fields", "streams"),
    [
        ({"max_concurrency": 2}, 2),
        ({"max_concurrency": 64}, 2),
        ({"request_rate": 3.0}, 1),
        ({"start_times": [10.0, 10.1]}, 2),
        ({"start_times": [10.0, 20.0]}, 1),
        ({"max_concurrent_requests": 2.0}, 2),
        ({"request_rate": "trace"}, 2),
        ({"request_rate": math.inf}, 2),
        ({"request_rate": math.nan, "mean_tpot_ms": math.nan}, 2),
        ({}, 2),
    ],
)
def test_how_many_streams_there_were_is_never_taken_for_one(
    tmp_path: Path, fields: dict[str, object], streams: int
) -> None:
    (imported,) = read_results(written(tmp_path, vllm_run(**fields)))
    assert {point.concurrency for point in imported.points} == {streams}


def test_who_counted_the_prompt_is_told(tmp_path: Path) -> None:
    assert CLIENT_COUNT in only("sglang-bench-serving-0.5.23.jsonl").flags, "the server counted 520"
    assert CLIENT_COUNT not in only("vllm-bench-serve-0.32.0.json").flags
    ((older,),) = (one.points for one in read_results(written(tmp_path, vllm_run(queue_times=None))))
    assert CLIENT_COUNT in older.flags
    assert CLIENT_COUNT not in only("aiperf-0.13.0.jsonl").flags
    ((point,),) = (one.points for one in read_results(written(tmp_path, aiperf(usage=False), aiperf(usage=False))))
    assert CLIENT_COUNT in point.flags


def aiperf(*, usage: bool = True, start: float = 0.0, phase: str = "profiling", **more: object) -> dict[str, object]:
    metrics: dict[str, object] = {
        "time_to_first_token": {"value": 500.0, "unit": "ms"},
        "inter_chunk_latency": {"value": [100.0, 100.0], "unit": "ms"},
        "input_sequence_length": {"value": 9, "unit": "tokens"},
        "output_sequence_length": {"value": 3, "unit": "tokens"},
    }
    if usage:
        metrics |= {"usage_prompt_tokens": {"value": 9}, "usage_completion_tokens": {"value": 3}}
    metadata = {"request_start_ns": round((1e9 + start) * 1e9), "benchmark_phase": phase}
    return {"metadata": metadata, "metrics": metrics, **more}


def test_warm_up_of_aiperf_is_not_measured(tmp_path: Path) -> None:
    records = [aiperf(phase="warmup"), aiperf(start=5), aiperf(start=10)]
    ((point,),) = (one.points for one in read_results(written(tmp_path, *records)))
    assert (len(point.samples), len(point.measured), point.concurrency) == (3, 2, 1)


def test_streams_of_aiperf_are_seen_from_their_times(tmp_path: Path) -> None:
    records = [aiperf(start=0.1 * index) for index in range(4)]
    ((point,),) = (one.points for one in read_results(written(tmp_path, *records)))
    assert point.concurrency == 4


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        ({"error": {"message": "\x1b[31mrefused\n\nby the server", "code": 500}}, "refused by the server"),
        ({"error": {"message": None, "type": "Timeout"}}, "Timeout"),
        ({"error": {}}, "without a word"),
    ],
)
def test_a_failed_request_of_aiperf_keeps_the_others(tmp_path: Path, failed: dict[str, object], words: str) -> None:
    records = [aiperf(), aiperf(start=5) | {"metrics": {}} | failed]
    (imported,) = read_results(written(tmp_path, *records))
    broken, sound = imported.points
    assert words in str(broken.invalid)
    assert str(broken.invalid).isprintable()
    assert sound.invalid is None


WRONG = {
    "nothing": ("", "is not whole JSON"),
    "text": ("hello", "is not whole JSON"),
    "a number": ("3", "no result file of"),
    "an empty list": ("[]", "no result file of"),
    "another tool": ('{"tool": 1}', "no result file of"),
    "a cut document": (json.dumps(vllm_run())[:-9], "is not whole JSON"),
    "a cut line": ("\n".join([json.dumps(aiperf()), json.dumps(aiperf())[:-9]]), "line 2 is not whole"),
    "two tools": ("\n".join([json.dumps(aiperf()), json.dumps(vllm_run())]), "mixes files"),
    "no details": ('{"backend": "vllm", "duration": 1, "request_rate": 1.0}', "missing required field `input_lens`"),
    "no request": (
        json.dumps(vllm_run(input_lens=[], output_lens=[], ttfts=[], itls=[])),
        "without a request",
    ),
    "lists that differ": (json.dumps(vllm_run(ttfts=[0.5])), "differ in length"),
    "a count that is none": (json.dumps(vllm_run(input_lens=[9, 10**30])), "input_lens"),
    "a count below zero": (json.dumps(vllm_run(output_lens=[3, -3])), "output_lens"),
    "a time below zero": (json.dumps(vllm_run(itls=[[0.1, 0.1], [0.1, -0.1]])), "itls"),
    "a time that is a word": (json.dumps(vllm_run(ttfts=[0.5, "fast"])), "ttfts"),
    "no time": (json.dumps(vllm_run(ttfts=[0.5, math.nan])), "ttfts"),
    "so many chunks": (json.dumps([{"model_type": "m", "n_prompt": 0, "n_gen": 2**40, "samples_ns": [1]}]), "n_gen"),
    "rows that mix": (
        json.dumps([{"model_type": "m", "n_prompt": 8, "n_gen": 8, "samples_ns": [1]}]),
        "without a request",
    ),
    "deep lists": ("[" * 100_000, "no result file of"),
    "deep objects": ('{"a": ' * 100_000, "is not whole JSON"),
    "a deep field": (
        '{"backend": "vllm", "duration": 1, "request_rate": 1, "x": ' + "[" * 100_000,
        "is not whole JSON",
    ),
}


@pytest.mark.parametrize(("content", "words"), WRONG.values(), ids=WRONG)
def test_a_file_that_is_wrong_is_told_on_one_line(tmp_path: Path, content: str, words: str) -> None:
    with pytest.raises(BadInput) as problem:
        read_results(written(tmp_path, content))
    assert words in str(problem.value)
    assert "\n" not in str(problem.value)
    assert len(str(problem.value)) < 600


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("*.json*")))
@given(share=st.floats(0.0, 0.999))
def test_a_file_cut_anywhere_is_refused_or_whole_in_its_lines(name: str, share: float) -> None:
    content = (DATA / name).read_bytes().rstrip()
    with TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(content[: int(share * len(content))])
        try:
            found = read_results(file)
        except BadInput:
            return
    assert sum(len(point.samples) for one in found for point in one.points) < 3, "only whole lines are read"


def test_llama_bench_by_lines_is_the_same_as_in_one(tmp_path: Path) -> None:
    rows = json.loads((DATA / "llama-bench.json").read_text())
    assert read_results(written(tmp_path, *rows)) == read_results(DATA / "llama-bench.json")


def test_models_are_kept_apart_and_named(tmp_path: Path) -> None:
    row = {"model_type": "qwen", "n_prompt": 8, "n_gen": 0, "samples_ns": [1000]}
    found = read_results(written(tmp_path, [row | {"model_filename": "a.gguf"}, row | {"model_filename": "b.gguf"}]))
    assert [one.model for one in found] == ["a.gguf", "b.gguf"]
    run = vllm_run(server_info={"model_path": "/m", "served_model_name": "shown\x1b[0m"})
    (imported,) = read_results(written(tmp_path, run))
    assert imported.model == "shown\ufffd[0m"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            'Traceback (most recent call last):\n  File "x", line 3\nTimeoutError: \x1b[31mslow\n',
            "TimeoutError: \ufffd[31mslow",
        ),
        ("Service\nUnavailable", "Service Unavailable"),
        (" \n ", "it failed without a word"),
    ],
)
def test_of_a_traceback_the_last_line_is_told(tmp_path: Path, error: str, words: str) -> None:
    run = vllm_run(errors=["", error], ttfts=[0.5, 0.0], itls=[[0.1, 0.1], []], output_lens=[3, 0])
    (imported,) = read_results(written(tmp_path, run))
    assert imported.points[0].invalid == words
