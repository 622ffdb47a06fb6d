"""How each family of models arranges its decoder layers: config.json -> blocks, one function a family."""

import msgspec

from draftmark.checkpoint.blocks import Block, Feed, gated_delta, gqa, join, kda, mamba2, mla
from draftmark.checkpoint.feed_forward import feed, has_experts, matrices
from draftmark.checkpoint.fields import Fields
from draftmark.errors import BadInput
from draftmark.model import Gqa, Indexer, Mla, NoMixer
from draftmark.units import Tokens


def _layers(fields: Fields) -> int:
    return fields.integer("num_hidden_layers", "n_layer")


def _heads(fields: Fields) -> int:
    return fields.integer("num_attention_heads", "n_head")


def _head_dim(fields: Fields) -> int:
    width = fields.maybe_size("head_dim", "attention_head_dim")
    if width is not None:
        return width
    hidden, heads = fields.integer("hidden_size", "n_embd"), _heads(fields)
    if hidden % heads:
        raise fields.refusal(f"a hidden size of {hidden} does not divide by {heads} heads, and there is no 'head_dim'")
    return hidden // heads


def _plain(fields: Fields, window: Tokens | None = None) -> Gqa:
    heads, width = _heads(fields), _head_dim(fields)
    return Gqa(
        heads=heads,
        kv_heads=fields.maybe_size("num_key_value_heads") or heads,
        head_dim=width,
        value_head_dim=fields.maybe_size("v_head_dim") or width,
        window=window,
    )


def _window(fields: Fields) -> Tokens | None:
    width = fields.maybe_integer("sliding_window", "sliding_window_size")
    return Tokens(width) if width is not None and width > 0 else None


def _windows(fields: Fields, default: list[bool]) -> list[bool]:
    """Layer by layer, whether attention is windowed: as the config lists it, else by the family's rule."""
    kinds = fields.per_layer("layer_types", len(default))
    if kinds is None:
        return default
    return [kind in ("sliding_attention", "chunked_attention") for kind in kinds]


def _feeds(fields: Fields, layers: int) -> list[Feed]:
    return [feed(fields, sparse=has_experts(fields, layer, layers)) for layer in range(layers)]


def _attend(fields: Fields, windowed: list[bool], width: Tokens | None) -> list[Block]:
    """Layers with the same heads, those `windowed` attending to `width` tokens and the others to all."""
    return [
        join(gqa(fields, _plain(fields, width if narrow else None)), part)
        for narrow, part in zip(windowed, _feeds(fields, len(windowed)), strict=True)
    ]


def uniform(fields: Fields) -> list[Block]:
    """Every layer attends to everything (Llama, Qwen2, Qwen3, Mixtral, ...), unless the config lists windows."""
    layers = _layers(fields)
    windowed = _windows(fields, [False] * layers)
    return _attend(fields, windowed, _window(fields))


def always_windowed(fields: Fields) -> list[Block]:
    """Every layer is windowed where the config gives a window (Mistral 7B v0.1, Mixtral, Phi-3)."""
    layers = _layers(fields)
    windowed = _windows(fields, [_window(fields) is not None] * layers)
    return _attend(fields, windowed, _window(fields))


def alternating(fields: Fields) -> list[Block]:
    """Windowed and full layers take turns, a window first (Gemma 2, gpt-oss)."""
    layers = _layers(fields)
    windowed = _windows(fields, [layer % 2 == 0 for layer in range(layers)])
    return _attend(fields, windowed, _window(fields))


def gemma3(fields: Fields) -> list[Block]:
    """Five windowed layers to one full (Gemma 3), or as `sliding_window_pattern` says."""
    layers = _layers(fields)
    period = fields.maybe_integer("sliding_window_pattern", "_sliding_window_pattern") or 6
    windowed = _windows(fields, [(layer + 1) % period != 0 for layer in range(layers)])
    return _attend(fields, windowed, _window(fields))


def gemma4(fields: Fields) -> list[Block]:
    """Full layers have heads of their own size and number; the last `num_kv_shared_layers` keep no cache."""
    layers = _layers(fields)
    windowed = _windows(fields, [(layer + 1) % 6 != 0 for layer in range(layers)])
    own_cache = layers - (fields.maybe_integer("num_kv_shared_layers") or 0)
    wide = fields.maybe_size("global_head_dim") or _head_dim(fields)
    kv_heads = fields.integer("num_key_value_heads")
    global_kv_heads = fields.maybe_size("num_global_key_value_heads") or kv_heads
    blocks = []
    for layer, part in enumerate(_feeds(fields, layers)):
        narrow = windowed[layer]
        width = _head_dim(fields) if narrow else wide
        mixer = Gqa(
            heads=_heads(fields),
            kv_heads=kv_heads if narrow else global_kv_heads,
            head_dim=width,
            value_head_dim=width,
            window=_window(fields) if narrow else None,
            cached=layer < own_cache,
        )
        blocks.append(join(gqa(fields, mixer), part))
    return blocks


def llama4(fields: Fields) -> list[Block]:
    """Three of four layers attend within chunks."""
    layers = _layers(fields)
    chunk = Tokens(fields.integer("attention_chunk_size"))
    listed = fields.per_layer("no_rope_layers", layers)
    local = [bool(item) for item in listed] if listed else [(layer + 1) % 4 != 0 for layer in range(layers)]
    local = _windows(fields, local)
    return _attend(fields, local, chunk)


def mimo_v2(fields: Fields) -> list[Block]:
    """Windowed layers have heads of their own number and size, and values narrower than keys."""
    layers = _layers(fields)
    pattern = fields.per_layer("hybrid_layer_pattern", layers)
    windowed = [bool(item) for item in pattern] if pattern else [False] * layers
    narrow = Gqa(
        heads=fields.integer("swa_num_attention_heads", "num_attention_heads"),
        kv_heads=fields.integer("swa_num_key_value_heads", "num_key_value_heads"),
        head_dim=fields.integer("swa_head_dim", "head_dim"),
        value_head_dim=fields.integer("swa_v_head_dim", "v_head_dim", "head_dim"),
        window=_window(fields),
    )
    wide = _plain(fields)
    return [
        join(gqa(fields, narrow if windowed[layer] else wide), part)
        for layer, part in enumerate(_feeds(fields, layers))
    ]


def latent(fields: Fields) -> list[Block]:
    """Multi-head latent attention, with a key selector where the config has one (DeepSeek, Kimi K2, GLM-5)."""
    layers = _layers(fields)
    selecting = fields.per_layer("indexer_types", layers)
    indexed = fields.maybe_integer("index_head_dim") is not None
    blocks = []
    for layer, part in enumerate(_feeds(fields, layers)):
        own = indexed and (selecting is None or selecting[layer] == "full")
        blocks.append(join(mla(fields, _latent(fields, indexed=own)), part))
    return blocks


def _latent(fields: Fields, *, indexed: bool = False) -> Mla:
    indexer = None
    if indexed:
        indexer = Indexer(
            heads=fields.integer("index_n_heads"),
            head_dim=fields.integer("index_head_dim"),
            top_k=Tokens(fields.integer("index_topk")),
        )
    return Mla(
        heads=_heads(fields),
        latent_rank=fields.integer("kv_lora_rank"),
        rope_dim=fields.integer("qk_rope_head_dim"),
        nope_dim=fields.integer("qk_nope_head_dim"),
        value_dim=fields.integer("v_head_dim"),
        query_rank=fields.maybe_size("q_lora_rank"),
        indexer=indexer,
    )


def block_sparse(fields: Fields) -> list[Block]:
    """Listed layers attend to blocks that a selector of their own chooses (MiniMax M3).

    Raises:
        BadInput: the config does not list them.
    """
    layers = _layers(fields)
    sparse = fields.part("sparse_attention_config")
    selecting = sparse.per_layer("sparse_attention_freq", layers)
    if selecting is None:
        raise BadInput(
            "the config lacks 'sparse_attention_freq'",
            place=sparse.place,
            remedy="pass the checkpoint's complete config.json",
        )
    indexer = Indexer(
        heads=sparse.integer("sparse_num_index_heads"),
        head_dim=sparse.integer("sparse_index_dim"),
        top_k=Tokens(sparse.integer("sparse_topk_blocks") * sparse.integer("sparse_block_size")),
    )
    dense = _plain(fields)
    chosen = msgspec.structs.replace(dense, indexer=indexer)
    return [
        join(gqa(fields, chosen if selects else dense), part)
        for selects, part in zip(selecting, _feeds(fields, layers), strict=True)
    ]


def qwen_linear(fields: Fields) -> list[Block]:
    """Gated delta nets with full attention on every fourth layer (Qwen3-Next, Qwen3.5)."""
    layers = _layers(fields)
    kinds = fields.per_layer("layer_types", layers)
    if kinds is None:
        every = fields.integer("full_attention_interval")
        kinds = ["full_attention" if (layer + 1) % every == 0 else "linear_attention" for layer in range(layers)]
    return [
        join(gqa(fields, _plain(fields), gate=True) if kind == "full_attention" else gated_delta(fields), part)
        for kind, part in zip(kinds, _feeds(fields, layers), strict=True)
    ]


def kimi_linear(fields: Fields) -> list[Block]:
    """Kimi delta attention with latent attention on the layers that the config lists, counted from 1."""
    layers = _layers(fields)
    full = fields.part("linear_attn_config").items("full_attn_layers") or []
    return [
        join(mla(fields, _latent(fields)) if layer + 1 in full else kda(fields), part)
        for layer, part in enumerate(_feeds(fields, layers))
    ]


def nemotron_h(fields: Fields) -> list[Block]:
    """Every layer is one thing: Mamba 2, attention, a feed-forward part, or experts."""
    letters = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
    pattern = fields.text("hybrid_override_pattern")
    kinds = [letters.get(letter, letter) for letter in pattern] if pattern else fields.items("layers_block_type")
    if not kinds:
        fields.integer("hybrid_override_pattern", "layers_block_type")
        return []
    return [_nemotron_layer(fields, str(kind)) for kind in kinds]


def _nemotron_layer(fields: Fields, kind: str) -> Block:
    if kind == "mamba":
        return mamba2(fields)
    if kind == "attention":
        return gqa(fields, _plain(fields))
    if kind in ("moe", "mlp"):
        return join(Block(mixer=NoMixer(), norm=fields.integer("hidden_size")), feed(fields, sparse=kind == "moe"))
    raise BadInput(
        f"unknown kind of layer {kind!r}",
        place=fields.place,
        remedy="Nemotron-H layers are mamba, attention, mlp or moe",
    )


def deci(fields: Fields) -> list[Block]:
    """Layers found by architecture search (Nemotron NAS): each its own KV heads and width, some parts left out."""
    hidden, heads = fields.integer("hidden_size"), _heads(fields)
    blocks = []
    for number, values in enumerate(fields.items("block_configs") or []):
        if not isinstance(values, dict):
            raise fields.refusal(f"block_configs[{number}] is not an object")
        block = Fields(values, f"{fields.place} (block_configs[{number}])")
        attention, ffn = block.part("attention"), block.part("ffn")
        mixer = Block(mixer=NoMixer(), norm=hidden)
        if not attention.flag("no_op") and not attention.flag("replace_with_linear"):
            group = attention.integer("n_heads_in_group")
            width = _head_dim(fields)
            mixer = gqa(fields, Gqa(heads=heads, kv_heads=heads // group, head_dim=width, value_head_dim=width))
        elif attention.flag("replace_with_linear"):
            mixer = Block(mixer=NoMixer(), attention=hidden * hidden, norm=hidden)
        blocks.append(join(mixer, Feed(mlp=_deci_feed(ffn, fields))))
    return blocks


def _deci_feed(ffn: Fields, fields: Fields) -> int:
    hidden = fields.integer("hidden_size")
    if ffn.flag("no_op"):
        return 0
    if ffn.flag("replace_with_linear"):
        return hidden * hidden
    multiple = ffn.share("ffn_mult")
    if multiple is None:
        return matrices(fields) * hidden * ffn.integer("intermediate_size")
    width = int(2 * multiple * hidden / 3)
    return matrices(fields) * hidden * (width + -width % 256)
