"""A private Spark session in which epochs are computed: in UTC, with fixed settings.

Whatever session there is, a pipeline's own Spark or one that a user brings, epochs are computed in
one derived from it (``epoch_session``). It shares executors and tuning, but has its own values of
settings that affect results. The original session keeps its settings, views and functions.
"""

from __future__ import annotations

import atexit
import os
import sys
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from laminar_dagster.config.variables import secret_names
from laminar_dagster.spark.gateway import launch_driver
from laminar_dagster.spark.java_process import ignore_stop_signals
from laminar_dagster.spark.session_settings import epoch_settings, local_settings, to_forget

SessionFactory = Callable[[], SparkSession]
_Settings = frozenset[tuple[str, str]]

# The sessions that epochs are computed in, by the session that they were derived from.
_derived: Final[WeakKeyDictionary[SparkSession, dict[_Settings, SparkSession]]] = (
    WeakKeyDictionary()
)
_computing: Final[WeakSet[SparkSession]] = WeakSet()
# The settings of each session as Java has last given them, and as a dict.
_given: Final[WeakKeyDictionary[SparkSession, tuple[Any, dict[str, str]]]] = WeakKeyDictionary()


def open_session(
    settings: Mapping[str, str] = {},
    *,
    written: Mapping[str, str] = {},
    withheld: Collection[str] = (),
    is_brief: bool = False,
) -> SparkSession:
    """Open a session for epochs; starts Spark if this process has none.

    Args:
        settings: Spark settings that override the defaults. With ``spark.remote``, or with
            ``SPARK_REMOTE`` in the environment, it is a session on a Spark Connect server.
        written: The same before ``${NAME}`` was filled in: tells which of them are secrets.
        withheld: Environment variables that Spark's processes do not get.
        is_brief: Whether little will be computed: see ``class_archive.java_options``.
    """
    remote = settings.get("spark.remote") or os.environ.get("SPARK_REMOTE")
    if remote:
        return epoch_session(SparkSession.builder.remote(remote).getOrCreate(), settings)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    chosen = local_settings(settings, secret_names(written))
    # In the main thread, pyspark would install its own handler for Ctrl-C when it starts.
    with ThreadPoolExecutor(1, thread_name_prefix="spark-start") as starter:
        starter.submit(_start_spark, chosen, withheld, is_brief).result()
    # Make it active in this thread, too. Without settings, because it may be a user's session.
    session = SparkSession.builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    ignore_stop_signals(session)
    return epoch_session(session, settings)


def _start_spark(settings: Mapping[str, str], withheld: Collection[str], is_brief: bool) -> None:
    """Start Spark in this process, unless it runs."""
    if SparkContext._active_spark_context is not None:  # noqa: SLF001, whoever asks starts one
        return
    # The JVM of an earlier, stopped SparkContext is used again.
    if SparkContext._gateway is None:  # noqa: SLF001, the same
        launch_driver(settings, withheld, is_brief=is_brief)
    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    SparkContext.getOrCreate(conf)


def epoch_session(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """The session in which a pipeline's epochs are computed, on the Spark of a given one.

    Args:
        session: The session to derive from; it is not changed.
        settings: The pipeline's settings.

    Raises:
        InvalidConfig: That Spark was started with a setting that differs from the pipeline's.
    """
    found = _explicit(session)
    wanted = epoch_settings(found, settings)
    if session in _computing and not to_forget(found, wanted) and wanted.items() <= found.items():
        return session
    derived = _derived.setdefault(session, {})
    key = frozenset(wanted.items())
    if key not in derived:
        made = _new_session(session, key)
        for name in to_forget(_explicit(made), wanted):
            if made.conf.isModifiable(name):
                made.conf.unset(name)
        for name, value in wanted.items():
            if made.conf.isModifiable(name):
                made.conf.set(name, value)
        derived[key] = made
        _computing.add(made)
    return derived[key]


def _explicit(session: SparkSession) -> dict[str, str]:
    """The settings that are set explicitly, without Spark's defaults."""
    if is_remote():
        return dict(session.conf.getAll)
    # Comparing two maps is one call of Java, reading one is several for each setting.
    settings = session._jsparkSession.conf().getAllAsJava()  # noqa: SLF001
    known = _given.get(session)
    if known is None or not settings.equals(known[0]):
        known = _given[session] = (settings, dict(settings))
    return dict(known[1])


def _new_session(session: SparkSession, settings: _Settings) -> SparkSession:
    if not is_remote():
        return session.newSession()
    # A server starts new Python workers for each session, which takes seconds. With a fixed session
    # name, the next process of a pipeline with the same settings uses the same workers.
    name = uuid.uuid5(uuid.UUID(session.session_id), repr(sorted(settings)))  # type: ignore[attr-defined]
    return _remote_twin(session, str(name))


def _remote_twin(session: Any, name: str) -> SparkSession:
    """A new session on the same server, for the same user. Spark itself can only clone one.

    A clone keeps the temporary functions of the first, which may shadow one such as ``upper``.
    """
    connection = deepcopy(session.client._builder)  # noqa: SLF001
    connection.set(connection.PARAM_SESSION_ID, name)
    twin: Any = type(session)(connection, session.client._user_id)  # noqa: SLF001
    # Close it at exit: its own finalizer runs later, and waits for a thread that is gone by then.
    atexit.register(twin.client.close)
    made: SparkSession = twin
    return made


@contextmanager
def active(session: SparkSession) -> Iterator[SparkSession]:
    """Make this the active session of the thread, for Spark functions that are given none.

    ``DataType.fromDDL`` is one: a session's settings decide whether ``TIMESTAMP`` has a zone.
    """
    restore = _activate_remotely(session) if is_remote() else _activate(session)
    try:
        yield session
    finally:
        restore()


def _activate(session: SparkSession) -> Callable[[], object]:
    sessions: Any = SparkSession._get_j_spark_session_class(session._jvm)  # noqa: SLF001
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)  # noqa: SLF001
    if before.isDefined():
        return partial(sessions.setActiveSession, before.get())
    clear: Callable[[], object] = sessions.clearActiveSession
    return clear


def _activate_remotely(session: SparkSession) -> Callable[[], object]:
    # pyspark keeps the active Connect session in a thread-local.
    kept: Any = type(session)._active_session  # type: ignore[attr-defined]  # noqa: SLF001
    before = getattr(kept, "session", None)
    kept.session = session
    return partial(setattr, kept, "session", before)


def stop_computing() -> None:
    """Cancel this process's Spark jobs. Call it from a thread that does not wait for them."""
    for session in list(_computing):
        # A session whose Spark was stopped has no jobs, and raises.
        with suppress(Py4JError, PySparkException):
            session.interruptAll()
