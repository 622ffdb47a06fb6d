"""The kernels run on the CPU through Triton's interpreter, which must be chosen before Triton is imported."""

import os

os.environ["TRITON_INTERPRET"] = "1"
