"""Exactly-once stream processing as Dagster runs over Spark."""
