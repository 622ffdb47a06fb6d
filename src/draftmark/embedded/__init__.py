"""A thin inference server over transformers: `python -m draftmark.embedded`. A program of its own, never imported."""
