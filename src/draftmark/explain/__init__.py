"""Why decode costs what it costs."""

from draftmark.explain.explanation import Ceiling, DepthRow, Explanation, Reads
from draftmark.explain.fit import explain

__all__ = ["Ceiling", "DepthRow", "Explanation", "Reads", "explain"]
