from pathlib import Path

import pytest

from draftmark.errors import BadInput
from draftmark.physics.figures import figures
from draftmark.sample import Point
from draftmark.sweep.imports import read_results

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
