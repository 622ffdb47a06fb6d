"""Lines about requests: what users wrote is no sign of trouble, and what was answered shows that a server lives."""

import re
from typing import Final

_TEXTS: Final = ("rompt", "equest", "Input", "input", "text=", "essages", "Finish: obj=")
_REQUEST: Final = re.compile(
    r"\bprompt: [uf]?['\"\[]|\bReceived request\b|\b\w*ReqInput\(|\bFinish: obj="
    r"|\binput: [uf]?['\"\[{]|^\s*(?:\[[^\]]*\] ?|INFO [^\]]*\] ?)?input: "
    r"|\btext=['\"]|\bprompt_token_ids[:=]|['\"](?:prompt|messages|input)['\"]: "
)
_ANSWERED: Final = re.compile(r"\"POST [^\"]*\" 200\b")
_RUNNING: Final = re.compile(r"#running-req: (\d+)|\bRunning: (\d+) reqs")
_STEPS: Final = ("Prefill batch", "Decode batch", "generation throughput")


def without_request(line: str) -> str:
    """A line up to where it quotes a request."""
    if not any(text in line for text in _TEXTS) or (quoted := _REQUEST.search(line)) is None:
        return line
    return line[: quoted.start()]


def answered(line: str) -> bool:
    """Whether the server's access log says that a request succeeded."""
    return "POST" in line and _ANSWERED.search(line) is not None


def stepped(line: str) -> bool:
    """Whether the engine reports a step, or the throughput of its last ones."""
    return any(text in line for text in _STEPS)


def running(line: str) -> int | None:
    """How many requests run, where a line on a step or on throughput tells."""
    found = _RUNNING.search(line)
    return int(found[1] or found[2]) if found is not None else None
