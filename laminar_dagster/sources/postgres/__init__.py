"""Changes of PostgreSQL tables, by logical replication."""
