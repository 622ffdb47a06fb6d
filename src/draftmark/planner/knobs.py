"""The flags that the solver may move, one list a knob: what each step sets, what it costs, and how much it weighs.

Cheap knobs trade a little speed or headroom; all of them together weigh less than one dear knob, which changes what is
computed, or where. So the solver turns every cheap one before it touches a dear one.
"""

from typing import Final

from draftmark.configuration import Configuration
from draftmark.finding import Change
from draftmark.hardware import Device
from draftmark.model import Model
from draftmark.planner.combinations import FIXED_PAGES, PAGED_TREES, attention_backend, broken, expandable
from draftmark.planner.layouts import whole_caches
from draftmark.planner.sglang.shares import states, windows
from draftmark.planner.step import Step
from draftmark.planner.target import Target, in_one_pool
from draftmark.units import Tokens

SMALLEST_CHUNK: Final = 2048
ROOM: Final = 1.1
"""More than a target's own tokens, so that pages and a draft's reserve fit under a limit, too."""
ALLOCATOR: Final = "PYTORCH_CUDA_ALLOC_CONF"
_FP8: Final = {"sglang": "fp8_e4m3", "vllm": "fp8"}


def cheap(model: Model, configuration: Configuration, target: Target) -> list[list[Step]]:
    """Knobs that cost little, each with its steps from the mildest to the strongest."""
    if configuration.engine == "embedded":
        return []
    choices = [
        uncapped(configuration, target),
        segments(configuration),
        windows(model, configuration, target),
        states(model, configuration, target),
        shorter_context(model, configuration, target),
        fewer_requests(configuration, target),
        chunks(configuration),
    ]
    return [steps for steps in choices if steps]


def dear(model: Model, configuration: Configuration, device: Device, cached: str | None) -> list[list[Step]]:
    """Knobs that change what is computed or where, each with its steps from the mildest to the strongest.

    `cached` is the cache's dtype as the engine settles on it.
    """
    if configuration.engine == "embedded":
        return []
    choices = [
        mended_segments(configuration, model, device),
        drafts(model, configuration, device),
        decode_context(model, configuration),
        cache_dtype(configuration, cached),
    ]
    return [steps for steps in choices if steps]


def cache_dtype(configuration: Configuration, cached: str | None) -> list[Step]:
    """An fp8 cache: half the bytes."""
    if (cached or "").startswith(("fp8", "fp4", "nvfp4")):
        return []
    value = _FP8[configuration.engine]
    return [
        Step(
            name="cache dtype",
            changes=(Change(flag="--kv-cache-dtype", direction="set", value=value),),
            set=(("kv_dtype", value),),
            cost="accuracy: keys and values in 8 bits, to be checked on your task",
            weight=21.0,
        )
    ]


def decode_context(model: Model, configuration: Configuration) -> list[Step]:
    """Decode context parallelism: ranks that would hold copies of the same cache hold different tokens of it."""
    parallel = configuration.parallel
    if parallel.tensor == 1 or parallel.decode_context > 1 or parallel.data_attention:
        return []
    if not whole_caches(model, parallel.tensor):
        return []
    flag = "--dcp-size" if configuration.engine == "sglang" else "--decode-context-parallel-size"
    return [
        Step(
            name="decode context parallelism",
            changes=(Change(flag=flag, direction="set", value=str(ranks)),),
            set=(("parallel.decode_context", ranks),),
            cost="an exchange between GPUs at every layer of a decode step",
            weight=20.0 + 0.1 * ranks,
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
    """As many running requests as the target asks for, and graphs for no more.

    SGLang divides its limit among the groups of DP attention; every other limit is one pool's own.
    """
    parallel, sglang = configuration.parallel, configuration.engine == "sglang"
    each = max(8, in_one_pool(target, parallel.data))
    most = each * parallel.data if sglang and parallel.data_attention else each
    if configuration.max_running is not None and configuration.max_running <= most:
        return []
    values = (
        (("--max-running-requests", most), ("--cuda-graph-max-bs", each)) if sglang else (("--max-num-seqs", most),)
    )
    graphs = (("graph_batch", each),) if sglang else ()
    return [
        Step(
            name="requests",
            changes=tuple(Change(flag=flag, direction="set", value=str(value)) for flag, value in values),
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


def drafts(model: Model, configuration: Configuration, device: Device) -> list[Step]:
    """A draft that fits its attention backend, a shorter draft, and none."""
    draft = configuration.speculative
    if draft is None:
        return []
    flag = "--speculative-algorithm" if configuration.engine == "sglang" else "--speculative-config"
    dropped = Step(
        name="no draft",
        changes=(Change(flag=flag, direction="set", value="(leave it out)"),),
        set=(("speculative", None),),
        cost="decode without speculation",
        weight=30.0,
    )
    return [*trees(model, configuration, device), *shorter_drafts(configuration), dropped]


def trees(model: Model, configuration: Configuration, device: Device) -> list[Step]:
    """What lets a draft tree stay where its backend's pages do not: pages of one token, or a backend that walks trees.

    A backend with a page of its own has to go; any other one takes pages of one token.
    """
    draft = configuration.speculative
    backend = attention_backend(configuration, model, device)
    if configuration.engine != "sglang" or draft is None or (draft.top_k or 1) == 1 or backend in (None, "dsa"):
        return []
    if backend in PAGED_TREES or (backend not in FIXED_PAGES and (configuration.page or 1) == 1):
        return []
    if backend not in FIXED_PAGES:
        cost = "pages of one token, which a draft tree needs with this attention backend"
        changes = (Change(flag="--page-size", direction="lower", value="1"),)
        return [Step(name="page", changes=changes, set=(("page", Tokens(1)),), cost=cost, weight=1.0)]
    name, value = "--attention-backend", PAGED_TREES[-1]
    cost = f"attention by {value}: {backend} cannot walk a draft tree"
    changes = (Change(flag=name, direction="set", value=value),)
    return [Step(name="backend", changes=changes, set=(("flags", (name, value)),), cost=cost, weight=2.0)]


def shorter_drafts(configuration: Configuration) -> list[Step]:
    """Fewer drafted tokens: smaller graphs, logits and states; less speed where drafts are accepted."""
    draft = configuration.speculative
    if draft is None:
        return []
    if configuration.engine == "vllm":
        if (draft.draft_tokens or 1) == 1:
            return []
        return [_shorter("--speculative-config num_speculative_tokens", {"draft_tokens": 1}, 16.0)]
    found = []
    if (draft.top_k or 1) > 1 and draft.steps is not None:
        found.append(_shorter("", {"top_k": 1, "draft_tokens": draft.steps + 1}, 15.0))
    if (draft.steps or 1) > 1:
        found.append(_shorter("", {"steps": 1, "top_k": 1, "draft_tokens": 2}, 16.0))
    return found


def _shorter(flag: str, values: dict[str, int], weight: float) -> Step:
    names = {
        "steps": "--speculative-num-steps",
        "top_k": "--speculative-eagle-topk",
        "draft_tokens": flag or "--speculative-num-draft-tokens",
    }
    return Step(
        name="shorter draft",
        changes=tuple(
            Change(flag=names[field], direction="lower", value=str(value)) for field, value in values.items()
        ),
        set=tuple((f"speculative.{field}", value) for field, value in values.items()),
        cost=f"{values['draft_tokens']} drafted tokens a step: less speed-up where drafts are accepted",
        weight=weight,
    )


def uncapped(configuration: Configuration, target: Target) -> list[Step]:
    """Without the user's own limit of the pool, where it is less than the target takes."""
    needed = in_one_pool(target, configuration.parallel.data) * target.length
    if configuration.pool_tokens is None or configuration.pool_tokens > needed * ROOM:
        return []
    return [
        Step(
            name="pool limit",
            changes=(Change(flag="--max-total-tokens", direction="set", value="(leave it out)"),),
            set=(("pool_tokens", None),),
            cost="",
            weight=0.1,
        )
    ]


def segments(configuration: Configuration) -> list[Step]:
    """Expandable segments: less memory stranded in the allocator, where all-reduce allows them."""
    if expandable(configuration) or configuration.device != "cuda":
        return []
    value = (ALLOCATOR, "expandable_segments:True")
    return [
        Step(
            name="expandable segments",
            changes=(Change(flag=value[0], direction="set", value=value[1]),),
            set=(("environment", (*configuration.environment, value)),),
            cost="",
            weight=0.2,
        )
    ]


def mended_segments(configuration: Configuration, model: Model, device: Device) -> list[Step]:
    """What lets a command start whose expandable segments its all-reduce does not take: one of the two has to go."""
    clashes = broken(configuration, model, device)
    if not any((rule.one, rule.two) == ("expandable segments", "custom all-reduce") for rule in clashes):
        return []
    flag = "--disable-custom-all-reduce"
    kept = tuple((name, value) for name, value in configuration.environment if "expandable_segments" not in value)
    return [
        Step(
            name="segments",
            changes=(Change(flag=ALLOCATOR, direction="set", value="(leave it out)"),),
            set=(("environment", kept),),
            cost="memory may be stranded in the allocator",
            weight=0.5,
        ),
        Step(
            name="all-reduce",
            changes=(Change(flag=flag, direction="set"),),
            set=(("flags", (flag, None)),),
            cost="all-reduce by NCCL, which is slower for small batches",
            weight=3.0,
        ),
    ]
