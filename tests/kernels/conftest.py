"""Without torch, as in the light core's own runs, nothing here is collected."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]
