"""What a decode step must read, and the time below which no kernel can go.

Stored bytes and read bytes are kept apart: a mixture of experts stores all experts and reads those that the step's
tokens choose.
"""

from draftmark.model import Model
from draftmark.units import Bytes, BytesPerSecond, Seconds

_READ_EVERY_STEP = ("head", "attention", "mlp", "shared_experts", "router", "norm", "other")


def expected_experts(count: int, active: int, tokens: int) -> float:
    """Different experts that `tokens` tokens choose, if each chooses `active` of `count` evenly and by itself.

    count * (1 - (1 - active/count)^tokens). DeepSeek-V3, 256 experts, 8 active: one token 8.0, 16 tokens 101.9.
    Real routers are uneven, so fewer are read; this is an upper bound on average.
    """
    return count * (1 - (1 - active / count) ** tokens)


def weights_read(model: Model, tokens: int, tensor_parallel: int = 1) -> Bytes:
    """Weight bytes that one step over `tokens` tokens reads on each of `tensor_parallel` GPUs.

    Counts every decoder weight and the output head once, experts as `expected_experts`; of the input embedding only
    the rows looked up, unless it is the head too (tied). Ignores draft layers, vision towers and uneven splits.
    """
    total = 0.0
    for group in model.weights:
        if group.role in _READ_EVERY_STEP:
            total += group.bytes
        elif group.role == "experts" and model.experts is not None:
            chosen = expected_experts(model.experts.count, model.experts.active, tokens)
            total += group.bytes * chosen / model.experts.count
        elif group.role == "embedding":
            total += group.bytes if model.tied_embeddings else group.bytes * tokens / model.vocabulary
    return Bytes(round(total / tensor_parallel))


def memory_time(read: Bytes, bandwidth: BytesPerSecond) -> Seconds:
    """Least time to read so many bytes: bytes / bandwidth. 70,272 B at 1.8 TB/s: 39 ns."""
    return Seconds(read / bandwidth)


def effective_bandwidth(bytes_per_token: Bytes, seconds_per_token_of_depth: Seconds) -> BytesPerSecond:
    """Rate at which a cache was read, from the slope of step time over depth: bytes a token / seconds a token.

    Kimi K2 (61 layers x 1,152 B) at 4.98 us a token: 14.1 GB/s.
    """
    return BytesPerSecond(bytes_per_token / seconds_per_token_of_depth)
