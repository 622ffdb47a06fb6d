"""Why decode costs what it costs."""

from draftmark.explain.explanation import Ceiling, DepthRow, Explanation, Reads
from draftmark.explain.fit import explain
from draftmark.explain.run import ceiling_of, explain_run, reads_of

__all__ = ["Ceiling", "DepthRow", "Explanation", "Reads", "ceiling_of", "explain", "explain_run", "reads_of"]
