"""What the embedded engine's prefill holds beside weights and pool, and when that runs out (docs/embedded.md)."""

from typing import Final

from draftmark.configuration import Configuration
from draftmark.model import Gqa, Mixer, Mla, Model
from draftmark.physics.memory import element_bytes
from draftmark.planner.outcome import Risk
from draftmark.planner.terms import exceeds
from draftmark.units import MIB, Bytes, Tokens

UNCOUNTED: Final = Bytes(70 * MIB)
"""What a CPU holds beside the terms here: stacks of loading threads, the allocator's reserves, workspaces.

The least memory that a prompt got through on lay 45 MiB above the terms for 6,000 tokens of the tiny grouped-query
model and 94 MiB for 4,000 of the tiny latent one, both with chunks of 512.
"""
UNCOUNTED_DEVIATION: Final = 25 * MIB


def activations(model: Model, configuration: Configuration, depth: int) -> Bytes:
    """Least that the prefill of a prompt of `depth` tokens holds beside the pool, at its last chunk.

    Hidden states thrice (residual, input, output), the widest feed-forward part twice (gate and up), the last token's
    logits, and one layer's attention over the whole depth: the mask as truth values and as numbers, and what is
    written out for every head.
    """
    dtype = configuration.dtype if configuration.dtype not in (None, "auto") else model.dtype
    element = element_bytes(dtype or model.dtype)
    chunk = min(configuration.chunk or depth, depth)
    step = chunk * (3 * model.hidden_size + 2 * model.intermediate_size) * element
    mask = chunk * depth * (1 + element) if depth > chunk else 0
    widest = max(_per_head(layer.mixer, chunk, depth) for layer in model.layers)
    return Bytes(round(step + mask + widest * element + model.vocabulary * 4))


def _per_head(mixer: Mixer, chunk: int, depth: int) -> int:
    """Elements that attention writes out for every head over the depth that it reads.

    Grouped-query attention repeats keys and values for the heads that share them; latent attention decompresses the
    latent and puts keys together from it.
    """
    if isinstance(mixer, Mla):
        return mixer.heads * depth * (2 * mixer.nope_dim + mixer.rope_dim + mixer.value_dim)
    if isinstance(mixer, Gqa) and mixer.heads != mixer.kv_heads:
        read = depth if mixer.window is None else min(depth, mixer.window + chunk)
        return mixer.heads * read * (mixer.head_dim + mixer.value_head_dim)
    return 0


def prefill_risk(model: Model, configuration: Configuration, *, left: int, depth: Tokens, swing: float) -> Risk:
    """The risk that the longest prompt does not get through, with `left` bytes beside weights and pool.

    `swing` is the standard deviation of `left`, in bytes.
    """
    needed = activations(model, configuration, depth)
    deviation = (UNCOUNTED_DEVIATION**2 + swing**2) ** 0.5
    probability = 1.0 if needed > left + 2 * swing else exceeds(needed + UNCOUNTED - left, deviation)
    why = (
        f"a prompt of {depth:,} tokens needs at least {needed / MIB:,.0f} MiB, weights and pool leave {left / MIB:,.0f}"
    )
    remedy = "; lower the memory fraction, --max-context or --chunk" if probability >= 0.05 else ""
    return Risk(phase="prefill", probability=probability, why=why + remedy)
