"""Weights of a draft: those of a model of its own or of layers in the target, and what one rank holds of them."""

from typing import Protocol

import msgspec

from draftmark.configuration import Configuration
from draftmark.model import Model, WeightGroup
from draftmark.physics.memory import kv_heads_of, weight_bytes
from draftmark.planner.speculation import drafts
from draftmark.planner.terms import Term
from draftmark.units import Bytes


class WeightsTerm(Protocol):
    """An engine's term for weights on one rank."""

    def __call__(self, size: Bytes, *, exact: bool) -> Term:
        """The term of `size` bytes; `exact` where tensor headers tell them."""


def draft_weights(model: Model, full: Configuration, draft: Model | None, weights: WeightsTerm) -> Term | None:
    """Weights of the draft on one rank, None where nothing drafts; drafts share the target's ranks."""
    if not drafts(full):
        return None
    groups = draft.weights if draft is not None else draft_groups(model)
    size = weight_bytes(groups, full.parallel.tensor, kv_heads_of(draft or model))
    exact = draft.exact_weights if draft is not None else any(group.role == "draft" for group in model.weights)
    return msgspec.structs.replace(weights(size, exact=exact), deviation=0.1 * size)


def draft_groups(model: Model) -> tuple[WeightGroup, ...]:
    """Weights of the draft layers that lie in the model; worked out from its last layer where headers are unread."""
    exact = tuple(group for group in model.weights if group.role == "draft")
    if exact or not model.draft_layers:
        return exact
    last = len(model.layers) - 1
    projection = 2 * model.hidden_size * model.hidden_size
    copied = [
        msgspec.structs.replace(group, layer=last + 1 + number)
        for number in range(model.draft_layers)
        for group in model.weights
        if group.layer == last
    ]
    joined = WeightGroup(
        role="draft", layer=last + 1, bytes=Bytes(2 * projection), parameters=projection, dtype="BF16", split="none"
    )
    return (*copied, joined)
