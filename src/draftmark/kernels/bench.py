"""Measure the verify kernel on this GPU: correct first, then time, beside whatever else is installed."""

import dataclasses
import math
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from draftmark.kernels import baselines
from draftmark.kernels.mla_verify.launch import Choice, Workspace, mla_verify
from draftmark.kernels.mla_verify.problem import Problem
from draftmark.kernels.mla_verify.problems import Shape, random_problem, relative_error
from draftmark.kernels.mla_verify.specification import specification
from draftmark.kernels.timing import Ceilings, measure_ceilings, time_calls

TOLERANCE: Final = 1e-2
"""Relative error against the specification in bf16 above which a speed is not shown."""
SETS_BYTES: Final = 300_000_000
"""Input sets rotate over at least this much cache, several times the L2 of any GPU but the largest."""
HEADS: Final = 8
DEPTHS: Final = (1024, 8192, 32768, 131072, 185000)
NODES: Final = (8, 16)
MIXED: Final = (40960, 24576, 16384, 12288, 8192, 8192, 4096, 4096, 3072, 2048, 2048, 2048, 1024, 1024, 512, 512)
"""Sixteen requests of mixed length, 131,072 tokens together."""

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checked:
    """Outcome of the correctness check."""

    shapes: int
    worst: float | None
    """Largest relative error; None where an output is not a number."""
    worst_shape: str
    repeatable: bool

    @property
    def green(self) -> bool:
        """Whether speeds may be shown."""
        return self.shapes > 0 and self.worst is not None and self.worst < TOLERANCE and self.repeatable


def random_shape(rng: random.Random) -> Shape:
    """A shape as a server may meet it: batch 1 to 16, ragged lengths from 0, any heads, chains and trees."""
    requests = rng.choice((1, 1, 1, 2, 3, 4, 8, 16))
    longest = rng.choice((3, 64, 65, 500, 4000, 20000, 20000, 140_000 // requests))
    nodes = rng.choice((1, 2, 4, 8, 15, 16, 17, 33, 65))
    ragged = rng.random() < 0.3
    return Shape(
        lengths=tuple(rng.randint(0, longest) for _ in range(requests)),
        nodes=(*(rng.randint(0, nodes) if ragged else nodes for _ in range(requests - 1)), nodes),
        heads=rng.choice((1, 3, 8, 8, 8, 16) if nodes > 16 or longest > 20000 else (1, 2, 5, 8, 8, 8, 16, 64, 128)),
        mask=rng.choice(("ancestors", "full", "causal")),
        logit_cap=rng.choice((0.0, 0.0, 0.0, 30.0)),
        wide=rng.random() < 0.5,
    )


def check(count: int, seed: int, kernel: Choice | None) -> Checked:
    """Compare `count` random shapes with the specification; run each twice, with poison in everything to be written."""
    rng = random.Random(seed)
    workspace = Workspace()
    worst, worst_shape, repeatable = 0.0, "", True
    for number in range(count):
        shape = random_shape(rng)
        problem = random_problem(shape, seed + number, "cuda")
        first, second = (run_poisoned(problem, workspace, kernel) for _ in range(2))
        repeatable &= torch.equal(first, second)
        error = relative_error(first, specification(problem)[: first.shape[0]])
        error = math.inf if math.isnan(error) else error
        if error > worst:
            worst, worst_shape = error, str(shape)
    return Checked(shapes=count, worst=finite(worst), worst_shape=worst_shape, repeatable=repeatable)


def finite(error: float) -> float | None:
    """The error, None where it is not a number: JSON has no word for those."""
    return error if math.isfinite(error) else None


def run_poisoned(problem: Problem, workspace: Workspace, kernel: Choice | None) -> torch.Tensor:
    """Output of one run; what it does not write stays NaN."""
    for buffer in (workspace.partial, workspace.lse):
        if buffer is not None:
            buffer.fill_(float("nan"))
    wanted = (*problem.query.shape[:2], problem.latent)
    out = torch.full(wanted, float("nan"), dtype=problem.query.dtype, device=problem.query.device)
    return mla_verify(problem, out=out, workspace=workspace, kernel=kernel)[: int(problem.query_indptr[-1])]


def problem_sets(shape: Shape) -> list[Problem]:
    """The same shape drawn several times, so that together the caches exceed the GPU's."""
    size = max(1, sum(shape.lengths)) * (shape.latent + shape.rope) * 2
    return [random_problem(shape, seed, "cuda") for seed in range(min(40, SETS_BYTES // size + 1))]


def floor_seconds(shape: Shape, ceilings: Ceilings) -> float:
    """The larger of the time to read the latents once and the time of the matrix work, at this run's ceilings."""
    pairs = sum(length * nodes * shape.heads for length, nodes in zip(shape.lengths, shape.nodes, strict=True))
    operations = 2 * pairs * (2 * shape.latent + shape.rope)
    return max(latent_bytes(shape) / ceilings.bandwidth, operations / ceilings.matrix_rate)


def latent_bytes(shape: Shape) -> int:
    """Bytes of cache that must be read at least once."""
    return sum(shape.lengths) * (shape.latent + shape.rope) * 2


def measure(name: str, shape: Shape, ceilings: Ceilings, make: Callable[[Problem, torch.Tensor], Any]) -> Row:
    """Time one kernel on one shape; `make` gives the call for a problem and its output."""
    problems = problem_sets(shape)
    outs = [torch.empty(*p.query.shape[:2], p.latent, dtype=p.query.dtype, device="cuda") for p in problems]
    timing = time_calls([make(problem, out) for problem, out in zip(problems, outs, strict=True)])
    floor = floor_seconds(shape, ceilings)
    return {
        "kernel": name,
        "requests": len(shape.lengths),
        "tokens": sum(shape.lengths),
        "nodes": shape.nodes[0],
        "heads": shape.heads,
        "seconds": timing.median,
        "low": timing.low,
        "high": timing.high,
        "bytes_per_second": latent_bytes(shape) / timing.median,
        "floor_seconds": floor,
        "of_floor": floor / timing.median,
        "of_copy_bandwidth": latent_bytes(shape) / timing.median / ceilings.bandwidth,
    }


def ours(kernel: Choice | None) -> Callable[[Problem, torch.Tensor], Callable[[], torch.Tensor]]:
    """Makes calls of our kernel that share one workspace, as the layers of a model do."""
    workspace = Workspace()

    def make(problem: Problem, out: torch.Tensor) -> Callable[[], torch.Tensor]:
        return lambda: mla_verify(problem, out=out, workspace=workspace, kernel=kernel)

    return make


def shapes() -> list[Shape]:
    """What is measured: two tree sizes at five depths, and a batch of mixed lengths."""
    single = [Shape(lengths=(depth,), nodes=(nodes,), heads=HEADS, mask="full") for nodes in NODES for depth in DEPTHS]
    return [*single, Shape(lengths=MIXED, nodes=(16,) * len(MIXED), heads=HEADS, mask="full")]


def bench(count: int, seed: int, kernel: Choice | None, others: bool) -> Iterator[Row]:
    """Rows as they come: the check, the ceilings, then times; only the check where it is red."""
    checked = check(count, seed, kernel)
    yield {"row": "check", **dataclasses.asdict(checked), "green": checked.green, "tolerance": TOLERANCE}
    if not checked.green:
        return
    ceilings = measure_ceilings()
    yield {"row": "ceilings", "device": torch.cuda.get_device_name(), **dataclasses.asdict(ceilings)}
    for shape in shapes():
        yield {"row": "time", **measure("draftmark", shape, ceilings, ours(kernel))}
        if others:
            yield from other_times(shape, ceilings)


def other_times(shape: Shape, ceilings: Ceilings) -> Iterator[Row]:
    """Times of the other kernels; those that take no tree get a chain of as many nodes."""
    for name, make in {**baselines.TREE, **baselines.CAUSAL}.items():
        mask = "full" if name in baselines.TREE else "causal"
        same = dataclasses.replace(shape, mask=mask)
        try:
            error = baseline_error(same, make)
            row = measure(name, same, ceilings, make)
        except Exception as reason:  # noqa: BLE001 - another package's import or kernel may fail in any way
            yield {"row": "left out", "kernel": name, "why": f"{type(reason).__name__}: {reason}".splitlines()[0]}
            continue
        yield {"row": "time", **row, "relative_error": error}


def baseline_error(shape: Shape, make: Callable[[Problem, torch.Tensor], Any]) -> float | None:
    """Relative error of another kernel on the shape, so that its time is that of the same work."""
    problem = random_problem(shape, 0, "cuda")
    out = torch.full((*problem.query.shape[:2], problem.latent), float("nan"), dtype=torch.bfloat16, device="cuda")
    make(problem, out)()
    nodes = sum(shape.nodes)
    return finite(relative_error(out[:nodes], specification(problem, torch.float32)[:nodes]))
