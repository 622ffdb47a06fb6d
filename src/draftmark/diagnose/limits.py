"""Rules for starts that ask for more than there is: GPUs of the host, positions that the model was trained for."""

from draftmark.diagnose import remedies
from draftmark.diagnose.case import Case
from draftmark.diagnose.plain import free, told_by
from draftmark.finding import Change, Finding, Remedy

_GPUS = Change(flag="GPUs", direction="raise")


def too_few_gpus(case: Case) -> Finding | None:
    """More ranks than GPUs, or none at all."""
    if case.signs("no GPU"):
        why = "in a container: `--gpus all` and the driver's libraries; on the host: the driver, CUDA_VISIBLE_DEVICES"
        claim = "the engine's process sees no GPU"
        return told_by(case, "no GPU", "too-few-gpus", claim, free(_GPUS, why))
    signs = case.signs("too few GPUs")
    if not signs:
        return None
    values = signs[0].values
    claim = "more ranks were asked for than this host has GPUs (or than the container may see)"
    change = case.change("replicas", "lower")
    if "gpus" in values:
        claim = f"{values['ranks']} ranks were asked for and {values['gpus']} GPUs are to be seen"
        change = case.change("gpus", "lower", values["gpus"])
    fewer = Remedy(changes=(change,), arithmetic="ranks of this host <= its GPUs", cost="ranks") if change else None
    more = Remedy(changes=(_GPUS,), arithmetic="one for each rank", cost="GPUs")
    return told_by(case, "too few GPUs", "too-few-gpus", claim, *remedies.only(fewer, more))


def context_beyond_model(case: Case) -> Finding | None:
    """Requests longer than the model was made for."""
    signs = case.signs("context beyond model")
    if not signs:
        return None
    context, derived = signs[0].number("context") or 0, signs[0].number("derived") or 0
    override = {"vllm": "--hf-overrides", "sglang": "--json-model-override-args"}.get(case.engine or "")
    scaled = (
        "where the model's card names a factor for RoPE scaling; a variable that only silences this gives wrong outputs"
    )
    longer = (
        Remedy(changes=(Change(flag=override, direction="set"),), arithmetic=scaled, cost="quality of short requests")
        if override
        else None
    )
    claim = f"requests of {context:,.0f} tokens are promised, and by its config the model takes {derived:,.0f}"
    return told_by(
        case, "context beyond model", "context-beyond-model", claim,
        *remedies.only(remedies.shorter_context(case, derived, "positions beyond that were never trained"), longer),
    )  # fmt: skip
