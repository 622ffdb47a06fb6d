"""Flags as they were read in vLLM's wheels, against the parser that a real vLLM builds of them."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from draftmark.engines.offered import options
from draftmark.engines.words import flexible

VENV = Path(os.environ.get("DRAFTMARK_VLLM", Path(__file__).parents[2] / ".venv-vllm"))
pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not list(VENV.glob("complete-*")), reason=f"no real vLLM in {VENV}"),
]
ASK = """
import argparse, json, sys
sys.argv = ["vllm", "serve"]
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

WORDS = {None: "one", "?": "maybe", "*": "many", "+": "many", 0: "none"}
found = {}
for action in make_arg_parser(FlexibleArgumentParser())._actions:
    switch = isinstance(action, argparse.BooleanOptionalAction)
    for name in action.option_strings:
        negated = switch and name.startswith("--no-")
        found[name] = "none" if negated else "switch" if switch else WORDS[action.nargs]
print(json.dumps(found))
"""


def test_every_flag_takes_what_the_real_parser_says() -> None:
    command = [str(VENV / "bin" / "python"), "-c", ASK]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    real = json.loads(done.stdout.splitlines()[-1])
    read = {name: option.takes for name, option in options("vllm", "0.32.0").items()}
    assert set(real) - set(read) == {"-h", "--help"}
    assert set(read) <= set(real)
    differing = {name for name, takes in read.items() if real[name] != takes}
    assert differing <= {"--custom-histogram-buckets"}, "a list that vLLM parses from one word"


def test_dotted_arguments_become_json() -> None:
    known = options("vllm", "0.32.0")
    words = ("--compilation-config.mode", "3", "-cc.cudagraph_mode=NONE", "--max_model_len=8k", "-O2", "m")
    assert flexible(words, known) == (
        "--max-model-len=8k", "--optimization-level", "2", "m", "--compilation-config", '{"mode": 3}',
        "-cc", '{"cudagraph_mode": "NONE"}',
    )  # fmt: skip
