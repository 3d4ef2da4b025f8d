"""Runs an epoch as one bounded Spark job."""
