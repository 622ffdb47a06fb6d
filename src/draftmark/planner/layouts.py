"""Which layouts there are for a model on some GPUs: the one taken where the user names none, and those worth trying."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from draftmark.configuration import Configuration, EngineName, Parallel
from draftmark.engines import sglang_flags, vllm_flags
from draftmark.engines.flags import Flag, spelled
from draftmark.engines.offered import options
from draftmark.errors import BadInput
from draftmark.finding import Change
from draftmark.hardware import Machine
from draftmark.model import Gqa, Mla, Model
from draftmark.planner import layout
from draftmark.planner.outcome import Reason

DP_ATTENTION: Final = (
    "GlmMoeDsaForCausalLM", "Glm4MoeForCausalLM", "GptOssForCausalLM", "MiniMaxM2ForCausalLM", "MiMoV2FlashForCausalLM",
    "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM", "Qwen3NextForCausalLM", "Qwen3_5MoeForConditionalGeneration",
)  # fmt: skip
"""Architectures without latent attention, whose layers SGLang 0.5.15.post1 runs through its LayerCommunicator, which
DP attention needs (models/*.py); DeepSeek's latent attention has it everywhere."""
_TABLES: Final[dict[EngineName, tuple[Flag, ...]]] = {
    "embedded": (),
    "sglang": sglang_flags.TABLE,
    "vllm": vllm_flags.TABLE,
}


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """One way to lay a model out, what it costs beside memory, and how much that weighs."""

    name: str
    """Its kind: layouts of one kind do the same in different measure."""
    parallel: Parallel
    cost: str = ""
    weight: float = 0.0


def refusal(model: Model, configuration: Configuration, parallel: Parallel) -> str | None:
    """Why a layout cannot work; None where it can. The number of GPUs is not looked at."""
    wanted = msgspec.structs.replace(configuration, parallel=parallel)
    try:
        layout.check_division(model, wanted)
    except BadInput as error:
        return error.cause
    return None


def laid_out(
    model: Model, configuration: Configuration, machine: Machine, fixed: frozenset[str]
) -> tuple[Configuration, tuple[Reason, ...]]:
    """The configuration over all GPUs that are given, with the reason, where the user left that open.

    Args:
        model: what is laid out; heads, experts and quantization blocks say over how many ranks it divides.
        configuration: as asked.
        machine: the GPUs.
        fixed: fields of `Parallel` that the user set; only the pipeline's stages leave the tensor-parallel ranks open.
    """
    if configuration.engine == "embedded" or fixed - {"pipeline"}:
        return configuration, ()
    stages = configuration.parallel.pipeline
    most = machine.count // stages
    if most < 1:
        return configuration, ()
    best = next((one for one in sizes(model, configuration, most, stages)), None)
    if best is None:
        return configuration, ()
    reasons = [Reason(field="tp", value=str(best.tensor), why=_why(model, configuration, machine, best))]
    if best.expert > 1:
        whole = refusal(model, configuration, msgspec.structs.replace(best, expert=1))
        reasons.append(Reason(field="ep", value=str(best.expert), why=f"whole experts on each rank: {whole}"))
    return msgspec.structs.replace(configuration, parallel=best), tuple(reasons)


def sizes(model: Model, configuration: Configuration, most: int, stages: int) -> Iterator[Parallel]:
    """Tensor-parallel layouts of `stages` stages that can work, widest first; whole experts where slices cannot."""
    for ranks in range(most, 0, -1):
        for expert in (1, ranks) if model.experts is not None and ranks > 1 else (1,):
            parallel = Parallel(tensor=ranks, pipeline=stages, expert=expert)
            if refusal(model, configuration, parallel) is None:
                yield parallel
                break


def _why(model: Model, configuration: Configuration, machine: Machine, best: Parallel) -> str:
    """Why that many tensor-parallel ranks."""
    stages = f" in {best.pipeline} stages" if best.pipeline > 1 else ""
    if best.gpus == machine.count:
        return f"all {machine.count} GPUs given{stages}" if machine.count > 1 else "one GPU given"
    wider = msgspec.structs.replace(best, tensor=machine.count // best.pipeline, expert=1)
    cause = refusal(model, configuration, wider)
    reason = f": {cause}" if cause else ""
    left = f"; of {machine.count} GPUs {machine.count - best.gpus} stay idle"
    return f"the most that divide{stages}{reason}{left}"


def layouts(
    model: Model, configuration: Configuration, machine: Machine, fixed: frozenset[str], concurrency: int
) -> list[Layout]:
    """The configuration's own layout, and others on the same GPUs that may hold more of the target."""
    own = configuration.parallel
    found = [Layout(name="own", parallel=own)]
    if configuration.engine == "embedded":
        return found
    others = (
        *pipelines(model, configuration, machine),
        *attention_groups(model, configuration, machine, concurrency),
        *replicas(model, configuration, machine, concurrency),
    )
    for other in others:
        kept = all(getattr(other.parallel, field) == getattr(own, field) for field in fixed)
        known = any(other.parallel == one.parallel for one in found)
        if kept and not known and refusal(model, configuration, other.parallel) is None:
            found.append(other)
    return found


def pipelines(model: Model, configuration: Configuration, machine: Machine) -> Iterator[Layout]:
    """Fewer ranks in more stages; of layouts with equally many ranks the one with the most stages."""
    seen: dict[int, Parallel] = {}
    for stages in range(min(machine.count, len(model.layers)), 0, -1):
        widest = next(iter(sizes(model, configuration, machine.count // stages, stages)), None)
        if widest is not None:
            seen.setdefault(widest.tensor, widest)
    for parallel in seen.values():
        stages = parallel.pipeline
        if stages == 1:
            yield Layout(name="ranks", parallel=parallel)
            continue
        cost = f"{stages} stages: longer latency, bubbles at low concurrency"
        yield Layout(name="pipeline", parallel=parallel, cost=cost, weight=22.0 + stages / 2)


def whole_caches(model: Model, ranks: int) -> bool:
    """Whether tensor-parallel ranks hold copies of the cache: latents always, heads where they are fewer than ranks."""
    mixers = [one.mixer for one in model.layers]
    return any(isinstance(one, Mla) or (isinstance(one, Gqa) and one.kv_heads < ranks) for one in mixers)


def attention_groups(
    model: Model, configuration: Configuration, machine: Machine, concurrency: int
) -> Iterator[Layout]:
    """SGLang's DP attention: groups of ranks with requests, and so caches, of their own."""
    latent = any(isinstance(one.mixer, Mla) for one in model.layers)
    if configuration.engine != "sglang" or not (latent or model.architecture in DP_ATTENTION):
        return
    if not whole_caches(model, machine.count):
        return
    for groups in divisors(machine.count):
        ranks = machine.count // groups
        parallel = Parallel(tensor=machine.count, data=groups, data_attention=True)
        if refusal(model, configuration, parallel) is not None:
            parallel = msgspec.structs.replace(parallel, expert=machine.count)
        cost = (
            f"DP attention: its weights {groups} times, and each request's attention on {ranks} of {machine.count} GPUs"
        )
        yield Layout(name="DP attention", parallel=parallel, cost=cost, weight=spread_weight(groups, concurrency))


def replicas(model: Model, configuration: Configuration, machine: Machine, concurrency: int) -> Iterator[Layout]:
    """Data parallelism: requests spread over copies of the model; vLLM's copies share one set of experts."""
    if not whole_caches(model, machine.count):
        return
    shared = configuration.engine == "vllm" and model.experts is not None
    for copies in divisors(machine.count):
        ranks = machine.count // copies
        parallel = Parallel(tensor=ranks, data=copies, expert=machine.count if shared else 1)
        what = "copies of all but the experts" if shared else "copies of the model"
        cost = f"{copies} {what}, and each request on {ranks} of {machine.count} GPUs"
        yield Layout(name="replicas", parallel=parallel, cost=cost, weight=spread_weight(copies, concurrency) + 1.0)


def divisors(count: int) -> tuple[int, ...]:
    """Ways to part `count` GPUs into several equal groups, fewest groups first."""
    return tuple(groups for groups in range(2, count + 1) if count % groups == 0)


def spread_weight(groups: int, concurrency: int) -> float:
    """What it weighs to spread requests over groups: little where each has several, much where most stand idle."""
    return 17.0 + 12.0 * (1 - min(1.0, concurrency / groups / 2)) + groups / 16


def as_spelled(configuration: Configuration, change: Change) -> Change:
    """A change with its flag as the configuration's version of the engine spells it."""
    flag = next((one for one in _TABLES[configuration.engine] if change.flag in one.names), None)
    if flag is None:
        return change
    return msgspec.structs.replace(change, flag=spelled(flag, options(configuration.engine, configuration.version)))


def changes(before: Configuration, after: Parallel) -> tuple[Change, ...]:
    """The flags that lead from a configuration's layout to another one."""
    found = []
    for flag in _TABLES[before.engine]:
        head, _, field = flag.field.partition(".")
        if head != "parallel":
            continue
        old: Any = getattr(before.parallel, field)
        new: Any = getattr(after, field)
        if old == new:
            continue
        if flag.kind == "on":
            found.append(Change(flag=flag.names[0], direction="set", value=None if new else "(leave it out)"))
        else:
            found.append(Change(flag=flag.names[0], direction="raise" if new > old else "lower", value=str(new)))
    if before.engine == "vllm" and (before.parallel.expert > 1) != (after.expert > 1):
        value = None if after.expert > 1 else "(leave it out)"
        found.append(Change(flag="--enable-expert-parallel", direction="set", value=value))
    return tuple(found)
