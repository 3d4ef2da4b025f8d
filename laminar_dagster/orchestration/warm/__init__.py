"""Executes runs in a process that stays, with the code loaded and Spark warm.

Three kinds of process take part::

    launcher   in the web server, the daemon and the CLI: hands over run ids
       │  Unix socket, one connection as long as the launcher lives
    keeper     one per code origin, environment and instance: the queue, the lock, the clock
       │  socket pair
    worker     a child of the keeper: holds the code, executes one run at a time

The keeper loads no user code, and imports Dagster only to report lost runs. So it survives when a
worker crashes, runs out of memory, hangs, or has stale code. It notices the worker's exit, and
starts a fresh one for the next run.
"""
