"""Pipelines as their authors write them, read into frozen models."""
