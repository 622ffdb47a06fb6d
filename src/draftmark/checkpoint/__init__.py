"""Hugging Face files, translated to `draftmark.model.Model`."""
