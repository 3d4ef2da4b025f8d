"""One program for each system, all driven alike; each runs in an environment of its own.

Only ``own`` and ``structured_streaming`` may import the project: the others run without it.
"""
