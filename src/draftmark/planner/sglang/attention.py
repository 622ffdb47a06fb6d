"""SGLang's attention backend where none is named, and the pages that a backend takes."""

from typing import Final

import msgspec

from draftmark.configuration import Configuration
from draftmark.hardware import Device
from draftmark.model import Mla, Model
from draftmark.planner.combinations import FIXED_PAGES, attention_backend
from draftmark.planner.flags import text_flag
from draftmark.planner.outcome import Reason
from draftmark.units import Tokens

PAGES: Final = {
    "flashmla": (64,), "cutlass_mla": (128,), "trtllm_mla": (32, 64), "tokenspeed_mla": (32, 64),
    "cutedsl_mla": (32, 64), "trtllm_mha": (16, 32, 128, 64),
}  # fmt: skip
"""Pages that attention backends have; the last one takes the place of any other (0.5.15.post1 and 0.5.23, overrides.py:
trtllm_mha has 128 since 0.5.23)."""


def backend(model: Model, configuration: Configuration, device: Device) -> str:
    """The attention backend that is taken where none is named (0.5.15.post1, _get_default_attn_backend)."""
    own = attention_backend(configuration, model, device)
    trees = configuration.speculative is not None and (configuration.speculative.top_k or 1) > 1
    if own is not None:
        return own
    if device.kind == "rocm":
        return "aiter"
    if device.architecture == "sm_90" and (latent(model) or not trees):
        return "fa3"
    if device.architecture in ("sm_100", "sm_103") and not latent(model) and not trees:
        return "trtllm_mha"
    return "triton" if latent(model) or model.architecture == "GptOssForCausalLM" else "flashinfer"


def page(configuration: Configuration, model: Model, device: Device) -> int:
    """Tokens a page: some backends need their own, the others take one (0.5.15.post1, arg_groups/overrides.py)."""
    named = {
        configuration.flags[at + 1]
        for at, flag in enumerate(configuration.flags[:-1])
        if flag in ("--attention-backend", "--decode-attention-backend", "--prefill-attention-backend")
    }
    selecting = any(isinstance(layer.mixer, Mla) and layer.mixer.indexer for layer in model.layers)
    backends = named or {backend(model, configuration, device)}
    if "cutlass_mla" in backends:
        return 128
    return 64 if backends & set(FIXED_PAGES) or selecting else 1


def nvfp4_backends(configuration: Configuration, device: Device) -> tuple[Configuration, tuple[Reason, ...]]:
    """The configuration with the backends that an NVFP4 cache has: native on SM100, FlashInfer's prefill elsewhere.

    0.5.23, kv_cache_hook.py (handle_nvfp4_prefill_kv_dequant_dtype).
    """
    if configuration.kv_dtype != "nvfp4":
        return configuration, ()
    named = text_flag(configuration, "--prefill-attention-backend") or text_flag(configuration, "--attention-backend")
    native = (device.architecture or "") in ("sm_100", "sm_103")
    prefill = named or ("trtllm_mha" if native else "flashinfer")
    chosen = ("--prefill-attention-backend", prefill, "--decode-attention-backend", "trtllm_mha")
    why = "the engine's choice for an NVFP4 cache"
    changed = msgspec.structs.replace(configuration, flags=(*configuration.flags, *chosen))
    return changed, (Reason(field="attention backend", value=f"{prefill} prefill, trtllm_mha decode", why=why),)


def own_pages(configuration: Configuration) -> tuple[Configuration, tuple[Reason, ...]]:
    """The configuration with a page that the named attention backend has: the engine changes one that it has not."""
    named = text_flag(configuration, "--attention-backend", "--decode-attention-backend")
    pages = PAGES.get(named or "", ())
    if not pages or configuration.page in pages:
        return configuration, ()
    why = f"{named} takes no pages of {configuration.page} tokens, and the engine changes them"
    changed = msgspec.structs.replace(configuration, page=Tokens(pages[-1]))
    return changed, (Reason(field="page", value=str(pages[-1]), why=why),)


def latent(model: Model) -> bool:
    """Whether any layer has latent attention."""
    return any(isinstance(layer.mixer, Mla) for layer in model.layers)
