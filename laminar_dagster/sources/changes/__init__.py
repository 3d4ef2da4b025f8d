"""What change sources (CDC) share, whatever the database."""
