"""Formulas: pure, one small function each, no I/O."""
