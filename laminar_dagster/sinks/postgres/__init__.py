"""Publishing into a table of a PostgreSQL database."""
