"""Architectures by name, each with its family. One that is not listed here is refused by name: it is never guessed."""

from collections.abc import Callable
from typing import Final

from draftmark.checkpoint.blocks import Block
from draftmark.checkpoint.families import (
    alternating,
    always_windowed,
    block_sparse,
    deci,
    gemma3,
    gemma4,
    kimi_linear,
    latent,
    llama4,
    mimo_v2,
    nemotron_h,
    qwen_linear,
    uniform,
)
from draftmark.checkpoint.fields import MOST_LAYERS, Fields
from draftmark.errors import BadInput
from draftmark.model import Gqa

Builder = Callable[[Fields], list[Block]]


def build_blocks(architecture: str, fields: Fields) -> list[Block]:
    """The decoder layers of a checkpoint whose config names `architecture`.

    Raises:
        BadInput: the architecture is not known, or a field that it needs is missing.
    """
    builder = ARCHITECTURES.get(architecture)
    if builder is None:
        raise BadInput(
            f"unknown architecture {architecture!r}",
            place=fields.place,
            remedy="Draftmark does not guess how a model caches; add it to draftmark/checkpoint/architectures.py",
        )
    blocks = builder(fields)
    if not 1 <= len(blocks) <= MOST_LAYERS:
        raise fields.refusal(f"{len(blocks)} layers cannot be")
    for number, block in enumerate(blocks):
        mixer = block.mixer
        if isinstance(mixer, Gqa) and (mixer.kv_heads < 1 or mixer.heads % mixer.kv_heads):
            raise fields.refusal(f"{mixer.heads} heads do not divide by {mixer.kv_heads} KV heads in layer {number}")
    return blocks


ARCHITECTURES: Final[dict[str, Builder]] = {
    **dict.fromkeys(
        (
            "LlamaForCausalLM",
            "Qwen2ForCausalLM",
            "Qwen2MoeForCausalLM",
            "Qwen3ForCausalLM",
            "Qwen3MoeForCausalLM",
            "Qwen2VLForConditionalGeneration",
            "Qwen2_5_VLForConditionalGeneration",
            "Qwen3VLForConditionalGeneration",
            "Qwen3VLMoeForConditionalGeneration",
            "MiMoForCausalLM",
            "MiniMaxM2ForCausalLM",
            "GemmaForCausalLM",
            "GraniteForCausalLM",
            "GraniteMoeForCausalLM",
            "PhiForCausalLM",
            "Glm4MoeForCausalLM",
            "Glm4ForCausalLM",
            "GlmForCausalLM",
            "Olmo2ForCausalLM",
            "SmolLM3ForCausalLM",
            "LlavaForConditionalGeneration",
            "LlavaNextForConditionalGeneration",
            "Mistral3ForConditionalGeneration",
            "Qwen2AudioForConditionalGeneration",
            "LlamaForCausalLMEagle",
            "LlamaForCausalLMEagle3",
            "Eagle3LlamaForCausalLM",
            "Ernie4_5ForCausalLM",
        ),
        uniform,
    ),
    **dict.fromkeys(
        ("MistralForCausalLM", "MixtralForCausalLM", "Phi3ForCausalLM", "Starcoder2ForCausalLM"), always_windowed
    ),
    **dict.fromkeys(("Gemma2ForCausalLM", "GptOssForCausalLM"), alternating),
    **dict.fromkeys(("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"), gemma3),
    **dict.fromkeys(("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"), gemma4),
    **dict.fromkeys(("Llama4ForCausalLM", "Llama4ForConditionalGeneration"), llama4),
    **dict.fromkeys(
        ("Step3p7FlashForCausalLM", "Step3p5ForCausalLM", "Cohere2ForCausalLM", "Olmo3ForCausalLM"), uniform
    ),
    "MiMoV2FlashForCausalLM": mimo_v2,
    **dict.fromkeys(
        (
            "DeepseekV2ForCausalLM",
            "DeepseekV3ForCausalLM",
            "DeepseekV32ForCausalLM",
            "GlmMoeDsaForCausalLM",
            "KimiK25ForConditionalGeneration",
            "KimiVLForConditionalGeneration",
            "Glm4MoeLiteForCausalLM",
            "DeepseekV3ForCausalLMNextN",
            "Eagle3DeepseekV2ForCausalLM",
        ),
        latent,
    ),
    **dict.fromkeys(
        ("MiniMaxM3ForCausalLM", "MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration"),
        block_sparse,
    ),
    **dict.fromkeys(
        (
            "Qwen3NextForCausalLM",
            "Qwen3_5ForCausalLM",
            "Qwen3_5MoeForCausalLM",
            "Qwen3_5ForConditionalGeneration",
            "Qwen3_5MoeForConditionalGeneration",
        ),
        qwen_linear,
    ),
    **dict.fromkeys(("KimiLinearForCausalLM", "KimiK3ForConditionalGeneration"), kimi_linear),
    "NemotronHForCausalLM": nemotron_h,
    "DeciLMForCausalLM": deci,
}
