"""Object stores, without a service."""
