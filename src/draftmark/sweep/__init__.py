"""Measurements over depths."""
