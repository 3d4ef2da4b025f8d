"""Publishing into a table of a MySQL or MariaDB database."""
