"""Results of other tools as points, so that explain, compare and report work on them."""

from draftmark.sweep.imports.read import Imported, read_results

__all__ = ["Imported", "read_results"]
