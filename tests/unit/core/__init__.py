"""The core, tested without any service."""
