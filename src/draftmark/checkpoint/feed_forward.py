"""Which layers have experts, and how many parameters a layer's feed-forward part has."""

from draftmark.checkpoint.blocks import Feed
from draftmark.checkpoint.fields import Fields
from draftmark.model import Experts

UNGATED = {"relu2", "gelu_new", "gelu_fast"}
"""Activations of feed-forward parts with two matrices; the others have a gate and so three."""


def experts_of(fields: Fields) -> Experts | None:
    """The mixture of experts; None for a dense model."""
    count = fields.maybe_integer("n_routed_experts", "num_experts", "num_local_experts")
    if not count or fields.values.get("enable_moe_block") is False:
        return None
    return Experts(
        count=count,
        active=fields.integer(
            "num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "top_k_experts"
        ),
        shared=fields.maybe_integer("n_shared_experts", "num_shared_experts") or int(_shared_width(fields) > 0),
        intermediate_size=fields.integer("moe_intermediate_size", "intermediate_size"),
    )


def has_experts(fields: Fields, layer: int, layers: int) -> bool:
    """Whether `layer` of `layers` has experts, by whichever of the known rules the config states."""
    if experts_of(fields) is None:
        return False
    kinds = fields.per_layer("mlp_layer_types", layers)
    if kinds is not None:
        return bool(kinds[layer] == "sparse")
    if isinstance(fields.values.get("moe_layer_freq"), list):
        return bool((fields.per_layer("moe_layer_freq", layers) or [])[layer])
    if layer in (fields.items("mlp_only_layers") or []):
        return False
    step = fields.maybe_integer("decoder_sparse_step", "interleave_moe_layer_step")
    if step:
        return (layer + 1) % step == 0
    first = fields.maybe_integer("first_k_dense_replace") or 0
    every = fields.maybe_size("moe_layer_freq") or 1
    return layer >= first and layer % every == 0


def feed(fields: Fields, *, sparse: bool) -> Feed:
    """The feed-forward part of one layer, with experts where `sparse`."""
    hidden = fields.integer("hidden_size", "n_embd")
    experts = experts_of(fields)
    if not sparse or experts is None:
        width = fields.maybe_size("dense_intermediate_size", "intermediate_size_mlp", "intermediate_size", "n_inner")
        return Feed(mlp=matrices(fields) * hidden * (width or 4 * hidden))
    beside = fields.flag("enable_moe_block")
    latent = fields.maybe_integer("routed_expert_hidden_size", "moe_latent_size")
    narrow = latent or hidden
    return Feed(
        mlp=matrices(fields) * hidden * fields.integer("intermediate_size") if beside else 0,
        experts=experts.count * matrices(fields) * narrow * experts.intermediate_size,
        shared_experts=matrices(fields) * hidden * _shared_width(fields),
        router=hidden * experts.count + (2 * hidden * latent if latent else 0),
    )


def matrices(fields: Fields) -> int:
    """Matrices of one feed-forward part: three with a gate, two without."""
    activation = fields.text("mlp_hidden_act") or fields.text("hidden_act") or fields.text("activation_function") or ""
    return 2 if activation in UNGATED else 3


def _shared_width(fields: Fields) -> int:
    width = fields.maybe_integer(
        "moe_shared_expert_intermediate_size",
        "shared_expert_intermediate_size",
        "shared_intermediate_size",
        "share_expert_dim",
    )
    if width is not None:
        return width
    shared = fields.maybe_integer("n_shared_experts", "num_shared_experts") or 0
    if fields.values.get("model_type") == "llama4_text":
        shared = 1
    return shared * fields.integer("moe_intermediate_size", "intermediate_size") if shared else 0
