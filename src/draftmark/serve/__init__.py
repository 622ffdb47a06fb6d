"""Engines under supervision."""
