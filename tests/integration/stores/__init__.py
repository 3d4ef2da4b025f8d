"""Object stores, against real servers."""
