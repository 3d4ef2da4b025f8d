"""Epochs as Dagster runs."""
