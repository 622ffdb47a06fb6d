"""Triton is told to interpret before anything imports it: some libraries do so merely because it is installed.

On the CPU the kernels run in that interpreter, and Triton's own functions must have been made for it as well.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"
