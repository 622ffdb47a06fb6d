"""Predict memory, and solve for the flags that reach a target."""
