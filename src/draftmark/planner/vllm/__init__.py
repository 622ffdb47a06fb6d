"""vLLM's arithmetic: budget, KV-cache specifications, groups and blocks. Rules read in the wheels 0.6 to 0.33."""
