"""Tests of the PostgreSQL source that need no server."""
