"""Clients of a PostgreSQL server, shared by sources and sinks."""
