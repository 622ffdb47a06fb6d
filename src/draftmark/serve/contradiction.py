"""A log beside a model that is not its own: what the log states of the model, against what the model says."""

from collections.abc import Iterator
from typing import Final

from draftmark.errors import BadInput
from draftmark.model import Model
from draftmark.observation import Observation
from draftmark.planner import Plan
from draftmark.units import GIB

_WEIGHTS: Final = 0.25
"""Share by which weights may differ: those worked out from a config were 0.17 off at most in 58 public starts."""
_SMALL: Final = 0.3 * GIB
"""Bytes of buffers and rounding that no share bounds."""
_TOKEN: Final = 0.1
"""Share by which a token's bytes may differ: padding, and logs that round pools to 0.01 GB."""
_OTHER_POOLS: Final = ("windowed_pool", "window_tokens", "draft_pool_bytes", "state_pool_bytes")
_GENERIC: Final = "Transformers"
"""How engines' classes for any architecture begin."""


def refuse_contradiction(stated: tuple[Observation, ...], model: Model, plan: Plan, log: str) -> None:
    """See that a log can be of this model, as far as it states what a model is.

    Args:
        stated: what the log says.
        model: the model that it is taken to be of.
        plan: what is predicted for it with the log's own settings.
        log: the log's name, for the message.

    Raises:
        BadInput: architecture, weights or a token's bytes are of another model.
    """
    for cause in contradictions(stated, model, plan):
        raise BadInput(
            f"it is not a start of {model.name}: {cause}",
            place=log,
            remedy="name its model with --model, and its command after -- where quantization or layout are missing",
        )


def contradictions(stated: tuple[Observation, ...], model: Model, plan: Plan) -> Iterator[str]:
    """What does not fit, the plainest first."""
    classes = [str(one.value) for one in stated if one.quantity == "model_class"]
    if classes and not any(name == model.architecture or name.startswith(_GENERIC) for name in classes):
        yield f"the log has {classes[0]}, the model {model.architecture}"
    ledger = plan.ledgers[0]
    expected = sum(ledger.amount(account) or 0 for account in ("weights", "draft weights"))
    weights = _sum(stated, "weights", "draft_weights")
    if weights is not None and abs(weights - expected) > _WEIGHTS * expected + _SMALL:
        yield f"the log has {weights / GIB:.2f} GiB of weights a rank, the model {expected / GIB:.2f}"
    token = token_bytes(stated)
    held = plan.pool.bytes
    planned = held / plan.pool.tokens if held is not None and plan.pool.tokens else None
    if token is not None and planned is not None and abs(token - planned) > _TOKEN * planned:
        yield f"a token takes {token:,.0f} B in the log's pool, and {planned:,.0f} B of the model's"


def token_bytes(stated: tuple[Observation, ...]) -> float | None:
    """Bytes of a token in the pool; None where the log does not say, or has pools of several kinds."""
    if any(one.quantity in _OTHER_POOLS for one in stated):
        return None
    tokens, size = _sum(stated, "pool_tokens"), _sum(stated, "pool_bytes")
    return size / tokens if tokens and size else None


def _sum(stated: tuple[Observation, ...], *quantities: str) -> float | None:
    """Each quantity as the lowest rank last stated it, added up; None where the first one is not there."""
    found = []
    for quantity in quantities:
        values = [one for one in stated if one.quantity == quantity and not isinstance(one.value, str)]
        least = min((one.rank or 0 for one in values), default=0)
        own = [float(one.value) for one in values if (one.rank or 0) == least]
        found.append(own[-1] if own else None)
    return sum(value or 0.0 for value in found) if found[0] is not None else None
