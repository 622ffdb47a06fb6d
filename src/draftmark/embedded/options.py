"""The engine's command line."""

import argparse
from pathlib import Path

from draftmark import units


class Options(argparse.Namespace):
    """How one engine is started; see `docs/embedded.md`. Bytes and tokens; None is the default told there."""

    model: Path
    served_model_name: str | None
    device: str | None
    dtype: str
    mem_fraction: float | None
    pool_tokens: int | None
    memory: int | None
    chunk: int
    max_running: int
    context: int | None
    host: str
    port: int


def _count(text: str) -> int:
    try:
        number = units.parse_tokens(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def _fraction(text: str) -> float:
    number = float(text)
    if not 0 < number <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return number


def parse(arguments: list[str] | None = None) -> Options:
    """Options from the command line; argparse ends the process with code 2 where they are wrong."""
    flags = argparse.ArgumentParser(
        "python -m draftmark.embedded",
        description="Serve a causal language model over transformers.",
        allow_abbrev=False,
    )
    flags.add_argument("--model", type=Path, required=True, metavar="DIR", help="folder of a Hugging Face checkpoint")
    flags.add_argument("--served-model-name", metavar="NAME", help="name in the API (default: DIR as given)")
    flags.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where torch finds it")
    flags.add_argument("--dtype", choices=("auto", "float32", "bfloat16", "float16"), default="auto")
    size = flags.add_mutually_exclusive_group()
    size.add_argument("--mem-fraction", type=_fraction, metavar="F", help="share of free memory for weights and pool")
    size.add_argument("--pool-tokens", type=_count, metavar="N", help="size of the pool, instead of a fraction")
    flags.add_argument("--memory", type=_count, metavar="BYTES", help="use at most this much memory, such as 2Gi")
    flags.add_argument("--chunk", type=_count, default=512, metavar="N", help="most tokens in one prefill step (512)")
    flags.add_argument("--max-running", type=_count, default=8, metavar="N", help="requests served at once (8)")
    flags.add_argument("--context", type=_count, metavar="N", help="most tokens of a request (default: the model's)")
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--port", type=int, default=8000, help="0 takes a free one (default: 8000)")
    return flags.parse_args(arguments, Options())
