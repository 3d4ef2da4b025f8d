"""A sink that publishes into a table of a SQLite database."""
