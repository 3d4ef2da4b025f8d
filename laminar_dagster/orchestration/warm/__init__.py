"""Runs in a process that stays: the code is loaded, and what it holds (Spark) is warm.

Three kinds of process take part::

    launcher   in the web server, the daemon and the CLI: hands over run ids
       │  Unix socket, one connection as long as the launcher lives
    keeper     one per code origin, environment and instance: the queue, the lock, the clock
       │  socket pair
    worker     a child of the keeper: holds the code, executes one run at a time

The keeper holds no code of the user and imports no Dagster until it has bad news to write. So it
outlives what a worker may do: crash, run out of memory, hang, grow stale. It knows the worker's
exit, and gives the next run a fresh one.
"""
