"""On a GPU: both kernels against the specification, in bfloat16, over random shapes."""

import pytest
import torch

from draftmark.kernels.bench import TOLERANCE, check
from draftmark.kernels.mla_verify import hopper
from draftmark.kernels.mla_verify.launch import Choice

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU"),
]


@pytest.mark.parametrize("kernel", ["hopper", "portable"])
def test_random_shapes(kernel: Choice) -> None:
    if kernel == "hopper" and (torch.cuda.get_device_capability() != (9, 0) or hopper.obstacle()):
        pytest.skip("no Hopper GPU, or no NVRTC")
    checked = check(60, 1, kernel)
    assert checked.worst < TOLERANCE
    assert checked.repeatable
