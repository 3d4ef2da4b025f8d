"""Branches of a pipeline: made, replayed, compared, promoted and dropped."""
