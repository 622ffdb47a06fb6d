"""Triton kernels and their specifications: a program of its own, never imported by the rest."""
