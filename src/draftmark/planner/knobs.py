"""The flags that the solver may move, one list a knob: what each step sets, what it costs, and how much it weighs."""

from typing import Any, Final

import msgspec

from draftmark.configuration import Configuration
from draftmark.finding import Change
from draftmark.model import Mla, Model
from draftmark.planner.combinations import expandable
from draftmark.planner.target import Target
from draftmark.units import Tokens

SMALLEST_CHUNK: Final = 2048
_FP8: Final = {"sglang": "fp8_e4m3", "vllm": "fp8"}


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One move of one knob. `set` are fields of the configuration, nested ones with a dot."""

    name: str
    changes: tuple[Change, ...]
    set: tuple[tuple[str, Any], ...]
    cost: str
    weight: float

    def fields(self, configuration: Configuration) -> dict[str, Any]:
        """The top-level fields to replace."""
        found: dict[str, Any] = {}
        for path, value in self.set:
            head, _, tail = path.partition(".")
            if tail:
                inner = found.get(head, getattr(configuration, head))
                found[head] = msgspec.structs.replace(inner, **{tail: value})
            elif head == "environment":
                found[head] = (*configuration.environment, value)
            elif head == "flags":
                found[head] = (*configuration.flags, value)
            else:
                found[head] = value
        return found


def knobs(model: Model, configuration: Configuration, target: Target) -> list[list[Step]]:
    """Every knob that this engine and model have, with the steps that make sense."""
    if configuration.engine == "embedded":
        return []
    choices = [
        cache_dtype(configuration),
        decode_context(model, configuration),
        chunks(configuration),
        fewer_requests(configuration, target),
        shorter_context(model, configuration, target),
        drafts(configuration),
        segments(configuration),
        pipelines(configuration),
    ]
    return [steps for steps in choices if steps]


def cache_dtype(configuration: Configuration) -> list[Step]:
    """An fp8 cache: half the bytes."""
    if (configuration.kv_dtype or "").startswith(("fp8", "fp4", "nvfp4")):
        return []
    value = _FP8[configuration.engine]
    return [
        Step(
            name="cache dtype",
            changes=(Change(flag="--kv-cache-dtype", direction="set", value=value),),
            set=(("kv_dtype", value),),
            cost="accuracy: keys and values in 8 bits, to be checked on your task",
            weight=3.0,
        )
    ]


def decode_context(model: Model, configuration: Configuration) -> list[Step]:
    """Decode context parallelism: ranks hold different tokens of the same latent."""
    latent = any(isinstance(layer.mixer, Mla) for layer in model.layers)
    parallel = configuration.parallel
    if not latent or parallel.tensor == 1 or parallel.decode_context > 1 or parallel.data_attention:
        return []
    flag = "--dcp-size" if configuration.engine == "sglang" else "--decode-context-parallel-size"
    return [
        Step(
            name="decode context parallelism",
            changes=(Change(flag=flag, direction="set", value=str(ranks)),),
            set=(("parallel.decode_context", ranks),),
            cost="an exchange between GPUs at every layer of a decode step",
            weight=2.5 + 0.1 * ranks,
        )
        for ranks in (2, 4, 8)
        if parallel.tensor % ranks == 0
    ]


def chunks(configuration: Configuration) -> list[Step]:
    """Smaller prefill steps: fewer activations, longer prefill."""
    base = configuration.chunk or 8192
    flag = "--chunked-prefill-size" if configuration.engine == "sglang" else "--max-num-batched-tokens"
    sizes = [size for size in (base // 2, base // 4) if size >= SMALLEST_CHUNK]
    return [
        Step(
            name="chunk",
            changes=(Change(flag=flag, direction="lower", value=str(size)),),
            set=(("chunk", Tokens(size)),),
            cost=f"prefill in steps of {size:,} tokens, which takes longer",
            weight=1.5 * base / size / 2,
        )
        for size in sizes
    ]


def fewer_requests(configuration: Configuration, target: Target) -> list[Step]:
    """As many running requests as the target asks for, and graphs for no more."""
    most = max(8, target.concurrency)
    if configuration.max_running is not None and configuration.max_running <= most:
        return []
    sglang = configuration.engine == "sglang"
    flags = ("--max-running-requests", "--cuda-graph-max-bs") if sglang else ("--max-num-seqs",)
    graphs = (("graph_batch", most),) if sglang else ()
    return [
        Step(
            name="requests",
            changes=tuple(Change(flag=flag, direction="lower", value=str(most)) for flag in flags),
            set=(("max_running", most), *graphs),
            cost=f"at most {most} requests at once{', graphs for no more' if sglang else ''}",
            weight=0.8,
        )
    ]


def shorter_context(model: Model, configuration: Configuration, target: Target) -> list[Step]:
    """A context limit no longer than the target: smaller request tables, and vLLM need not hold more at start."""
    limit = -(-target.length // 1024) * 1024
    if configuration.context is not None or limit >= model.context:
        return []
    flag = "--context-length" if configuration.engine == "sglang" else "--max-model-len"
    return [
        Step(
            name="context",
            changes=(Change(flag=flag, direction="lower", value=str(limit)),),
            set=(("context", Tokens(limit)),),
            cost=f"no request beyond {limit:,} tokens",
            weight=0.3,
        )
    ]


def drafts(configuration: Configuration) -> list[Step]:
    """Without a draft: its weights and its cache go to the pool."""
    if configuration.speculative is None:
        return []
    flag = "--speculative-algorithm" if configuration.engine == "sglang" else "--speculative-config"
    return [
        Step(
            name="no draft",
            changes=(Change(flag=flag, direction="set", value="(leave it out)"),),
            set=(("speculative", None),),
            cost="decode without speculation",
            weight=6.0,
        )
    ]


def segments(configuration: Configuration) -> list[Step]:
    """Expandable segments: less memory stranded in the allocator, where all-reduce allows them."""
    if expandable(configuration) or configuration.device != "cuda":
        return []
    value = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    return [
        Step(
            name="expandable segments",
            changes=(Change(flag=value[0], direction="set", value=value[1]),),
            set=(("environment", value),),
            cost="",
            weight=0.2,
        )
    ]


def pipelines(configuration: Configuration) -> list[Step]:
    """Two pipeline stages instead of half the tensor-parallel ranks."""
    parallel = configuration.parallel
    if parallel.tensor < 4 or parallel.pipeline > 1 or parallel.data_attention or parallel.decode_context > 1:
        return []
    tensor = parallel.tensor // 2
    changes = (
        Change(flag="--tensor-parallel-size", direction="lower", value=str(tensor)),
        Change(flag="--pipeline-parallel-size", direction="set", value="2"),
    )
    return [
        Step(
            name="pipeline",
            changes=changes,
            set=(("parallel.tensor", tensor), ("parallel.pipeline", 2)),
            cost="two stages: longer latency, bubbles at low concurrency",
            weight=4.0,
        )
    ]
