"""Publishing into a table of a SQLite database."""
