"""A sink that publishes into a table of a PostgreSQL database."""
