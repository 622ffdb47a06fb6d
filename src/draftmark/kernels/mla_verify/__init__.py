"""Attention of a draft tree against a long latent cache: the specification, the kernels, and what they may be given."""
