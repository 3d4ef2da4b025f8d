"""Changes from a real MariaDB server."""
