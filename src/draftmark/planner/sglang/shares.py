"""SGLang's shares of the budget that the solver may move: windows beside full attention, states beside its cache."""

from draftmark.configuration import Configuration
from draftmark.finding import Change
from draftmark.model import Gqa, Model, Recurrent
from draftmark.planner.flags import has_flag, number_flag
from draftmark.planner.sglang.cells import WINDOW_RATIO
from draftmark.planner.sglang.rules import rules_for
from draftmark.planner.step import Step
from draftmark.planner.target import Target, in_one_pool

_RATIOS = (0.4, 0.2, 0.1)
_RATIO_FLAG = "--swa-full-tokens-ratio"
_STATES_FLAG = "--max-mamba-cache-size"
LARGEST_CHUNK = 16_384
"""Tokens of the largest chunk that the engine chooses by itself."""


def windows(model: Model, configuration: Configuration, target: Target) -> list[Step]:
    """A smaller pool for windowed layers: they need a window a request, not 0.8 of every request's length.

    Two chunks in flight and a window of each request have to fit beside the full pool's tokens.
    """
    widths = [layer.mixer.window for layer in model.layers if isinstance(layer.mixer, Gqa) and layer.mixer.window]
    full = any(isinstance(layer.mixer, Gqa) and layer.mixer.window is None for layer in model.layers)
    split = configuration.engine == "sglang" and rules_for(configuration.version).splits_windows(model.architecture)
    if not split or not widths or not full:
        return []
    requests = in_one_pool(target, configuration.parallel.data)
    held = requests * max(widths) + 2 * (configuration.chunk or LARGEST_CHUNK)
    least = held / (requests * target.length)
    asked = number_flag(configuration, _RATIO_FLAG) or WINDOW_RATIO
    return [
        Step(
            name="windows",
            changes=(Change(flag=_RATIO_FLAG, direction="lower", value=str(ratio)),),
            set=(("flags", (_RATIO_FLAG, str(ratio))),),
            cost="windows of fewer cached prefixes are kept",
            weight=0.6,
        )
        for ratio in _RATIOS
        if least <= ratio < asked
    ]


def states(model: Model, configuration: Configuration, target: Target) -> list[Step]:
    """As many recurrent states as the target's requests take; by default they get 0.9 / 1.9 of the budget.

    SGLang divides them among the groups of DP attention. A running request takes three of them beside the prefix
    cache, up to five where it keeps extra buffers.
    """
    recurrent = any(isinstance(layer.mixer, Recurrent) for layer in model.layers)
    if not recurrent or configuration.engine != "sglang" or has_flag(configuration, _STATES_FLAG):
        return []
    each = 1 if has_flag(configuration, "--disable-radix-cache") else 5
    parallel = configuration.parallel
    requests = max(8, in_one_pool(target, parallel.data)) * (parallel.data if parallel.data_attention else 1)
    slots = each * requests
    return [
        Step(
            name="states",
            changes=(Change(flag=_STATES_FLAG, direction="set", value=str(slots)),),
            set=(("flags", (_STATES_FLAG, str(slots))),),
            cost=f"recurrent states for {requests} requests at once, and fewer cached prefixes",
            weight=0.7,
        )
    ]
