"""A server whose truth is known, and what the sweep's client makes of it."""
