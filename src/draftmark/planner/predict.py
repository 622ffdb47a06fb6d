"""`plan`: one configuration in, one prediction out; each engine has its own arithmetic."""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from draftmark.configuration import Configuration
from draftmark.engines.offered import read_versions
from draftmark.engines.versions import ahead, parse_version
from draftmark.errors import BadInput
from draftmark.hardware import Machine
from draftmark.model import Model
from draftmark.planner import embedded
from draftmark.planner.asked import check
from draftmark.planner.capable import check_device, check_method
from draftmark.planner.combinations import broken
from draftmark.planner.flags import has_flag
from draftmark.planner.learn import Past, learn
from draftmark.planner.outcome import Plan
from draftmark.planner.sglang import predict as sglang
from draftmark.planner.speculation import check_speculation, foreign
from draftmark.planner.target import Target, check_target
from draftmark.planner.visible import check_visible
from draftmark.planner.vllm import predict as vllm
from draftmark.units import Bytes

HOST: Final = 8
"""GPUs that one host has at most, but for racks joined by NVLink."""
_QUANTIZED_NAME: Final = re.compile(r"(?i)(?<![a-z0-9])(nvfp4|mxfp4|fp8|int4|int8|w4a16|w8a8|awq|gptq)(?![a-z0-9])")


def plan(
    model: Model,
    configuration: Configuration,
    machine: Machine,
    *,
    free: Bytes | None = None,
    draft: Model | None = None,
    target: Target | None = None,
    history: Sequence[Past] = (),
) -> Plan:
    """Predict what an engine will make of `configuration` on `machine`.

    `free` is the memory that can be taken now, where it was measured; on a GPU that nobody uses it follows from the
    catalogue. `draft` is the draft model where speculation uses one of its own.
    With a `target` the plan says whether it fits. Past
    starts in `history` correct it.

    Raises:
        BadInput: the configuration cannot work, or the engine cannot serve the model.
    """
    configuration = check(configuration)
    check_context(model, configuration)
    check_speculation(model, configuration, draft)
    check_visible(configuration, machine.count)
    check_method(model, configuration)
    weaker = check_device(model, configuration, machine.device)
    if target is not None:
        check_target(target, model, configuration)
    if configuration.engine == "embedded":
        return embedded.predict(model, configuration, machine, free=free, target=target)
    learned = learn(history, configuration, machine.device.name, model)
    if configuration.engine == "sglang":
        found = sglang.predict(model, configuration, machine, free=free, draft=draft, target=target, learned=learned)
    else:
        found = vllm.predict(model, configuration, machine, free=free, draft=draft, target=target, learned=learned)
    said = (*unread(found.configuration), *weaker, *idle(found.configuration, machine), *hosts(found.configuration))
    notes = (*said, *misnamed(model, configuration), *foreign(model, draft), *found.notes)
    clashes = (*conflicts(found.configuration, model, machine), *found.conflicts)
    return msgspec.structs.replace(found, conflicts=clashes, notes=notes)


def idle(configuration: Configuration, machine: Machine) -> tuple[str, ...]:
    """What a layout leaves unused."""
    used = configuration.parallel.gpus
    return () if used >= machine.count else (f"this layout uses {used} of the {machine.count} GPUs",)


def hosts(configuration: Configuration) -> tuple[str, ...]:
    """Says so where more GPUs are planned than one host has, and the command names no hosts."""
    count = configuration.parallel.gpus
    if count <= HOST or has_flag(configuration, "--nnodes"):
        return ()
    spread = "over several hosts each is started with --nnodes and --node-rank of its own"
    return (f"{count} GPUs are planned as if one host had them; {spread}, and NCCL may take more than was measured",)


def misnamed(model: Model, configuration: Configuration) -> tuple[str, ...]:
    """Says so where a model's name tells of a quantization that its config does not.

    ModelOpt's older checkpoints say it in hf_quant_config.json alone, which is not there beside a lone config.json.
    """
    found = _QUANTIZED_NAME.search(model.name)
    if found is None or model.quantization is not None or configuration.quantization is not None:
        return ()
    said = f"the name says {found[0]} and the config names no quantization: the weights are planned in {model.dtype}"
    return (f"{said}; put the checkpoint's hf_quant_config.json beside the config.json if there is one",)


def conflicts(configuration: Configuration, model: Model, machine: Machine) -> tuple[str, ...]:
    """What the engine cannot combine and this configuration does."""
    return tuple(
        f"{rule.one} and {rule.two} cannot be combined ({rule.source})"
        for rule in broken(configuration, model, machine.device)
    )


def unread(configuration: Configuration) -> tuple[str, ...]:
    """Says so where a version is newer than those that were read, or a build without a number."""
    asked, newest = configuration.version, read_versions(configuration.engine)[-1:]
    if asked is None or not newest or not ahead(parse_version(asked), parse_version(newest[0])):
        return ()
    said = f"{configuration.engine} {asked} was not read: this is the arithmetic of {newest[0]}, with a wider interval"
    return (f"{said}; compare it with the first start's log",)


def check_context(model: Model, configuration: Configuration) -> None:
    """A context beyond the model's own is refused: positions there were never trained.

    Raises:
        BadInput: it is.
    """
    if configuration.context is not None and configuration.context > model.context:
        raise BadInput(
            f"a context of {configuration.context} tokens is beyond the model's own {model.context}",
            place=model.name,
            remedy=f"ask for at most {model.context}, or change the checkpoint's rope_scaling",
        )
