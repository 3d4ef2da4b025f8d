"""Archives of Spark's classes: with one, the JVM of a local Spark starts in a third of the time.

A JVM that maps an archive (class data sharing) neither parses nor verifies the classes in it. An
archive fits one build of Java and one class path, jars with their sizes and times included, so its
name has a hash of these. Java checks the same by itself, and starts without an archive that does
not fit or is gone. A damaged one can make it crash. So the name has the size, too, and a Java that
crashed is started once more, without the archive: see ``gateway``.

What is in an archive is executed. So an archive counts only if nobody but this account and root can
write to it, and to the folder it is in.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from laminar_dagster.core.errors import FailedError, InvalidConfig

# Read by spark-submit, which puts these options before those of the user's settings.
VARIABLE: Final = "SPARK_SUBMIT_OPTS"
QUICK_COMPILER: Final = "-XX:TieredStopAtLevel=1"
# ``quick`` or ``full``: decides for every Spark that is started here, whatever it will compute.
COMPILER: Final = "LAMINAR_SPARK_COMPILER"

_FOLDER: Final = "spark-classes"
_SUFFIX: Final = ".jsa"
_UNFINISHED: Final = ".making-"
_LOCK: Final = ".lock"
# 150 MB each. Every environment with its own PySpark needs one.
_KEPT: Final = 6
_SECONDS: Final = 900.0
_END_SECONDS: Final = 300.0
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_WHOLE: Final = 1_000_000

# What decides the class path of Spark's JVM, besides its jars.
_CLASS_PATH_VARIABLES: Final = (
    "SPARK_CONF_DIR",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
)
_CLASS_PATH_SETTINGS: Final = (
    "spark.driver.extraClassPath",
    "spark.driver.defaultExtraClassPath",
)
# Where a user can give Java options; the files of settings are read besides.
_OPTION_VARIABLES: Final = (
    VARIABLE,
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "PYSPARK_SUBMIT_ARGS",
)
_OPTION_SETTINGS: Final = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
_ABOUT_ARCHIVES: Final = re.compile(r"-Xshare|SharedArchiveFile|ArchiveClassesAtExit|AOT")
_ABOUT_COMPILERS: Final = re.compile(r"Tiered|-Xint|-Xcomp|-XX:[+-]Use\w*Compiler\b")

# The steps of making an archive, for whoever shows them.
STEPS: Final = ("starting Spark", "loading its classes", "writing the archive", "checking it")


@dataclass(eq=False)
class ArchiveNotMade(FailedError):
    """There is no archive of Spark's classes, and Spark starts as it does without one."""

    reason: str

    kind = "archive_not_made"
    text = "no archive of Spark's classes was made: {reason}"
    hint = "Spark runs without it, and takes longer to start"


@dataclass(frozen=True, slots=True)
class MadeArchive:
    """An archive that fits.

    Attributes:
        is_new: Whether it was made just now.
    """

    path: Path
    size: int
    is_new: bool


# --- which archive fits ---------------------------------------------------------------------------


def archive_folder(environment: Mapping[str, str]) -> Path:
    """Where archives are, of all projects: below ``$LAMINAR_CACHE``, or the user's cache."""
    if own := environment.get("LAMINAR_CACHE"):
        return Path(own).expanduser().absolute() / _FOLDER
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "laminar-dagster" / _FOLDER


def fitting_name(environment: Mapping[str, str]) -> str:
    """What the name of an archive begins with that fits this Java and this Spark.

    Raises:
        ArchiveNotMade: This Java, or this Spark, can have none.
    """
    if _ABOUT_ARCHIVES.search(_users_options(environment, {})):
        raise ArchiveNotMade("your own Java options say what Java shares (-Xshare, …)")
    try:
        java, spark = _java_home(environment), _spark_home(environment)
        identity = "\n".join(_identity(java, spark, environment))
    except (OSError, RuntimeError, UnicodeError) as error:
        raise ArchiveNotMade(f"what would have to fit cannot be read: {error}") from error
    folder = archive_folder(environment)
    if os.pathsep in str(folder):
        raise ArchiveNotMade(f"Java parts paths at `{os.pathsep}`, and there is one in {folder}")
    return hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _with_size(name: str, archive: Path) -> str:
    return f"{name}-{archive.lstat().st_size}{_SUFFIX}"


def usable_archive(environment: Mapping[str, str], settings: Mapping[str, str] = {}) -> Path | None:
    """The archive that a Spark may use; None if there is none, or its folder is not safe.

    Args:
        environment: Of the process that starts Spark.
        settings: Spark's settings.
    """
    if any(name in settings for name in _CLASS_PATH_SETTINGS):
        return None
    try:
        name = fitting_name(environment)
        for path in archive_folder(environment).glob(f"{name}-*{_SUFFIX}"):
            if path.name == _with_size(name, path) and not _danger(path):
                with suppress(OSError):
                    # The oldest are removed first: this one is in use.
                    os.utime(path)
                return path
    except (ArchiveNotMade, OSError):
        pass
    return None


def java_options(
    environment: Mapping[str, str], settings: Mapping[str, str] = {}, *, is_brief: bool
) -> str:
    """The value of ``VARIABLE`` for a Spark: ours first, so that the user's options win.

    Args:
        environment: Of the process that starts Spark.
        settings: Spark's settings.
        is_brief: Whether this Spark will compute little: the thorough one of Java's two compilers
            then costs more than it saves.

    Raises:
        InvalidConfig: ``LAMINAR_SPARK_COMPILER`` is neither ``quick`` nor ``full``.
    """
    chosen = []
    is_brief = _compiler(environment, "quick" if is_brief else "full") == "quick"
    users = _users_options(environment, settings)
    if _is_hotspot(environment):
        if is_brief and not _ABOUT_COMPILERS.search(users):
            chosen.append(QUICK_COMPILER)
        archive = None if _ABOUT_ARCHIVES.search(users) else usable_archive(environment, settings)
        if archive:
            # Whether it fits interests nobody who reads a program's output.
            chosen += [
                "-Xshare:auto",
                _quoted(f"-XX:SharedArchiveFile={archive}"),
                "-Xlog:cds*=off",
            ]
    return " ".join([*chosen, *filter(None, [environment.get(VARIABLE)])])


def lacks_archive(environment: Mapping[str, str], settings: Mapping[str, str]) -> bool:
    """Whether a Spark would start faster once ``laminar warm-up`` has run."""
    if any(name in settings for name in _CLASS_PATH_SETTINGS):
        return False
    if _ABOUT_ARCHIVES.search(_users_options(environment, settings)):
        return False
    try:
        name = fitting_name(environment)
        return _is_hotspot(environment) and not any(archive_folder(environment).glob(f"{name}-*"))
    except (ArchiveNotMade, OSError):
        return False


def _compiler(environment: Mapping[str, str], usual: str) -> str:
    wish = environment.get(COMPILER) or usual
    if wish not in ("quick", "full"):
        raise InvalidConfig("the environment", f"`{COMPILER}` is {wish!r}", "say `quick` or `full`")
    return wish


def _quoted(option: str) -> str:
    """An option as Spark's launcher reads it: it parts options at white space, unless quoted."""
    if not re.search(r"[\s\"'\\]", option):
        return option
    return '"' + re.sub(r'(["\\])', r"\\\1", option) + '"'


def _users_options(environment: Mapping[str, str], settings: Mapping[str, str]) -> str:
    """Wherever a user may have given options for Java, as one text to search."""
    found = [environment.get(name, "") for name in _OPTION_VARIABLES]
    found += [settings.get(name, "") for name in _OPTION_SETTINGS]
    with suppress(OSError, RuntimeError):
        home = environment.get("SPARK_CONF_DIR") or os.path.join(_spark_home(environment), "conf")
        lines = Path(home, "spark-defaults.conf").read_text(errors="replace").splitlines()
        found += [line for line in lines if line.strip().startswith(_OPTION_SETTINGS)]
    return "\n".join(found)


def _identity(java: Path, spark: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Everything that an archive has to fit, line by line."""
    yield f"{java}"
    yield (java / "release").read_text(errors="replace")
    # A dynamic archive lies on top of Java's own.
    for name in ("libjvm.so", "classes.jsa"):
        yield _stamp(name, (java / "lib" / "server" / name).stat())
    yield spark
    with os.scandir(os.path.join(spark, "jars")) as entries:
        # In this order: so Java writes out `jars/*`, and the class path has to be the same text.
        yield from (_stamp(entry.name, entry.stat()) for entry in entries)
    for name in _CLASS_PATH_VARIABLES:
        yield f"{name}={environment.get(name, '')}"


def _stamp(name: str, status: os.stat_result) -> str:
    # Java compares whole seconds, and layers of images keep no more.
    return f"{name} {status.st_size} {int(status.st_mtime)}"


def _java_home(environment: Mapping[str, str]) -> Path:
    """The Java that spark-submit takes."""
    if home := environment.get("JAVA_HOME"):
        return Path(home).resolve(strict=True)
    program = shutil.which("java", path=environment.get("PATH"))
    if program is None:
        raise FileNotFoundError("there is no Java on the PATH, and JAVA_HOME is not set")
    return Path(program).resolve(strict=True).parents[1]


def _is_hotspot(environment: Mapping[str, str]) -> bool:
    """Whether Java knows our options: another make of it might not start with them."""
    with suppress(OSError):
        java = _java_home(environment)
        has_server = (java / "lib" / "server" / "libjvm.so").is_file()
        return has_server and "openj9" not in (java / "release").read_text(errors="replace").lower()
    return False


def _spark_home(environment: Mapping[str, str]) -> str:
    """The Spark that pyspark starts, as it writes it."""
    if home := environment.get("SPARK_HOME"):
        return home
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise FileNotFoundError("there is no pyspark")
    return os.path.dirname(os.path.realpath(found.origin))


def _danger(path: Path) -> str:
    """Why others than this account and root could change what is at a path; empty if not."""
    for place in (path, path.parent):
        status = place.lstat()
        if stat.S_ISLNK(status.st_mode):
            return f"{place} is a link"
        if status.st_uid not in (os.geteuid(), 0):
            return f"{place} belongs to another account"
        if status.st_mode & _OTHERS_WRITE:
            return f"others may write to {place}"
    for place in path.parent.resolve().parents:
        status = place.stat()
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            return f"everybody may write to {place}"
    return ""


# --- making and removing --------------------------------------------------------------------------


def make_archive(
    environment: Mapping[str, str], on_step: Callable[[str], None] = lambda _step: None
) -> MadeArchive:
    """Make the archive that fits, unless it is there; of several processes one makes it.

    Args:
        environment: For the Spark whose classes are kept.
        on_step: Called with each of ``STEPS`` as it begins.

    Raises:
        ArchiveNotMade: It cannot be made, or kept.
    """
    folder, name = archive_folder(environment), fitting_name(environment)
    try:
        _make_folder(folder, 0o700)
        with _alone(folder, on_step):
            if danger := _danger(folder / _LOCK):
                raise ArchiveNotMade(danger)
            archive = usable_archive(environment)
            is_new = archive is None
            if archive is None:
                _remove_leftovers(folder, f"{_UNFINISHED}*", f"{name}-*")
                archive = _make(folder, name, environment, on_step)
                _keep_newest(archive)
            return MadeArchive(archive, archive.stat().st_size, is_new)
    except OSError as error:
        raise ArchiveNotMade(f"{folder}: {error.strerror or error}") from error


def remove_archives(environment: Mapping[str, str]) -> tuple[int, int]:
    """Remove all archives; how many there were, and their bytes.

    Raises:
        ArchiveNotMade: Some cannot be removed.
    """
    folder = archive_folder(environment)
    try:
        if not folder.is_dir():
            return 0, 0
        with _alone(folder, lambda _step: None):
            _remove_leftovers(folder, f"{_UNFINISHED}*")
            sizes = [path.stat().st_size for path in folder.glob(f"*{_SUFFIX}")]
            for path in folder.glob(f"*{_SUFFIX}"):
                path.unlink()
            return len(sizes), sum(sizes)
    except OSError as error:
        raise ArchiveNotMade(f"{folder}: {error.strerror or error}") from error


def _make_folder(folder: Path, mode: int) -> None:
    """Make a folder and those above it, which nobody else may write to, whatever the umask."""
    if not folder.parent.is_dir():
        _make_folder(folder.parent, 0o755)
    folder.mkdir(mode=mode, exist_ok=True)


@contextmanager
def _alone(folder: Path, on_step: Callable[[str], None]) -> Iterator[None]:
    """Be the only process that makes or removes archives. The lock of a dead process is free."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_step("waiting for another process that makes it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_leftovers(folder: Path, *patterns: str) -> None:
    """Remove what killed processes have left that were making an archive, and what is damaged."""
    for path in (path for pattern in patterns for path in folder.glob(pattern)):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _keep_newest(made: Path) -> None:
    """Bound the folder. A JVM that has an archive mapped keeps it when it is removed."""
    others = [path for path in made.parent.glob(f"*{_SUFFIX}") if path != made]
    others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in others[_KEPT - 1 :]:
        path.unlink()


def _make(
    folder: Path, name: str, environment: Mapping[str, str], on_step: Callable[[str], None]
) -> Path:
    with tempfile.TemporaryDirectory(
        prefix=_UNFINISHED, dir=folder, ignore_cleanup_errors=True
    ) as scratch:
        unfinished = Path(scratch, f"{name}{_SUFFIX}")
        class_path, said = _run_rehearsal(unfinished, environment, on_step)
        if not unfinished.is_file() or unfinished.stat().st_size < _WHOLE:
            raise ArchiveNotMade(f"Java wrote none. {said}".strip())
        on_step(STEPS[3])
        _require_fit(unfinished, class_path, environment)
        unfinished.chmod(0o400)
        with unfinished.open("rb") as file:
            # A file that lost pages in a power cut would be executed all the same.
            os.fsync(file.fileno())
        return unfinished.replace(folder / _with_size(name, unfinished))


def _run_rehearsal(
    unfinished: Path, environment: Mapping[str, str], on_step: Callable[[str], None]
) -> tuple[str, str]:
    """Have a process of its own run Spark, and Java keep the classes at its end.

    Returns:
        The class path of that Java, and the last of what it said.
    """
    options = [QUICK_COMPILER, _quoted(f"-XX:ArchiveClassesAtExit={unfinished}")]
    given = {name: value for name, value in environment.items() if name != "SPARK_REMOTE"}
    given[VARIABLE] = " ".join([*options, *filter(None, [environment.get(VARIABLE)])])
    class_path = ""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=unfinished.parent,
            env={
                **given,
                "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path))),
            },
            # Ends with this process: see ``rehearse``.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
        limit = threading.Timer(_SECONDS, process.kill)
        limit.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                # Java and its children write there, too.
                with suppress(ValueError, TypeError, KeyError):
                    news = json.loads(line)
                    class_path = news.get("class_path", class_path)
                    on_step(STEPS[news["step"]])
            code = process.wait()
        finally:
            limit.cancel()
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    pipe.close()
        said.seek(0)
        last = [line.strip() for line in said if line.strip()][-1:]
    if code:
        raise ArchiveNotMade(" ".join(["Spark did not run.", *last]))
    return class_path, " ".join(last)


def _require_fit(archive: Path, class_path: str, environment: Mapping[str, str]) -> None:
    java = _java_home(environment) / "bin" / "java"
    # `on` is for tests like this one: with it, Java ends if it cannot use the archive.
    command = [str(java), "-Xshare:on", f"-XX:SharedArchiveFile={archive}", "-cp", class_path]
    done = subprocess.run([*command, "-version"], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = [*(done.stdout + done.stderr).splitlines(), ""][-2:][0]
        raise ArchiveNotMade(f"it does not fit the Java that made it: {reason}")


# --- the process that loads the classes -----------------------------------------------------------


def rehearse() -> None:
    """Do what an epoch has Spark do, then end Java in peace: it writes the archive at its exit."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _tell(step=0)
    from pyspark import SparkContext

    from laminar_dagster.spark.session import open_session

    spark = open_session({"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"})
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001, nothing else knows Java's class path
    _tell(step=1, class_path=jvm.java.lang.System.getProperty("java.class.path"))
    _compute(spark)
    gateway: Any = SparkContext._gateway  # noqa: SLF001, the same
    spark.stop()
    _tell(step=2)
    gateway.shutdown()
    # The Java of a driver in Python ends when nobody writes to it any more.
    gateway.proc.stdin.close()
    gateway.proc.wait(_END_SECONDS)


def _tell(**news: object) -> None:
    sys.stdout.write(f"{json.dumps(news)}\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    # Ends when the process is gone that holds the other end; Java then ends by itself. Not through
    # ``sys.stdin``, whose lock the interpreter wants when it ends in peace.
    os.read(0, 1)
    os._exit(1)


def _compute(spark: Any) -> None:
    """A source in Python, expressions, Arrow on both sides of a shuffle, a join, rows collected."""
    from pyspark.sql import functions as F

    columns = (
        "id BIGINT, name STRING, part INT, at TIMESTAMP, amount DECIMAL(10, 2), _control STRING"
    )

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        from datetime import UTC, datetime
        from decimal import Decimal

        import pyarrow as pa

        names = ["id", "name", "part", "at", "amount", "_control"]
        kinds = [pa.int64(), pa.string(), pa.int32(), pa.timestamp("us", "UTC")]
        kinds += [pa.decimal128(10, 2), pa.string()]
        for _ in batches:
            rows = [(n, str(n), n % 7, datetime.now(UTC), Decimal(n), None) for n in range(100)]
            yield pa.record_batch(
                [
                    pa.array(column, kind)
                    for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)
                ],
                names,
            )

    def same(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    records = spark.range(0, 2, 1, 2).mapInArrow(read, columns)
    shown = records.where("id > 3 AND name LIKE '%1%' OR amount >= 0").selectExpr(
        "id",
        "upper(name) AS name",
        "part",
        "date_trunc('MINUTE', at) AS at",
        "amount * 2 AS amount",
        "_control",
        "coalesce(part, 0) + CASE WHEN id % 2 = 0 THEN 1 ELSE 0 END AS other",
    )
    table = spark.createDataFrame(
        [(number, f"part {number}") for number in range(7)], "part INT, label STRING"
    )
    joined = shown.join(F.broadcast(table), "part", "left").drop("label", "other")
    arranged = joined.select("id", "name", "part", "at", "amount", "_control")
    mapped = arranged.mapInArrow(same, columns)
    grouped = mapped.repartition(2, "part").sortWithinPartitions("part", "id").groupBy("part")
    folded = grouped.applyInArrow(lambda rows: rows, columns)
    united = folded.unionByName(arranged.where("part = 1"), allowMissingColumns=True)
    united.mapInArrow(same, columns).where("_control IS NOT NULL OR id > 10").collect()
    united.groupBy("part").agg(F.max("id"), F.countDistinct("name"), F.sum("amount")).collect()


if __name__ == "__main__":
    rehearse()
