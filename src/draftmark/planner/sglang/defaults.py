"""SGLang's defaults: chunk, graphs, page and memory fraction, as its argument resolution computes them."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from draftmark.configuration import Configuration, Speculative
from draftmark.errors import BadInput
from draftmark.hardware import Device
from draftmark.model import Mla, Model, Recurrent
from draftmark.planner.flags import has_flag, number_flag
from draftmark.planner.layout import served_dtype
from draftmark.planner.outcome import Reason
from draftmark.planner.sglang.attention import backend, latent, nvfp4_backends, own_pages, page
from draftmark.planner.sglang.cells import STATE_RATIO, WINDOW_RATIO
from draftmark.planner.sglang.rules import Rules
from draftmark.units import MIB, Tokens

_CHAINED: Final = ("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "DeepseekV2ForCausalLM", "GptOssForCausalLM")
"""Architectures that drafted a chain before all the others did."""
SPECULATIVE_RUNNING: Final = 48
"""Most running requests where speculation is on and nothing was asked for."""


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults of one class of GPU: chunk, and largest decode graph below and from tensor parallelism 4."""

    below: int
    chunk: int
    graphs: tuple[int, int]


def tiers(rules: Rules) -> tuple[Tier, ...]:
    """Classes of GPU by MiB, smallest first."""
    return (
        Tier(below=20 * 1024, chunk=2048, graphs=(8, 8)),
        Tier(below=35 * 1024, chunk=rules.small_chunk, graphs=rules.small_graphs),
        Tier(below=60 * 1024, chunk=4096, graphs=(32, 160)),
        Tier(below=160 * 1024, chunk=8192, graphs=(256, 512)),
        Tier(below=2**40, chunk=16384, graphs=(512, 512)),
    )


def board_mib(device: Device) -> int:
    """What nvidia-smi prints, from which SGLang derives its defaults.

    Raises:
        BadInput: the catalogue does not know it.
    """
    if device.board_memory is None:
        if device.kind == "rocm":
            return device.memory // MIB
        raise BadInput(
            f"SGLang's defaults on {device.name} follow from what nvidia-smi prints, which the catalogue lacks",
            place="data/gpus.toml",
            remedy="give --mem-fraction, --chunk and --graph-batch, or add board_mib",
        )
    return device.board_memory // MIB


def resolve(
    model: Model, configuration: Configuration, device: Device, rules: Rules
) -> tuple[Configuration, tuple[Reason, ...]]:
    """Every default filled in, with its reason.

    Raises:
        BadInput: a default is not known for this version or device.
    """
    reasons: list[Reason] = []
    full = configuration

    def fill(field: str, value: Any, why: str) -> None:
        nonlocal full
        if getattr(full, field) is None and value is not None:
            full = msgspec.structs.replace(full, **{field: value})
            text = f"{value:g}" if isinstance(value, float) else str(value)
            reasons.append(Reason(field=field, value=text, why=why))

    fill("version", ".".join(map(str, rules.version)), "the newest version whose rules were read")
    fill("dtype", *served_dtype(model, "sglang"))
    fill("context", model.context, "the model's own length")
    full, chosen = nvfp4_backends(full, device)
    reasons += chosen
    fill("page", Tokens(page(full, model, device)), "the attention backend's page")
    full, changed = own_pages(full)
    reasons += changed
    fill("kv_dtype", kv_dtype(model, full, device), "the checkpoint's or the served dtype")
    if full.speculative is not None:
        fill("max_running", SPECULATIVE_RUNNING, "the engine's default with speculation")
        drafted, why = draft_shape(full.speculative, model, rules)
        reasons += why
        full = msgspec.structs.replace(full, speculative=drafted)
    reasons += unsaid(model, full, device, rules)
    needed = (full.memory_fraction, full.chunk, full.graph_batch)
    if None in needed:
        mib = board_mib(device)
        tier = next(tier for tier in tiers(rules) if mib < tier.below)
        fill("chunk", Tokens(tier.chunk), f"the engine's default on a GPU of {mib} MiB")
        fill("graph_batch", graph_batch(full, tier, rules), f"the engine's default on a GPU of {mib} MiB")
        if full.memory_fraction is None:
            reserve = Reserve(model=model, configuration=full, device=device, rules=rules)
            fill("memory_fraction", reserve.fraction(), reserve.why())
    return full, tuple(reasons)


def draft_shape(draft: Speculative, model: Model, rules: Rules) -> tuple[Speculative, tuple[Reason, ...]]:
    """Steps, branches and tokens of a draft that the engine chooses where none of them is given.

    0.5.15.post1 and 0.5.23, speculative_hook.py, _auto_choose_speculative_params; 0.5.7, server_args.py.
    """
    if draft.steps is not None or draft.algorithm.upper() not in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE"):
        return draft, ()
    listed = model.architecture in _CHAINED or (rules.chains and model.architecture != "LlamaForCausalLM")
    tree = not listed and draft.algorithm.upper() != "STANDALONE"
    steps, top_k, tokens = (5, 4, 8) if tree else (3, 1, 4)
    chosen = msgspec.structs.replace(draft, steps=steps, top_k=top_k, draft_tokens=tokens)
    value = f"{steps} steps, top {top_k}, {tokens} draft tokens"
    return chosen, (Reason(field="speculative", value=value, why=f"the engine's choice for {model.architecture}"),)


def unsaid(model: Model, configuration: Configuration, device: Device, rules: Rules) -> Iterator[Reason]:
    """Defaults that have no field of their own and that the answer depends on."""
    if not any(has_flag(configuration, flag) for flag in ("--attention-backend", "--decode-attention-backend")):
        yield Reason(field="attention backend", value=backend(model, configuration, device), why="the engine's default")
    if configuration.graphs:
        captured = "captured" if captures_prefill(model, configuration, rules) else "none"
        yield Reason(
            field="prefill graphs", value=captured, why="the engine's choice for this model, layout and version"
        )
    mixers = [layer.mixer for layer in model.layers]
    if rules.splits_windows(model.architecture) and number_flag(configuration, "--swa-full-tokens-ratio") is None:
        why = "tokens of the windowed layers' pool to one of the full layers', the engine's default"
        yield Reason(field="swa-full-tokens-ratio", value=str(WINDOW_RATIO), why=why)
    if any(isinstance(mixer, Recurrent) for mixer in mixers):
        if number_flag(configuration, "--mamba-full-memory-ratio") is None:
            why = "states' share to one of keys and values, the engine's default"
            yield Reason(field="mamba-full-memory-ratio", value=str(STATE_RATIO), why=why)
        if not has_flag(configuration, "--disable-radix-cache"):
            yield Reason(field="radix cache", value="on", why="the engine's default: a running request takes 3 states")


def graph_batch(configuration: Configuration, tier: Tier, rules: Rules) -> int:
    """Largest batch whose decode step is captured."""
    largest = tier.graphs[0] if configuration.parallel.tensor < 4 else tier.graphs[1]
    if rules.graph_limit_follows_running and configuration.max_running is not None:
        largest = min(largest, configuration.max_running)
    return largest


def kv_dtype(model: Model, configuration: Configuration, device: Device) -> str | None:
    """The cache's dtype: what the checkpoint asks for, fp8 for selectors on Blackwell, else the served dtype."""
    if model.kv_dtype is not None:
        return model.kv_dtype
    selecting = any(isinstance(layer.mixer, Mla) and layer.mixer.indexer for layer in model.layers)
    if selecting and (device.architecture or "") >= "sm_100" and len(device.architecture or "") >= 6:
        return "fp8_e4m3"
    return configuration.dtype


def prefill_sizes(largest: int) -> int:
    """How many prefill shapes are captured up to `largest` tokens: 58 for 8,192."""
    sizes = [
        *range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64), *range(1280, 4097, 256),
        *range(4608, largest + 1, 512),
    ]  # fmt: skip
    return sum(size <= largest for size in sizes)


def captures_decode(configuration: Configuration) -> bool:
    """Whether decode steps run in graphs."""
    off = has_flag(configuration, "--cuda-graph-backend-decode", "disabled")
    return configuration.graphs and not off and not has_flag(configuration, "--disable-decode-cuda-graph")


def captures_prefill(model: Model, configuration: Configuration, rules: Rules) -> bool:
    """Whether prefill runs in graphs, whose memory then holds a step's activations."""
    off = ("--disable-prefill-cuda-graph", "--disable-piecewise-cuda-graph", "--enable-lora", "--enable-deepep-moe")
    return (
        rules.prefill_graphs
        and configuration.graphs
        and not has_flag(configuration, "--cuda-graph-backend-prefill", "disabled")
        and not any(has_flag(configuration, flag) for flag in off)
        and not has_flag(configuration, "--moe-a2a-backend", "deepep")
        and not configuration.parallel.data_attention
        and not model.vision
        and (not latent(model) or rules.latent_prefill)
    )


class Reserve(msgspec.Struct, frozen=True, kw_only=True):
    """What SGLang's default fraction sets aside, in MiB."""

    model: Model
    configuration: Configuration
    device: Device
    rules: Rules

    def parts(self) -> dict[str, float]:
        """The summands by name."""
        wanted, parallel = self.configuration, self.configuration.parallel
        chunk = wanted.chunk or 0
        if chunk <= 0:
            chunk = int(number_flag(wanted, "--max-prefill-tokens") or 16_384)
        parts = {"meta data": 512.0, "activations": 1.5 * max(chunk, 2048)}
        parts["parallel ranks"] = parallel.tensor * parallel.pipeline / 8 * 1024
        batch = wanted.graph_batch or 0
        if captures_decode(wanted):
            parts["decode graphs"] = 2.0 * batch
        if parallel.data_attention:
            parts["DP attention"] = 3.0 * batch * parallel.data + (1.5 * batch * parallel.data if batch > 300 else 0)
        parts["prefill graphs"] = self.prefill_graphs()
        if wanted.speculative is not None:
            small, large = self.rules.draft_reserve
            parts["draft"] = float(large if wanted.speculative.algorithm.upper() == "STANDALONE" else small)
        return {name: size for name, size in parts.items() if size}

    def prefill_graphs(self) -> float:
        """Reserve for captured prefill."""
        wanted = self.configuration
        if not captures_prefill(self.model, wanted, self.rules):
            return 0.0
        if latent(self.model):
            return 1536.0 if self.rules.latent_reserve else 0.0
        largest = wanted.chunk or 0
        if wanted.pool_tokens is not None:
            largest = min(largest, wanted.pool_tokens)
        return 8.0 * prefill_sizes(largest)

    def total(self) -> float:
        """All summands, at least 10 GiB on GPUs beyond 60."""
        total = sum(self.parts().values())
        if board_mib(self.device) > 60 * 1024:
            total = max(total, 10 * 1024)
        if has_flag(self.configuration, "--moe-a2a-backend", "deepep") and self.configuration.graphs:
            total += 2048
        return total

    def fraction(self) -> float:
        """round((memory - reserve) / memory, 3), less for vision towers.

        Raises:
            BadInput: the version's default is not known.
        """
        if not self.rules.formula_fraction:
            raise BadInput(
                "the default memory fraction of SGLang before 0.5.3 is not kept here",
                place="--mem-fraction",
                remedy="give the fraction that the server was started with",
            )
        mib = board_mib(self.device)
        fraction = round((mib - self.total()) / mib, 3)
        if self.model.vision and not has_flag(self.configuration, "--language-only"):
            fraction *= self.vision_factor()
        return fraction

    def vision_factor(self) -> float:
        """0.95, and up to a fifth less for towers larger than ViT-L/14 (24 layers of 1,024)."""
        layers, width = self.model.vision_layers or 24, self.model.vision_width or 1024
        ratio = layers * width**2 / (24 * 1024**2)
        return 0.95 * max(0.8, min(1.05, 1 - 0.1 * (ratio - 1)))

    def why(self) -> str:
        """The formula with its numbers."""
        mib = board_mib(self.device)
        parts = " + ".join(f"{size:,.0f} {name}" for name, size in self.parts().items())
        return f"({mib:,} - {self.total():,.0f}) / {mib:,} MiB, reserving {parts}"
