"""Tables that streams are joined with: files, Delta and PostgreSQL, read as a whole."""
