"""What one decoder layer holds: its mixer, and how many parameters each of its parts has."""

import msgspec

from draftmark.checkpoint.fields import Fields
from draftmark.model import Gqa, Indexer, Mixer, Mla, Recurrent


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One decoder layer. Numbers are parameters; `replicated` ones are held whole by every tensor-parallel rank."""

    mixer: Mixer
    attention: int = 0
    kv_projection: int = 0
    replicated: int = 0
    mlp: int = 0
    experts: int = 0
    shared_experts: int = 0
    router: int = 0
    norm: int = 0


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a layer's feed-forward part."""

    mlp: int = 0
    experts: int = 0
    shared_experts: int = 0
    router: int = 0


def join(mixer: Block, feed: Feed) -> Block:
    """A layer of a mixer and a feed-forward part."""
    return msgspec.structs.replace(
        mixer, mlp=feed.mlp, experts=feed.experts, shared_experts=feed.shared_experts, router=feed.router
    )


def gqa(fields: Fields, mixer: Gqa, *, gate: bool = False) -> Block:
    """Grouped-query attention; with `gate` the query projection also makes an output gate."""
    hidden = fields.integer("hidden_size", "n_embd")
    query = hidden * mixer.heads * mixer.head_dim * (2 if gate else 1)
    output = mixer.heads * mixer.value_head_dim * hidden
    key_value = hidden * mixer.kv_heads * (mixer.head_dim + mixer.value_head_dim) if mixer.cached else 0
    selector = 0
    if mixer.indexer is not None:
        # The selector has as many queries as there are KV heads, divided alike; its one key is held whole.
        key_value += hidden * mixer.indexer.heads * mixer.indexer.head_dim
        selector = hidden * mixer.indexer.head_dim
    return Block(mixer=mixer, attention=query + output, kv_projection=key_value, replicated=selector, norm=2 * hidden)


def mla(fields: Fields, mixer: Mla) -> Block:
    """Latent attention: the down-projections are replicated, the up-projections are split by heads."""
    hidden = fields.integer("hidden_size")
    query_width = mixer.heads * (mixer.nope_dim + mixer.rope_dim)
    down = hidden * (mixer.latent_rank + mixer.rope_dim)
    if mixer.query_rank is None:
        query = hidden * query_width
    else:
        down += hidden * mixer.query_rank
        query = mixer.query_rank * query_width
    up = mixer.latent_rank * mixer.heads * (mixer.nope_dim + mixer.value_dim)
    output = mixer.heads * mixer.value_dim * hidden
    if mixer.indexer is not None:
        down += _indexer(mixer.indexer, hidden, mixer.query_rank or hidden)
    norm = 2 * hidden + mixer.latent_rank + (mixer.query_rank or 0)
    return Block(mixer=mixer, attention=query + up + output, replicated=down, norm=norm)


def _indexer(indexer: Indexer, hidden: int, query_rank: int) -> int:
    keys = hidden * indexer.head_dim
    return query_rank * indexer.heads * indexer.head_dim + keys + hidden * indexer.heads


def gated_delta(fields: Fields) -> Block:
    """Gated delta net (Qwen3-Next, Qwen3.5): short convolution over queries, keys and values, and a state a head."""
    hidden = fields.integer("hidden_size")
    key_heads, value_heads = fields.integer("linear_num_key_heads"), fields.integer("linear_num_value_heads")
    key_dim, value_dim = fields.integer("linear_key_head_dim"), fields.integer("linear_value_head_dim")
    kernel = fields.integer("linear_conv_kernel_dim")
    keys, values = key_heads * key_dim, value_heads * value_dim
    channels = 2 * keys + values
    mixer = Recurrent(
        kind="gated_delta",
        convolution_elements=channels * (kernel - 1),
        state_elements=value_heads * key_dim * value_dim,
        state_dtype=fields.text("mamba_ssm_dtype"),
        convolution_taps=kernel - 1,
    )
    projections = hidden * (2 * keys + 2 * values + 2 * value_heads) + values * hidden
    return Block(mixer=mixer, attention=projections + channels * kernel + 2 * value_heads, norm=2 * hidden)


def mamba2(fields: Fields) -> Block:
    """Mamba 2 (Nemotron-H)."""
    hidden = fields.integer("hidden_size")
    heads, head_dim = fields.integer("mamba_num_heads"), fields.integer("mamba_head_dim")
    groups, state = fields.integer("n_groups"), fields.integer("ssm_state_size")
    kernel = fields.integer("conv_kernel")
    inner = heads * head_dim
    channels = inner + 2 * groups * state
    mixer = Recurrent(
        kind="mamba2",
        convolution_elements=channels * (kernel - 1),
        state_elements=inner * state,
        state_dtype=fields.text("mamba_ssm_cache_dtype") or "float32",
        convolution_taps=kernel - 1,
    )
    projections = hidden * (inner + channels + heads) + inner * hidden
    return Block(mixer=mixer, attention=projections + channels * (kernel + 1) + 3 * heads + inner, norm=hidden)


def kda(fields: Fields) -> Block:
    """Kimi delta attention: as gated delta, with one convolution each for queries, keys and values."""
    hidden = fields.integer("hidden_size")
    part = fields.part("linear_attn_config")
    heads, head_dim, kernel = (
        part.integer("num_heads"),
        part.integer("head_dim"),
        part.integer("short_conv_kernel_size"),
    )
    width = heads * head_dim
    mixer = Recurrent(
        kind="kda",
        convolution_elements=3 * width * (kernel - 1),
        state_elements=heads * head_dim * head_dim,
        state_dtype=None,
        convolution_taps=kernel - 1,
    )
    gate = hidden * width if part.flag("use_full_rank_gate") else hidden * head_dim + head_dim * width
    projections = 4 * hidden * width + hidden * heads + 2 * gate
    return Block(mixer=mixer, attention=projections + 3 * width * kernel, norm=2 * hidden)
