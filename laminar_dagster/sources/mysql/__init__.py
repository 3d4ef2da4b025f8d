"""Changes to the tables of a MySQL or MariaDB server, from its binary log."""
