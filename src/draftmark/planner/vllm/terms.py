"""vLLM's uncertain terms, measured on public starts; docs/accuracy.md holds them against those starts."""

from typing import Final

import msgspec

from draftmark.configuration import Configuration
from draftmark.engines.versions import parse_version
from draftmark.hardware import Device
from draftmark.model import Model
from draftmark.physics.memory import element_bytes
from draftmark.planner.terms import Term
from draftmark.planner.vllm.rules import NEWEST
from draftmark.units import GIB, Bytes

CONTEXT: Final = 0.51 * GIB
"""Capacity less free memory at the start of one process on an H100 (79.19 - 78.68)."""
CONTEXT_RANKS: Final = 1.51 * GIB
"""The same with several ranks, NCCL included (1.43 to 1.99 GiB in 9 starts)."""
FORWARD: Final = 0.25 * GIB
"""Memory outside torch that a forward pass adds on one rank (0.24 to 0.46 GiB in 26 starts)."""
FORWARD_TENSOR: Final = 2.07 * GIB
"""The same at tensor parallelism 2 and 4 with custom all-reduce (2.07 to 2.13 GiB in 7 starts)."""
FORWARD_PCIE: Final = 0.2 * GIB
"""What several ranks without NVLink add (two starts of Kimi K2.6 on RTX PRO 6000 leave room for 0.0 to 0.4 GiB)."""
FORWARD_PIPELINE: Final = 0.07 * GIB
"""The same with pipeline stages of one rank (0.07 GiB in 2 starts)."""

BUFFERS: Final = 0.03 * GIB
"""Rotary tables and other buffers that lie beside the weights (0.01 to 0.07 GiB in 25 starts)."""

STAGE_STEP: Final = 1.2
"""Share of (4 x hidden + 3 x width) elements that a stage without the sampler held at its peak (1.05 and 1.10 GiB)."""


ENCODER_PEAK: Final = 3.3 * GIB
"""What profiling Qwen's vision encoders on their largest image adds (2.9 to 3.8 GiB in three starts on GB10)."""
TESTED: Final = ((0, 17), (0, 20))
"""Versions that the activation law was fitted and checked on; others get a wider interval."""


class Coefficients(msgspec.Struct, frozen=True, kw_only=True):
    """The activation law, by least squares over the starts of tests/data/starts/vllm-0.19-h100.csv.

    `sampler`: bytes a running request and vocabulary entry, float32 logits and their copies while the sampler is tried.
    `hidden`: hidden states in 2 bytes that a profiled chunk holds at its peak. `experts`: share of
    (3 x expert width / ranks + hidden) elements that a routed token holds. All starts had 1,024 running requests and
    chunks of 8,192, so that the split between the first two is not identified by them.
    """

    sampler: float
    hidden: float
    experts: float


PUBLISHED: Final = Coefficients(sampler=14.96, hidden=1.34, experts=0.89)


def context(configuration: Configuration) -> Term:
    """What is taken before the budget counts: it comes out of what utilization leaves."""
    several = configuration.parallel.tensor * configuration.parallel.pipeline > 1 or shares_experts(configuration)
    size, deviation = (CONTEXT_RANKS, 0.25 * GIB) if several else (CONTEXT, 0.1 * GIB)
    return Term(bytes=Bytes(round(size)), deviation=deviation, why="context and NCCL, outside the budget")


def shares_experts(configuration: Configuration) -> bool:
    """Whether data-parallel ranks share one set of experts, and so exchange tokens through NCCL."""
    return configuration.parallel.data > 1 and configuration.parallel.expert > 1


def communication(configuration: Configuration, device: Device) -> Term:
    """Memory outside torch that the profiled forward pass adds, charged to the budget."""
    if configuration.parallel.tensor > 1 and not device.nvlink:
        return Term(
            bytes=Bytes(round(FORWARD + FORWARD_PCIE)),
            deviation=0.5 * GIB,
            why="libraries; no NVLink, no custom all-reduce",
        )
    if configuration.parallel.tensor > 1:
        return Term(bytes=Bytes(round(FORWARD_TENSOR)), deviation=0.15 * GIB, why="custom all-reduce and libraries")
    if shares_experts(configuration):
        why = "libraries, and NCCL between data-parallel ranks that share experts, which no start here has"
        return Term(bytes=Bytes(round(FORWARD + FORWARD_PCIE)), deviation=0.5 * GIB, why=why)
    if configuration.parallel.pipeline > 1:
        return Term(bytes=Bytes(round(FORWARD_PIPELINE)), deviation=0.05 * GIB, why="libraries")
    return Term(bytes=Bytes(round(FORWARD)), deviation=0.1 * GIB, why="libraries, by 26 starts on H100")


def activations(model: Model, configuration: Configuration, *, last: bool, law: Coefficients = PUBLISHED) -> Term:
    """The profiled peak: a chunk's forward pass, and the sampler over all running requests on the last stage."""
    chunk, running = configuration.chunk or 0, configuration.max_running or 0
    if not last:
        return stage_activations(model, configuration)
    element = element_bytes(configuration.dtype or "bfloat16")
    # The law is of 2-byte starts: the logits before they are widened, and hidden states, take the served dtype's bytes.
    sampler = (law.sampler + element - 2) * running * model.vocabulary
    hidden = law.hidden * element * chunk * model.hidden_size
    experts = law.experts * routed(model, configuration)
    why = (
        f"{law.sampler + element - 2} B x {running} requests x {model.vocabulary:,} + "
        f"{law.hidden} x {element:.0f} B x {chunk} x {model.hidden_size}"
    )
    if experts:
        why += f" + {experts / GIB:.2f} GiB of routed tokens"
    deviation = 0.03 * (sampler + hidden) + 0.04 * GIB + 0.15 * experts
    if not TESTED[0] <= parse_version(configuration.version or NEWEST) < TESTED[1]:
        deviation += 0.25 * sampler
    seen = encoder(model, configuration)
    if seen:
        why += f" + {seen / GIB:.1f} GiB for the largest image"
    return Term(bytes=Bytes(round(sampler + hidden + experts + seen)), deviation=deviation + 0.25 * seen, why=why)


def encoder(model: Model, configuration: Configuration) -> float:
    """The vision encoder's profiled peak; other families' towers stayed within the rest of the law."""
    off = ("--language-model-only", "--skip-mm-profiling", "--limit-mm-per-prompt")
    if not model.vision or not model.architecture.startswith("Qwen") or any(f in configuration.flags for f in off):
        return 0.0
    return ENCODER_PEAK


def stage_activations(model: Model, configuration: Configuration) -> Term:
    """The peak of a stage that does not sample: one layer's forward pass, by two starts of Llama-3.1-8B."""
    wide = 4 * model.hidden_size + 3 * model.intermediate_size / configuration.parallel.tensor
    size = STAGE_STEP * 2 * (configuration.chunk or 0) * wide + routed(model, configuration)
    why = f"{STAGE_STEP} x 2 B x {configuration.chunk} tokens x {wide:,.0f} elements, no sampler on this stage"
    return Term(bytes=Bytes(round(size)), deviation=0.2 * size, why=why)


def routed(model: Model, configuration: Configuration) -> float:
    """Bytes of a chunk's tokens, copied for each expert that they go to; mxfp4 kernels show none of it."""
    if model.experts is None or model.quantization == "mxfp4":
        return 0.0
    wide = 3 * model.experts.intermediate_size / configuration.parallel.tensor + model.hidden_size
    return 2 * (configuration.chunk or 0) * model.experts.active * wide


def weights(size: Bytes, *, exact: bool) -> Term:
    """Weights on one rank; sizes alone are less sure than headers."""
    share = 0.004 if exact else 0.01
    source = "tensor headers" if exact else "the config's sizes"
    held = Bytes(round(size + BUFFERS))
    return Term(bytes=held, deviation=share * size + 0.02 * GIB, why=f"one rank's share, from {source}, and buffers")


def graphs(configuration: Configuration) -> Term | None:
    """Captured graphs: 0.5 to 1.85 GiB in the public starts, without a law that fits them."""
    if not configuration.graphs:
        return None
    return Term(
        bytes=Bytes(round(0.93 * GIB)), deviation=0.3 * GIB, why="median of 35 starts on H100: 0.51 to 1.61 GiB"
    )
