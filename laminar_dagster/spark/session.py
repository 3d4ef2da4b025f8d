"""A Spark session made for epochs: small, warm, in UTC, and nobody else's.

Whatever session there is, a pipeline's own Spark or one that a user brings, epochs are computed in
one derived from it (``epoch_session``): with its executors and its tuning, with settings of its own
where they decide answers. The session that was there keeps its settings, views and functions.
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

# Those that epochs are computed in, by the session that each was derived from.
_derived: Final[WeakKeyDictionary[SparkSession, dict[_Settings, SparkSession]]] = (
    WeakKeyDictionary()
)
_computing: Final[WeakSet[SparkSession]] = WeakSet()


def open_session(
    settings: Mapping[str, str] = {},
    *,
    written: Mapping[str, str] = {},
    withheld: Collection[str] = (),
) -> SparkSession:
    """A session of this process; Spark is started when there is none.

    Args:
        settings: Spark's own, over the defaults. With ``spark.remote``, or with
            ``SPARK_REMOTE`` in the environment, it is a session on a Spark Connect server.
        written: The same, ``${NAME}`` not filled in: tells which of them are secrets.
        withheld: Variables that the processes of Spark have no need of.
    """
    remote = settings.get("spark.remote") or os.environ.get("SPARK_REMOTE")
    if remote:
        return epoch_session(SparkSession.builder.remote(remote).getOrCreate(), settings)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    chosen = local_settings(settings, secret_names(written))
    # In the main thread Spark takes Ctrl-C for itself, in the middle of its start.
    with ThreadPoolExecutor(1, thread_name_prefix="spark-start") as starter:
        starter.submit(_start_spark, chosen, withheld).result()
    # A session is active in the thread that asked for it. Without settings: it may be a user's.
    session = SparkSession.builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    ignore_stop_signals(session)
    return epoch_session(session, settings)


def _start_spark(settings: Mapping[str, str], withheld: Collection[str]) -> None:
    """Have a Spark in this process."""
    if SparkContext._active_spark_context is not None:  # noqa: SLF001, whoever asks starts one
        return
    # One JVM outlives the Sparks that are stopped in it.
    if SparkContext._gateway is None:  # noqa: SLF001, the same
        launch_driver(settings, withheld)
    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    SparkContext.getOrCreate(conf)


def epoch_session(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """The session in which a pipeline's epochs are computed, on the Spark of a given one.

    Args:
        session: Whose Spark it is; left as it is.
        settings: The pipeline's.

    Raises:
        InvalidConfig: That Spark was started with what the pipeline does not want.
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
    """What is set, as against what Spark does by default."""
    return dict(session.conf.getAll)


def _new_session(session: SparkSession, settings: _Settings) -> SparkSession:
    if not is_remote():
        return session.newSession()
    # A server starts Python workers for each session anew, which takes seconds. Under this name the
    # next process finds those of a pipeline with the same settings.
    name = uuid.uuid5(uuid.UUID(session.session_id), repr(sorted(settings)))  # type: ignore[attr-defined]
    return _remote_twin(session, str(name))


def _remote_twin(session: Any, name: str) -> SparkSession:
    """Another session on the same server, for the same user. Spark offers a copy only.

    A copy has the temporary functions of the first, of which one may be called ``upper``.
    """
    connection = deepcopy(session.client._builder)  # noqa: SLF001
    connection.set(connection.PARAM_SESSION_ID, name)
    twin: Any = type(session)(connection, session.client._user_id)  # noqa: SLF001
    # Its own end would do that last of all, and wait for a thread that is gone by then.
    atexit.register(twin.client.close)
    made: SparkSession = twin
    return made


@contextmanager
def active(session: SparkSession) -> Iterator[SparkSession]:
    """Have what names no session take this one, in this thread.

    ``DataType.fromDDL`` is of that kind: ``TIMESTAMP`` has a zone or not as *a* session says.
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
    # pyspark keeps them by thread.
    kept: Any = type(session)._active_session  # type: ignore[attr-defined]  # noqa: SLF001
    before = getattr(kept, "session", None)
    kept.session = session
    return partial(setattr, kept, "session", before)


def stop_computing() -> None:
    """Cancel what this process has Spark compute. Not from the thread that waits for it."""
    for session in list(_computing):
        # One whose Spark was stopped computes nothing, and says so.
        with suppress(Py4JError, PySparkException):
            session.interruptAll()
