"""The newest version of each engine whose rules were read: what is planned for where none is named."""

from draftmark.configuration import EngineName
from draftmark.planner.sglang.rules import NEWEST as SGLANG
from draftmark.planner.vllm.rules import NEWEST as VLLM


def newest(engine: EngineName) -> str:
    """The version to take where a configuration names none; the embedded engine has no versions of its own."""
    return {"sglang": SGLANG, "vllm": VLLM, "embedded": "0"}[engine]
