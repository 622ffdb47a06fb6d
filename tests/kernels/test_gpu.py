"""On a GPU: both kernels against the specification over random shapes, and what only the portable one takes."""

import pytest
import torch

from draftmark.kernels.bench import TOLERANCE, check, run_poisoned
from draftmark.kernels.mla_verify import hopper
from draftmark.kernels.mla_verify.launch import INTERPRETED, Choice, Workspace, choose
from draftmark.kernels.mla_verify.problems import Shape, random_problem, relative_error
from draftmark.kernels.mla_verify.specification import specification

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU"),
    pytest.mark.skipif(INTERPRETED, reason="Triton interprets: set TRITON_INTERPRET=0"),
]


@pytest.mark.parametrize("kernel", ["hopper", "portable"])
def test_random_shapes(kernel: Choice) -> None:
    if kernel == "hopper" and (torch.cuda.get_device_capability() != (9, 0) or hopper.obstacle()):
        pytest.skip("no Hopper GPU, or no NVRTC")
    checked = check(60, 1, kernel)
    assert checked.green, checked


@pytest.mark.parametrize("mask", ["ancestors", "full"])
@pytest.mark.parametrize(
    ("latent", "rope", "heads"), [(512, 64, 8), (512, 64, 16), (256, 64, 8), (512, 32, 5), (128, 32, 3)]
)
@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("cache_dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_pages_fp8_and_other_widths(
    cache_dtype: torch.dtype, page_size: int, latent: int, rope: int, heads: int, mask: str
) -> None:
    fp8 = cache_dtype == torch.float8_e4m3fn
    shape = Shape(
        lengths=(12_345, 0, 700, 64, 33),
        nodes=(16, 16, 3, 0, 16),
        heads=heads,
        mask=mask,
        latent=latent,
        rope=rope,
        page_size=page_size,
        cache_dtype=cache_dtype,
        key_scale=0.7 if fp8 else 1.0,
        value_scale=1.3 if fp8 else 1.0,
    )
    problem = random_problem(shape, 7, "cuda")
    workspace = Workspace()
    first, second = (run_poisoned(problem, workspace, choose(problem)) for _ in range(2))
    assert torch.equal(first, second)
    assert relative_error(first, specification(problem)[: first.shape[0]]) < TOLERANCE


@pytest.mark.parametrize("requests", [32, 64])
def test_large_batches(requests: int) -> None:
    shape = Shape(
        lengths=tuple(97 * number % 5000 for number in range(requests)), nodes=(16,) * requests, heads=8, mask="full"
    )
    problem = random_problem(shape, 3, "cuda")
    found = run_poisoned(problem, Workspace(), None)
    assert relative_error(found, specification(problem)[: found.shape[0]]) < TOLERANCE


def test_the_longest_context() -> None:
    problem = random_problem(Shape(lengths=(262_144,), nodes=(65,), heads=8, mask="full"), 5, "cuda")
    found = run_poisoned(problem, Workspace(), None)
    assert relative_error(found, specification(problem)[: found.shape[0]]) < TOLERANCE
