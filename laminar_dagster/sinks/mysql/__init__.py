"""A sink that publishes into a table of a MySQL or MariaDB database."""
