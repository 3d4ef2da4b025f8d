"""Changes of PostgreSQL tables, from a real server."""
