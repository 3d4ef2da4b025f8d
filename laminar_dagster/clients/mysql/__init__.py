"""Clients of a MySQL or MariaDB server, shared by sources and sinks."""
