"""Why an engine died, from its log."""
