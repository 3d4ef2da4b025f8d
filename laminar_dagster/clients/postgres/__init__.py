"""Talking to PostgreSQL: what sources and sinks share."""
