"""Rules for engines that serve: pools that run full, requests that are too long, memory that does not come back."""

from draftmark.diagnose import remedies
from draftmark.diagnose.case import Case, as_evidence
from draftmark.diagnose.signs import first_stated
from draftmark.finding import Change, Finding, Remedy, Severity


def pool_exhausted(case: Case) -> Finding | None:
    """The engine's own pool ran full: no allocation failed."""
    fatal, full = case.signs("pool exhausted"), case.signs("pool full")
    if not fatal and not full:
        return None
    severity: Severity = "fatal" if fatal else "warning"
    window = first_stated(full, "window")
    split = None
    if window is not None:
        change = Change(flag="--swa-full-tokens-ratio", direction="lower")
        split = Remedy(changes=(change,), arithmetic=f"window layers use {window} of their pool", cost="window tokens")
    pool = case.change("fraction", "raise") if case.fraction is None or case.fraction < 0.9 else None
    larger = Remedy(changes=(pool,), arithmetic="a larger pool", cost="headroom") if pool is not None else None
    retracted = next((int(number) for sign in full if (number := sign.values.get("requests"))), 1)
    ran = case.start.running
    fitted = ran - retracted if ran is not None and ran > retracted else None
    what = "requests were put back and start again" if full and not fatal else "a request could not be continued"
    return Finding(
        code="pool-exhausted",
        severity=severity,
        confidence="certain",
        claim=f"the KV pool ran full while serving and {what}: the pool, not the GPU, was out of memory",
        evidence=tuple(as_evidence(sign) for sign in (*fatal[:2], *full[:2])),
        remedies=remedies.only(
            split,
            remedies.fewer_requests(case, "running requests x their length must fit into the pool", fitted=fitted),
            larger,
        ),
    )


def request_beyond_limit(case: Case) -> Finding | None:
    """A request was refused because it is longer than the pool or the context."""
    signs = case.signs("request beyond limit")
    if not signs:
        return None
    length, limit = signs[0].values["length"], signs[0].values["limit"]
    return Finding(
        code="request-beyond-limit",
        severity="warning",
        confidence="certain",
        claim=f"a request of {length} tokens was refused: the server takes {limit}. Where that is far less than the "
        "memory that is free, the pool was sized wrongly at the start",
        evidence=(as_evidence(signs[0]),),
        remedies=(
            Remedy(
                changes=(Change(flag="the pool", direction="raise"),),
                arithmetic=f"{length} > {limit}; `draftmark inspect` shows pool and free memory",
                cost="headroom",
            ),
        ),
    )


def sleep_residual(case: Case) -> Finding | None:
    """Memory that sleeping does not give back grows."""
    values = [value for sign in case.signs("sleep residual") if (value := sign.number("residual")) is not None]
    if len(values) < 2 or values[-1] <= values[0]:
        return None
    return Finding(
        code="sleep-residual",
        severity="warning",
        confidence="certain",
        claim=f"memory still held in sleep mode grew from {values[0]:.2f} to {values[-1]:.2f} GiB: a leak",
        evidence=tuple(as_evidence(sign) for sign in case.signs("sleep residual")[:3]),
    )
