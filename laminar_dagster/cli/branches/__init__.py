"""``laminar fork``, ``laminar branch`` and ``laminar promote``."""
