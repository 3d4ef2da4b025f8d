"""Real services on loopback, for tests, demos and benchmarks.

One module per service. Each is installed once into a cache directory, started on a free loopback
port with its own data directory, and stopped by whoever started it. Nothing here is imported by
the package itself, and nothing here needs more than the standard library.
"""
