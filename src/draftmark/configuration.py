"""How an engine is asked to run a model, in one vocabulary for all engines; each adapter translates it."""

from typing import Literal

import msgspec

from draftmark.units import Tokens

EngineName = Literal["embedded", "sglang", "vllm"]


class Parallel(msgspec.Struct, frozen=True, kw_only=True):
    """How the model is laid out over GPUs."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1
    decode_context: int = 1
    data_attention: bool = False
    """Attention runs data-parallel inside the tensor-parallel group (SGLang's DP attention)."""

    @property
    def gpus(self) -> int:
        """GPUs that one replica set occupies."""
        replicas = 1 if self.data_attention else self.data
        return self.tensor * self.pipeline * replicas


class Speculative(msgspec.Struct, frozen=True, kw_only=True):
    """Speculative decoding as configured; `draft_model` is None where the draft layers lie in the model itself."""

    algorithm: str
    draft_model: str | None = None
    steps: int | None = None
    top_k: int | None = None
    draft_tokens: int | None = None
    window: Tokens | None = None
    others: tuple[tuple[str, str], ...] = ()
    """vLLM's other settings of it by name, each in JSON, kept as they were given."""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """One way to start one engine. None means that the engine's own default holds."""

    engine: EngineName
    model: str
    version: str | None = None
    device: Literal["cuda", "rocm", "cpu"] = "cuda"
    parallel: Parallel = Parallel()
    memory_fraction: float | None = None
    """SGLang's mem_fraction_static or vLLM's gpu_memory_utilization: they do not mean the same."""
    pool_tokens: Tokens | None = None
    """An explicit size of the pool, in tokens."""
    chunk: Tokens | None = None
    """Most tokens that one prefill step takes."""
    context: Tokens | None = None
    max_running: int | None = None
    page: Tokens | None = None
    dtype: str | None = None
    kv_dtype: str | None = None
    quantization: str | None = None
    graphs: bool = True
    graph_batch: int | None = None
    speculative: Speculative | None = None
    flags: tuple[str, ...] = ()
    """Arguments for the engine that this vocabulary has no word for, verbatim."""
    environment: tuple[tuple[str, str], ...] = ()
