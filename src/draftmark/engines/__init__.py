"""Inference engines, reached by command line, log and HTTP; translated, nothing decided."""
