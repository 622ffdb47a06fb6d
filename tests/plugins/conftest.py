"""Without torch, as in the light core's own runs, only what needs none is collected."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["test_verify.py", "test_sglang.py"]
