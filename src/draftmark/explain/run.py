"""Explain what a run kept: its model and configuration say what a step reads, its machine how fast that could be."""

from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.explain.explanation import Ceiling, Explanation, Reads
from draftmark.explain.fit import explain
from draftmark.machine.catalogue import find_gpu
from draftmark.model import Gqa, Mla, Model
from draftmark.physics.memory import cached_elements, element_bytes
from draftmark.physics.roofline import weights_read
from draftmark.store import RunExport, RunRecord
from draftmark.units import Bytes, BytesPerSecond


def explain_run(
    export: RunExport, *, model: Model | None = None, gigabytes_per_second: float | None = None
) -> Explanation:
    """The explanation of a run's finished points; `model` and the bandwidth take the place of what the run knows.

    Raises:
        ValueError: no valid point has a decode time.
    """
    model = model or export.run.model
    trial = export.trials[0] if export.trials else None
    reads = None
    if model is not None:
        reads = reads_of(model, trial.configuration if trial else None)
    points = [record.point for record in export.points if record.finished]
    return explain(points, reads=reads, ceiling=ceiling_of(export.run, gigabytes_per_second))


def reads_of(model: Model, configuration: Configuration | None) -> Reads:
    """What one decode step reads on each GPU. Without a configuration: one GPU, the checkpoint's own dtype.

    What sparse attention reads a token of depth is its selector's keys, whose layout is the engine's own: unknown here.
    Only layers that attend to everything make a step grow with depth; a window is read whole at any depth beyond it.
    """
    ranks = configuration.parallel.tensor if configuration else 1
    kv_dtype = (configuration.kv_dtype or configuration.dtype if configuration else None) or model.dtype
    growing = [layer.mixer for layer in model.layers if not (isinstance(layer.mixer, Gqa) and layer.mixer.window)]
    elements = sum(cached_elements(mixer, ranks) for mixer in growing)
    element = element_bytes(kv_dtype if kv_dtype != "auto" else model.dtype)
    speculative = configuration.speculative if configuration else None
    tokens = (speculative.draft_tokens or 1) if speculative else 1
    weights = Bytes(round(weights_read(model, tokens, ranks) * _served_ratio(model, configuration)))
    if any(isinstance(mixer, Gqa | Mla) and mixer.indexer is not None for mixer in growing):
        return Reads(weights=weights, why="sparse attention reads the tokens it selects, not the whole cache")
    return Reads(
        cache_per_token=Bytes(round(elements * element)),
        weights=weights,
        why=f"{elements:,} elements of {element:g} bytes in {len(growing)} layers",
    )


def ceiling_of(run: RunRecord, gigabytes_per_second: float | None = None) -> Ceiling | None:
    """The bandwidth to hold a run against: as given, as measured on its machine, or by the datasheet of its GPU."""
    if gigabytes_per_second is not None:
        given = BytesPerSecond(gigabytes_per_second * 1e9)
        return Ceiling(bytes_per_second=given, kind="given", source="--bandwidth")
    if run.bandwidth is not None:
        return Ceiling(
            bytes_per_second=run.bandwidth.bytes_per_second, kind="measured here", source=run.bandwidth.method
        )
    if run.environment.device is None:
        return None
    try:
        device = find_gpu(run.environment.device)
    except BadInput:
        return None
    if device.bandwidth is None:
        return None
    return Ceiling(bytes_per_second=device.bandwidth, kind="datasheet", source=device.name)


def _served_ratio(model: Model, configuration: Configuration | None) -> float:
    """Size of the weights as served over their size as stored: another `dtype` recasts what is not quantized."""
    if configuration is None or configuration.dtype in {None, "auto"} or model.quantization is not None:
        return 1.0
    return element_bytes(configuration.dtype or model.dtype) / element_bytes(model.dtype)
