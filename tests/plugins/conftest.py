"""The kernel behind the plug-in runs in Triton's interpreter, which must be chosen before Triton is imported."""

import os

os.environ["TRITON_INTERPRET"] = "1"
