"""Talking to a MySQL or MariaDB server."""
