"""From a budget in bytes to the pools that SGLang makes of it."""

import msgspec

from draftmark.configuration import Configuration
from draftmark.planner.flags import has_flag
from draftmark.planner.sglang.cells import Cells, States
from draftmark.planner.sglang.rules import Rules
from draftmark.units import GIB

UNBOUNDED = 2**40
"""Tokens of a pipeline stage whose layers cache none: another stage's pool is the limit (0.5.23,
pool_configurator.py, _zero_kv_max_tokens)."""


class Pools(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank allocates. Bytes on that rank, padding pages included."""

    tokens: int
    """max_total_num_tokens as printed; 0 or less where nothing is left."""
    bytes: int
    draft_bytes: int = 0
    windowed_tokens: int | None = None
    state_slots: int | None = None
    state_bytes: int = 0


def divide(budget: float, found: Cells, states: States | None, configuration: Configuration, rules: Rules) -> Pools:
    """Pools for `budget` bytes: states first where there are any, then keys and values."""
    slots: int | None = None
    state_bytes = 0
    if states is not None:
        slots, state_bytes = state_pool(budget, states, configuration, rules)
        budget -= state_bytes
    page = configuration.page or 1
    narrow: int | None = None
    if not found.counted:
        tokens = UNBOUNDED
    elif found.ratio is not None:
        tokens, narrow = split_windows(budget, found, configuration)
    else:
        tokens = int(budget // found.counted) if budget > 0 else 0
    if configuration.pool_tokens is not None:
        tokens = min(tokens, configuration.pool_tokens)
    tokens = tokens // page * page
    own = found.stored - found.draft
    rows = tokens + page
    held = float(rows * own)
    if found.ratio is not None and narrow is not None:
        held = rows * (found.full - found.draft) + (narrow + page) * found.windowed
    return Pools(
        tokens=tokens,
        bytes=int(held),
        draft_bytes=int(rows * found.draft),
        windowed_tokens=narrow,
        state_slots=slots,
        state_bytes=state_bytes,
    )


def split_windows(budget: float, found: Cells, configuration: Configuration) -> tuple[int, int]:
    """Tokens of the full and of the windowed pool."""
    page = configuration.page or 1
    if budget <= 0:
        return 0, 0
    tokens = int(budget // found.counted) // page * page
    if not found.full:
        return tokens, tokens
    return tokens, int(tokens * (found.ratio or 0)) // page * page


def state_pool(budget: float, states: States, configuration: Configuration, rules: Rules) -> tuple[int, int]:
    """Slots for recurrent states, and the bytes they take, intermediate states of speculation included."""
    draft = configuration.speculative
    extra = (draft.draft_tokens or 0) if draft is not None else 0
    running = configuration.max_running or 0
    groups = configuration.parallel.data if configuration.parallel.data_attention else 1
    running //= groups
    per_request = requests_ratio(states, configuration)
    if states.asked is not None:
        slots = states.asked // groups  # As the limit of requests (0.5.15.post1, model_runner_kv_cache_mixin.py).
    elif has_flag(configuration, "--disable-radix-cache") and configuration.max_running is not None:
        slots = running
    else:
        share = budget * states.ratio / (1 + states.ratio)
        spare = states.slot if rules.state_slot_reserved else 0
        if extra:
            slots = int((share - spare - spare * extra) // (states.slot * (1 + extra / per_request)))
        else:
            slots = int((share - spare) // states.slot)
    slots = max(0, slots)
    held = slots + (1 if rules.state_slot_reserved else 0)
    capped = min(running, slots // per_request) if extra else 0
    if extra and rules.state_slot_reserved:
        capped += 1
    return slots, held * states.slot + capped * extra * states.slot


def requests_ratio(states: States, configuration: Configuration) -> int:
    """State slots that one running request needs, those that the prefix cache keeps included."""
    if states.per_request == 1:
        return 1
    strategy = ("--mamba-scheduler-strategy", "--mamba-radix-cache-strategy")
    buffered = any(has_flag(configuration, flag, "extra_buffer") for flag in strategy)
    if not buffered:
        return states.per_request
    return states.per_request + (1 if has_flag(configuration, "--disable-overlap-schedule") else 2)


def running_requests(pools: Pools, states: States | None, configuration: Configuration, context: int) -> int:
    """Most running requests: what was asked for or an estimate from the pool, at most half its tokens."""
    tokens = pools.tokens
    estimate = max(min(int(tokens / context * 512), 4096), 2048)
    asked = configuration.max_running
    if asked is not None:
        estimate = asked // (configuration.parallel.data if configuration.parallel.data_attention else 1)
    most = min(estimate, tokens // 2)
    if states is not None and pools.state_slots is not None:
        most = min(most, pools.state_slots // requests_ratio(states, configuration))
    return max(0, most)


def request_table(requests: int, context: int, configuration: Configuration) -> int:
    """req_to_token: (requests + 1) x (context + headroom) x 4 bytes, allocated outside the budget."""
    draft = configuration.speculative
    headroom = 4 + ((draft.draft_tokens or 0) if draft is not None else 0)
    return (requests + 1) * (context + headroom) * 4


def multimodal_reserve(rules: Rules, *, vision: bool) -> float:
    """Bytes of the budget kept for multimodal caches."""
    return 100 / 1024 * GIB if rules.multimodal_reserve and vision else 0.0
