"""Words of launch commands, sorted as the engines' argparse sorts them."""

import pytest

from draftmark.configuration import Configuration, EngineName
from draftmark.engines import sglang_flags, vllm_flags
from draftmark.engines.adapter import Pasted
from draftmark.errors import BadInput


def parsed(engine: EngineName, text: str, version: str | None = None) -> Pasted:
    if engine == "sglang":
        return sglang_flags.parse_flags(("--model-path", "m", *text.split()), (), version)
    return vllm_flags.parse_flags(("m", *text.split()), (), version)


def configured(engine: EngineName, text: str) -> Configuration:
    return parsed(engine, text).configuration


@pytest.mark.parametrize(
    ("engine", "spellings"),
    [
        ("sglang", ("--tp 2", "--tp-size 2", "--tp=2", "--tensor-parallel-size 2", "--tensor-par 2", "--tp-s=2")),
        ("vllm", ("-tp 2", "--tensor-parallel-size 2", "--tensor_parallel_size 2", "--tensor-par=2", "-tp=2")),
        ("sglang", ("--mem-fraction-static 0.8", "--mem-frac 0.8", "--mem=0.8")),
        ("vllm", ("--max-model-len 8000", "--max-model-len 8k", "--max_model_len=8k", "--max-model 8000")),
        ("vllm", ("--max-model-len 8192", "--max-model-len 8K")),
        ("sglang", ("--context-length 8192", "--context-length 8Ki", "--context-len 8Ki")),
        (
            "vllm",
            (
                '--speculative-config {"method":"ngram","num_speculative_tokens":3}',
                "--speculative-config.method ngram --speculative-config.num_speculative_tokens 3",
                "-sc.method=ngram -sc.num_speculative_tokens=3",
            ),
        ),
        ("vllm", ("--enforce-eager", "-O0", "-O=0", "-O 0", "--optimization-level 0", "-cc.cudagraph_mode=NONE")),
        ("sglang", ("--dp-size 2 --enable-dp-attention --tp 2", "--attn-dp-size 2 --tp 2")),
    ],
)
def test_spellings_of_the_same(engine: EngineName, spellings: tuple[str, ...]) -> None:
    found = [configured(engine, text) for text in spellings]
    assert all(one == found[0] for one in found)
    assert found[0] != configured(engine, "")


def test_the_model_may_stand_anywhere() -> None:
    for text in ("m -tp 2", "-tp 2 m", "--enforce-eager m", "--model m", "--model=m -tp 2"):
        assert vllm_flags.parse_flags(tuple(text.split())).configuration.model == "m", text


@pytest.mark.parametrize(
    ("engine", "text", "version", "message"),
    [
        ("vllm", "--max-num 8", None, "ambiguous option: --max-num could match"),
        ("sglang", "--tp_size 2", None, "no such flag; did you mean --tp-size"),
        ("sglang", "--mem-fraction-statc 0.9", None, "did you mean --mem-fraction-static"),
        ("sglang", "--made-up 3", "0.5.23", "sglang 0.5.23 has no such flag; leave it out"),
        ("vllm", "-dcp 2", "0.9.2", "vllm 0.9.2 has no such flag; it had -dcp from 0.10.2"),
        ("sglang", "--cuda-graph-max-bs 8", "0.5.23", "from 0.4.6 to before 0.5.20"),
        ("sglang", "--context-length 8K", None, "'8K' is not a whole number"),
        ("sglang", "--context-length 8.5Ki", None, "'8.5Ki' is not a whole number"),
        ("vllm", "--max-model-len", None, "expected one argument"),
        ("vllm", "another/model", None, "another/model: belongs to no flag"),
        ("sglang", "stray", None, "stray: belongs to no flag"),
        ("vllm", "--config x.yaml", None, "the settings in x.yaml are not read; put them into the command"),
        ("sglang", "--config=x.yaml", None, "the settings in x.yaml are not read"),
        ("sglang", "--device cpu", None, "'cpu' is no GPU"),
        ("vllm", "--device tpu", "0.9.2", "'tpu' is no GPU"),
        ("vllm", "--quantization int3", None, "unknown value 'int3'; known: "),
        ("vllm", "--quantization mxfp4", "0.9.2", "unknown value 'mxfp4'; known: "),
        ("sglang", "--kv-cache-dtype fp8", None, "unknown value 'fp8'; did you mean 'fp8_e"),
        ("vllm", '--speculative-config {"method":"eagle9"}', None, "unknown method 'eagle9'; known: "),
        ("vllm", '--speculative-config {"method":"eagle3"}', "0.8.5", "unknown method 'eagle3'; known: "),
        ("vllm", "--speculative-config [1]", None, "not a JSON object"),
    ],
)
def test_what_the_engine_refuses_is_refused(engine: EngineName, text: str, version: str | None, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        parsed(engine, text, version)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "text", "said"),
    [
        ("sglang", "--tp 2 --tensor-parallel-size 4", "--tp-size is given 2 times (2, 4): sglang takes the last"),
        ("vllm", "--max-num-seqs 8 --max-num-seqs=9", "--max-num-seqs is given 2 times (8, 9): vllm takes the last"),
        ("sglang", "--speculative-num-steps 3", "without --speculative-algorithm SGLang speculates not at all"),
    ],
)
def test_what_its_writer_may_not_expect_is_said(engine: EngineName, text: str, said: str) -> None:
    assert any(said in note for note in parsed(engine, text).notes)
    assert parsed(engine, "--tp-size 2 --tp 2" if engine == "sglang" else "-tp 2 -tp 2").notes == ()


@pytest.mark.parametrize(
    ("engine", "text", "named"),
    [
        ("sglang", "--enable-lora", "--enable-lora"),
        ("vllm", "--compilation-config.mode 3", '--compilation-config {"mode": 3}'),
        ("vllm", "--hf-overrides {}", "--hf-overrides {}"),
        ("vllm", "--unheard-of 1", "--unheard-of 1"),
        ("sglang", "--cuda-graph-max-bs 8", "--cuda-graph-max-bs 8 (not a flag of sglang 0.5.23"),
    ],
)
def test_what_is_in_no_formula_is_named(engine: EngineName, text: str, named: str) -> None:
    assert any(one.startswith(named) for one in parsed(engine, text).not_understood)


def test_variables_of_an_engine_are_named() -> None:
    environment = (("VLLM_USE_V1", "0"), ("VLLM_LOGGING_LEVEL", "DEBUG"), ("SGLANG_X", "1"), ("HOME", "/"))
    assert vllm_flags.parse_flags(("m",), environment).not_understood == ("VLLM_USE_V1=0",)
    assert sglang_flags.parse_flags((), environment).not_understood == ("SGLANG_X=1",)


@pytest.mark.parametrize("parse", [sglang_flags.parse_flags, vllm_flags.parse_flags])
def test_a_log_may_hold_flags_of_any_version(parse: object) -> None:
    assert callable(parse)
    found = parse(("--device", "cuda", "--made-up", "3"), any_version=True)
    assert "--made-up 3" in found.not_understood
