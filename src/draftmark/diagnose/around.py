"""Rules for causes around the engine: its command line, its ports, its installation, the model folder and the disk."""

import difflib
import re
from typing import Final

from draftmark.configuration import EngineName
from draftmark.diagnose.case import Case, as_evidence
from draftmark.diagnose.plain import free, told_by
from draftmark.diagnose.signs import Sign, first_stated
from draftmark.engines import offered
from draftmark.engines.versions import parse_version
from draftmark.finding import Change, Confidence, Finding, Remedy


def bad_arguments(case: Case) -> Finding | None:
    """The engine's command line was not understood."""
    signs = case.signs("bad arguments")
    if not signs:
        return None
    sign = signs[0]
    values = sign.values
    if "unknown" in values:
        words = values["unknown"].split()
        names = [word for word in words if word.startswith("-")] or words
        claim = f"the engine does not know {', '.join(names)}"
        remedies = [_other_spelling(case, name) for name in names[:3]]
    elif "required" in values:
        claim = f"the engine must be given {values['required']}"
        remedies = [free(Change(flag=values["required"], direction="set"), "it has no default")]
    else:
        name = _long(values.get("argument") or values.get("ambiguous", ""))
        why = values.get("why") or "it may mean several flags"
        claim = f"the engine cannot use what was given as {name}: {why.partition(' (choose from')[0]}"
        remedies = [_another_value(name, why)]
    return told_by(case, "bad arguments", "bad-arguments", claim, *remedies)


def settings_refused(case: Case) -> Finding | None:
    """The engine's settings do not take a value, or not beside another one; not where a rule knows more of it."""
    of = case.signs("settings refused")
    detail = next((one for one in case.signs("value refused") if of and _line(one) > _line(of[0])), None)
    if detail is None or any(
        _line(sign) == _line(detail) and sign.name != detail.name
        for signs in case.start.signs.values()
        for sign in signs
    ):
        return None
    why = detail.values.get("reason") or f"{detail.values['should']}, not {detail.values['given']}"
    words = {word for word in re.findall(r"\w+", why) if "_" in word}
    named = [name for name in offered.ever("vllm") if name.removeprefix("--").replace("-", "_") in words]
    changes = tuple(Change(flag=name, direction="set") for name in named or ("the flag of that setting",))
    remedy = Remedy(changes=changes, arithmetic=why, cost="nothing")
    return Finding(
        code="bad-arguments",
        severity="fatal",
        confidence="certain",
        claim=f"the engine refuses its settings ({of[0].values['settings']}): {why}",
        evidence=(as_evidence(of[0]), as_evidence(detail)),
        remedies=(remedy,),
    )


def _line(sign: Sign) -> int:
    return sign.source.line or 0


def _another_value(name: str, why: str) -> Remedy:
    """The value that was meant, where argparse lists the choices and one is spelt nearly alike."""
    choice = re.match(r"invalid choice: '?(?P<given>[^']*?)'? \(choose from (?P<choices>.*)\)", why)
    if choice is None:
        return free(Change(flag=name, direction="set"), why)
    known = [one.strip(" '\"") for one in choice["choices"].split(",")]
    near = difflib.get_close_matches(choice["given"], known, n=1)
    return free(Change(flag=name, direction="set", value=near[0] if near else None), f"one of {', '.join(known)}")


def _long(names: str) -> str:
    """`--tp-size/--tp` by its first name."""
    return names.split("/")[0]


def _other_spelling(case: Case, name: str) -> Remedy:
    """The flag that was meant, where one is spelt nearly alike; else it has to go."""
    flag = name.partition("=")[0]
    near = difflib.get_close_matches(flag, _other_flags(case, flag), n=1, cutoff=0.8)
    if near:
        return free(Change(flag=near[0], direction="set"), f"spelt nearly like {flag}")
    why = "this version of the engine does not have it, or it goes before `--`: leave it out"
    return free(Change(flag=flag, direction="cannot help"), why)


def _other_flags(case: Case, flag: str) -> tuple[str, ...]:
    """What may have been meant by a flag that the engine does not know.

    One that newer versions do not have any more has a new name there; one that they have is too new for this engine.
    """
    found: list[str] = []
    for engine in _WITH_FLAGS if case.engine is None else (case.engine,):
        newest = offered.options(engine, None)
        since = newest[flag].since if flag in newest else None
        if since is None:
            found += newest
        else:
            ever = offered.ever(engine).values()
            found += [one.name for one in ever if parse_version(one.since) < parse_version(since)]
    return tuple(found)


_WITH_FLAGS: Final[tuple[EngineName, ...]] = ("sglang", "vllm")
_MEANT: Final = {
    "nccl_port": "--nccl-port",
    "dist_init_port": "--dist-init-addr",
    "port_base": "--dist-init-addr",
    "detokenizer_port": "--dist-init-addr",
    "rpc_port": "--dist-init-addr",
    "metrics_port": "--dist-init-addr",
    "metrics_ipc_port": "--dist-init-addr",
    "scheduler_input_port": "--dist-init-addr",
    "load_collector_port": "--dist-init-addr",
}
"""SGLang's names for its ports: all but NCCL's are counted on from that of --dist-init-addr."""


def port_taken(case: Case) -> Finding | None:
    """Somebody else has a port that the engine needs; which one decides which flag moves it."""
    if case.failure is not None:
        return None
    for name in ("rendezvous port", "engine's port", "HTTP port", "address in use"):
        if signs := case.signs(name):
            return _taken(case, name, next((sign for sign in signs if "port" in sign.values), signs[0]))
    return None


def _taken(case: Case, name: str, sign: Sign) -> Finding | None:
    port = sign.values.get("port")
    number = f" {port}" if port else ""
    if name in {"HTTP port", "address in use"}:
        known = port or case.settings.word("--port")
        change = Change(flag="--port", direction="set", value=f"another one than {known}" if known else None)
        claim = f"the port{f' {known}' if known else ''} at which the server is to answer is taken"
        confidence: Confidence = "certain" if name == "HTTP port" or known else "likely"
        why = "another server, or one that has not ended yet, listens there"
        return told_by(case, name, "address-in-use", claim, free(change, why), confidence=confidence)
    flag = _MEANT.get(sign.values.get("which", "")) or _rendezvous(case, port)
    change = Change(flag=flag, direction="set", value=f"another port than {port}" if port else None)
    what = "the processes of the engine meet" if name == "rendezvous port" else "the processes of the engine talk"
    claim = f"the port{number} by which {what} is taken; it is not the one of the HTTP server"
    why = "another engine, or one that has not ended yet, uses it"
    return told_by(case, name, "address-in-use", claim, free(change, why))


def _rendezvous(case: Case, port: str | None) -> str:
    """What sets a port of a rendezvous: the flag or variable that has this number, else what the engine has for it."""
    flags = ("--nccl-port", "--master-port", "--data-parallel-rpc-port")
    by_flag = [flag for flag in flags if port is not None and case.settings.word(flag) == port]
    if port is not None and (case.settings.word("--dist-init-addr") or "").endswith(f":{port}"):
        by_flag.append("--dist-init-addr")
    variables = ("MASTER_PORT", "VLLM_DP_MASTER_PORT", "VLLM_PORT")
    by_variable = [name for name in variables if port is not None and case.settings.variables.get(name) == port]
    if by_flag or by_variable:
        return (by_flag or by_variable)[0]
    return {"sglang": "--dist-init-addr", "vllm": "--master-port"}.get(case.engine or "", "MASTER_PORT")


def no_such_model(case: Case) -> Finding | None:
    """The model's folder or name is wrong."""
    signs = case.signs("no such model")
    gated = first_stated(signs, "gated")
    if gated is not None:
        token = free(Change(flag="HF_TOKEN", direction="set"), "of an account that was granted access on the hub")
        return told_by(case, "no such model", "no-such-model", f"{gated} is gated: the engine may not read it", token)
    names = ("model", "repo", "folder", "directory", "url", "configless", "weightless")
    named = first_stated(signs, *names)
    model = (named or case.settings.word("--model-path", "--model") or "what was given").strip("'\"")
    if named is None and signs:
        claim = f"the hub cannot be reached, and {model} is not in the cache of this machine"
        why = (
            "a folder that holds the checkpoint; or let the engine's process reach the hub (proxy, DNS, HF_HUB_OFFLINE)"
        )
    elif any("weightless" in sign.values for sign in signs):
        claim = f"{model} holds no weights that the engine can load"
        why = (
            "a folder with *.safetensors beside config.json, downloaded to its end; --load-format says which are sought"
        )
    else:
        claim = f"{model} is neither a folder of a checkpoint nor a model on the hub that can be read"
        why = (
            "a folder with config.json as the engine's process sees it (in a container: mounted), or a name on the hub"
        )
    change = Change(flag="--model-path" if case.engine == "sglang" else "--model", direction="set")
    return told_by(case, "no such model", "no-such-model", claim, free(change, why))


def weights_unreadable(case: Case) -> Finding | None:
    """A file of weights is not there, or is not whole: mostly a download that did not end."""
    signs = case.signs("weights file")
    if not signs:
        return None
    missing = first_stated(signs, "missing")
    claim = f"{missing} is not there" if missing is not None else "a file of weights cannot be read: it is not whole"
    why = "download what is missing or cut short again; a file of some hundred bytes is a pointer of Git LFS"
    return told_by(
        case, "weights file", "weights-unreadable", claim, free(Change(flag="the checkpoint", direction="set"), why)
    )


def dtype_unsupported(case: Case) -> Finding | None:
    """The GPU has no arithmetic of the dtype that the model is to run in (vLLM)."""
    signs = case.signs("dtype")
    if not signs:
        return None
    values = signs[0].values
    claim = f"{values['dtype']} needs a GPU of compute capability {values['least']}, and this one is older"
    change = Change(flag="--dtype", direction="set", value="half")
    why = "16 bits as well, so the memory is the same; its range of numbers is smaller"
    return told_by(case, "dtype", "dtype-unsupported", claim, free(change, why, "accuracy of some models"))


def driver_unfit(case: Case) -> Finding | None:
    """The GPU's driver and what was built against it do not fit."""
    signs = case.signs("driver")
    if not signs:
        return None
    if any("reload" in sign.values for sign in signs):
        claim = "the GPU's driver was updated while its old kernel module is still loaded"
        remedy = free(Change(flag="the GPU's driver", direction="set"), "restart the machine, or reload the module")
    else:
        claim = "the GPU's driver is older than the CUDA that this build of the engine was made for"
        why = "or a build for an older CUDA; `nvidia-smi` shows the newest CUDA that the driver can run"
        remedy = free(Change(flag="the GPU's driver", direction="raise"), why)
    return told_by(case, "driver", "driver-mismatch", claim, remedy)


def launcher_failed(case: Case) -> Finding | None:
    """What was to start the engine did not get so far: docker, ssh, srun, sudo."""
    signs = case.signs("launcher failed")
    if not signs or (case.engine is not None and case.start.observations):
        return None
    said = signs[0].values.get("said") or signs[0].values.get("plain", "")
    remedy = free(Change(flag="--launcher", direction="set"), "run it by hand with `true` in place of the engine")
    return told_by(case, "launcher failed", "launcher-failed", f"the prefix before the engine failed: {said}", remedy)


def not_installed(case: Case) -> Finding | None:
    """The Python that was started has no such engine."""
    signs = case.signs("not installed")
    python = next((one.values["python"] for one in signs if "python" in one.values), None)
    if python is not None and case.start.observations:
        return None  # an engine that has begun looked for another one
    claim = "the engine is not in the Python that was started"
    if python is not None:
        claim = f"there is no {python} where the engine was to start"
    remedy = free(Change(flag="--python", direction="set"), "name the one that has it, or install it there")
    return told_by(case, "not installed", "not-installed", claim, remedy)


def illegal_instruction(case: Case) -> Finding | None:
    """The CPU does not have an instruction that was used."""
    claim = (
        "the build uses instructions that this CPU lacks, or a kernel was called with sizes that it does not support"
    )
    remedy = free(Change(flag="another build of the engine", direction="set"), "one for this CPU")
    return told_by(case, "illegal instruction", "illegal-instruction", claim, remedy)


def wrong_build(case: Case) -> Finding | None:
    """The build has no code for this kind of GPU."""
    remedy = free(Change(flag="another build of the engine", direction="set"), "one for this kind of GPU")
    return told_by(case, "no kernel image", "wrong-build", "the build has no code for this GPU", remedy)


def disk_full(case: Case) -> Finding | None:
    """A file could not be written."""
    if case.signs("shared memory"):
        return None
    remedy = free(Change(flag="disk space", direction="raise"), "caches of models and kernels, and logs, go to disk")
    return told_by(case, "disk full", "disk-full", "a disk is full", remedy)
