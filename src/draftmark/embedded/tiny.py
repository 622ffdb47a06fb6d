"""Two tiny checkpoints with random weights: `python -m draftmark.embedded.tiny DIR` writes DIR/gqa and DIR/mla.

They have the shapes of real models where it matters for memory and time (Llama's grouped-query attention, DeepSeek-V3's
latent attention with its head sizes), so that everything can be tried in seconds on a CPU.
"""

import argparse
from itertools import product
from pathlib import Path
from typing import Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    GenerationConfig,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

SEED: Final = 20260101
CONTEXT: Final = 16384
VOCABULARY: Final = 2048
SPECIAL: Final = ("<unk>", "<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>")
CHARACTERS: Final = ("\n", "\t", *(chr(code) for code in range(32, 127)))
CHAT_TEMPLATE: Final = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def words(count: int) -> list[str]:
    """`count` different words of two syllables, each with the space before it."""
    syllables = [consonant + vowel for consonant, vowel in product("bdfghjklmnprstvwz", "aeiou")]
    pairs = [f" {first}{second}" for first, second in product(syllables, syllables)]
    step = len(pairs) // count
    return pairs[: step * count : step]


def tokenizer() -> PreTrainedTokenizerFast:
    """Whole words and single ASCII characters: what is decoded is always whole text.

    Every piece has the same score, so that the fewest pieces win and a word that is in the vocabulary is one token.
    """
    ordinary = [*CHARACTERS, *words(VOCABULARY - len(SPECIAL) - len(CHARACTERS))]
    backend = Tokenizer(models.Unigram([(piece, -1.0) for piece in (*SPECIAL, *ordinary)], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_next")
    backend.decoder = decoders.Fuse()
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=list(SPECIAL[3:]),
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def gqa() -> PreTrainedConfig:
    """Llama's shape: 8 heads of 64 share 4 key-value heads."""
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=64,
        max_position_embeddings=CONTEXT,
        bos_token_id=1,
        eos_token_id=2,
    )


def mla() -> PreTrainedConfig:
    """DeepSeek-V3's shape: its head sizes, latent and rotary key; the first layer dense, the second with experts."""
    return DeepseekV3Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        moe_intermediate_size=128,
        num_hidden_layers=2,
        first_k_dense_replace=1,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_shared_experts=1,
        n_group=1,
        topk_group=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        q_lora_rank=128,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
        num_nextn_predict_layers=0,
        max_position_embeddings=CONTEXT,
        bos_token_id=1,
        eos_token_id=2,
    )


SHAPES: Final = {"gqa": gqa, "mla": mla}


def write(folder: Path, config: PreTrainedConfig) -> None:
    """A whole checkpoint in `folder`, float32, the same bytes at every call."""
    torch.manual_seed(SEED)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def main() -> None:
    """Write both checkpoints and print their folders."""
    parser = argparse.ArgumentParser(prog="python -m draftmark.embedded.tiny", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    folder: Path = parser.parse_args().folder
    logging.disable_progress_bar()
    for name, shape in SHAPES.items():
        write(folder / name, shape())
        print(folder / name)


if __name__ == "__main__":
    main()
