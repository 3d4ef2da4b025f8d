"""Which archive of Spark's classes fits, when one is used, and what a user's own options decide."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from infra import java
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.spark import class_archive
from laminar_dagster.spark.class_archive import (
    COMPILER,
    QUICK_COMPILER,
    VARIABLE,
    ArchiveNotMade,
    archive_folder,
    fitting_name,
    java_options,
    lacks_archive,
    make_archive,
    remove_archives,
    usable_archive,
)
from tests.unit.cli.conditions import Laminar

Environment = dict[str, str]

CLASSES = b"classes"


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A Java and a Spark, as far as the name of an archive goes by them."""
    for name in ("release", "lib/server/libjvm.so", "lib/server/classes.jsa"):
        file = tmp_path / "java" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"JAVA_VERSION of {name}")
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    for name in ("core.jar", "sql.jar"):
        (tmp_path / "spark" / "jars" / name).write_text(name)
    return {
        "JAVA_HOME": str(tmp_path / "java"),
        "SPARK_HOME": str(tmp_path / "spark"),
        "LAMINAR_CACHE": str(tmp_path / "cache"),
    }


def put_archive(environment: Mapping[str, str]) -> Path:
    folder = archive_folder(environment)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{fitting_name(environment)}-{len(CLASSES)}.jsa"
    path.write_bytes(CLASSES)
    path.chmod(0o400)
    return path


# --- which one fits -------------------------------------------------------------------------------


def test_archives_are_in_the_cache_of_the_user() -> None:
    assert archive_folder({"LAMINAR_CACHE": "/own"}) == Path("/own/spark-classes")
    assert archive_folder({"XDG_CACHE_HOME": "/x"}) == Path("/x/laminar-dagster/spark-classes")
    assert archive_folder({}) == Path.home() / ".cache" / "laminar-dagster" / "spark-classes"


@pytest.mark.parametrize(
    "changed",
    [
        "java/release",
        "java/lib/server/libjvm.so",
        "java/lib/server/classes.jsa",
        "spark/jars/sql.jar",
    ],
)
def test_another_java_or_jar_is_another_archive(
    environment: Environment, tmp_path: Path, changed: str
) -> None:
    before = fitting_name(environment)
    assert fitting_name(environment) == before
    (tmp_path / changed).write_text("of another build")
    assert fitting_name(environment) != before


def test_the_class_path_is_part_of_what_has_to_fit(
    environment: Environment, tmp_path: Path
) -> None:
    before = fitting_name(environment)
    assert fitting_name({**environment, "HADOOP_CONF_DIR": "/etc/hadoop"}) != before
    os.utime(tmp_path / "spark" / "jars" / "core.jar", (1, 1))
    touched = fitting_name(environment)
    assert touched != before
    (tmp_path / "spark").rename(tmp_path / "elsewhere")
    assert fitting_name({**environment, "SPARK_HOME": str(tmp_path / "elsewhere")}) != touched


def test_what_cannot_have_an_archive_says_why(environment: Environment, tmp_path: Path) -> None:
    with pytest.raises(ArchiveNotMade, match=r"cannot be read: .*no-java"):
        fitting_name({**environment, "JAVA_HOME": str(tmp_path / "no-java")})
    with pytest.raises(ArchiveNotMade, match="your own Java options"):
        fitting_name({**environment, "JAVA_TOOL_OPTIONS": "-Xshare:off"})
    with pytest.raises(ArchiveNotMade, match="parts paths at `:`"):
        fitting_name({**environment, "LAMINAR_CACHE": "/a:b"})


# --- whom it is taken from ------------------------------------------------------------------------


def test_an_archive_is_used_and_noted_as_used(environment: Environment) -> None:
    assert usable_archive(environment) is None
    assert lacks_archive(environment, {})
    path = put_archive(environment)
    os.utime(path, (1, 1))
    assert usable_archive(environment) == path
    assert path.stat().st_mtime > 1
    assert not lacks_archive(environment, {})


def test_an_archive_that_lost_its_end_is_not_used_and_made_again(
    environment: Environment, quick_maker: None
) -> None:
    # Java would not notice, and crash.
    path = put_archive(environment)
    path.chmod(0o600)
    path.write_bytes(CLASSES[:-1])
    path.chmod(0o400)
    assert usable_archive(environment) is None
    made = make_archive(environment)
    assert made.is_new
    assert usable_archive(environment) == made.path
    assert not path.exists()


def test_an_archive_of_another_account_is_not_used(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put_archive(environment)
    stranger = 54321
    if os.geteuid() == 0:
        # What belongs to root is trusted, so it has to be somebody else's.
        os.chown(path.parent, stranger, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: stranger)
    assert usable_archive(environment) is None
    assert "SharedArchiveFile" not in java_options(environment, is_brief=False)
    if os.geteuid() == 0:
        os.chown(path.parent, 0, -1)
        os.chown(path, stranger, -1)
        assert usable_archive(environment) is None


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_what_others_may_write_to_is_not_used(environment: Environment, mode: int) -> None:
    path = put_archive(environment)
    path.parent.chmod(mode)
    assert usable_archive(environment) is None
    path.parent.chmod(0o700)
    assert usable_archive(environment) == path
    path.chmod(mode)
    assert usable_archive(environment) is None


def test_a_link_is_not_followed_nor_a_folder_that_everybody_may_rename(
    environment: Environment, tmp_path: Path
) -> None:
    path = put_archive(environment)
    tmp_path.joinpath("cache").chmod(0o777)
    assert usable_archive(environment) is None
    # As the system's folder for temporary files: only the owner may rename what is in it.
    tmp_path.joinpath("cache").chmod(0o1777)
    assert usable_archive(environment) == path
    path.rename(tmp_path / "elsewhere.jsa")
    path.symlink_to(tmp_path / "elsewhere.jsa")
    assert usable_archive(environment) is None


# --- options --------------------------------------------------------------------------------------


def test_without_an_archive_it_is_the_quick_compiler_alone(environment: Environment) -> None:
    assert java_options(environment, is_brief=True) == QUICK_COMPILER
    assert java_options(environment, is_brief=False) == ""


def test_options_of_the_user_come_after_ours_where_the_last_one_wins(
    environment: Environment,
) -> None:
    path = put_archive(environment)
    ours = f"{QUICK_COMPILER} -Xshare:auto -XX:SharedArchiveFile={path} -Xlog:cds*=off"
    assert java_options({**environment, VARIABLE: "-Dtheirs=1"}, is_brief=True) == (
        f"{ours} -Dtheirs=1"
    )


@pytest.mark.parametrize("option", ["-XX:TieredStopAtLevel=3", "-XX:-TieredCompilation", "-Xint"])
def test_whoever_chose_compilers_gets_no_other_choice(
    environment: Environment, option: str
) -> None:
    for given in (VARIABLE, "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
        chosen = java_options({**environment, given: option}, is_brief=True)
        assert QUICK_COMPILER not in chosen, given
    settings = {"spark.driver.extraJavaOptions": option}
    assert java_options(environment, settings, is_brief=True) == ""


@pytest.mark.parametrize(
    "option", ["-Xshare:off", "-XX:SharedArchiveFile=/own.jsa", "-XX:ArchiveClassesAtExit=/own.jsa"]
)
def test_whoever_shares_classes_in_another_way_gets_no_archive(
    environment: Environment, tmp_path: Path, option: str
) -> None:
    path = put_archive(environment)
    for given in (VARIABLE, "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
        assert str(path) not in java_options({**environment, given: option}, is_brief=True)
    for name in ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"):
        settings = {name: option}
        assert java_options(environment, settings, is_brief=False) == ""
        assert not lacks_archive(environment, settings)
    conf = tmp_path / "spark" / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(f"spark.driver.extraJavaOptions {option}\n")
    assert java_options(environment, is_brief=False) == ""


def test_classes_before_those_of_spark_fit_no_archive(environment: Environment) -> None:
    put_archive(environment)
    settings = {"spark.driver.extraClassPath": "/own/classes"}
    assert java_options(environment, settings, is_brief=True) == QUICK_COMPILER
    assert not lacks_archive(environment, settings)


def test_one_variable_decides_for_every_spark(environment: Environment) -> None:
    assert java_options({**environment, COMPILER: "full"}, is_brief=True) == ""
    assert java_options({**environment, COMPILER: "quick"}, is_brief=False) == QUICK_COMPILER
    with pytest.raises(InvalidConfig, match=r"LAMINAR_SPARK_COMPILER.*'fast'"):
        java_options({**environment, COMPILER: "fast"}, is_brief=True)


def test_another_make_of_java_is_left_as_it_is(environment: Environment, tmp_path: Path) -> None:
    put_archive(environment)
    (tmp_path / "java" / "release").write_text('JVM_VARIANT="Openj9"')
    assert java_options(environment, is_brief=True) == ""
    assert not lacks_archive(environment, {})
    assert java_options({**environment, "JAVA_HOME": "/nowhere"}, is_brief=True) == ""


def test_a_file_that_is_no_archive_keeps_no_java_from_starting_and_is_not_talked_about(
    environment: Environment,
) -> None:
    found = java.find()
    if found is None:
        pytest.skip("there is no Java")
    environment["JAVA_HOME"] = str(found.home)
    path = put_archive(environment)
    options = java_options(environment, is_brief=True)
    assert str(path) in options
    program = [str(found.home / "bin" / "java"), *options.split()]
    done = subprocess.run([*program, "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "archive" not in done.stdout


def test_a_path_with_white_space_is_one_option(environment: Environment, tmp_path: Path) -> None:
    environment["LAMINAR_CACHE"] = str(tmp_path / 'a "b" c')
    path = put_archive(environment)
    escaped = str(path).replace('"', '\\"')
    assert f'"-XX:SharedArchiveFile={escaped}"' in java_options(environment, is_brief=True)


def test_every_process_of_the_tests_starts_quickly() -> None:
    assert QUICK_COMPILER in os.environ[VARIABLE]


# --- the folder -----------------------------------------------------------------------------------


@pytest.fixture
def quick_maker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files in place of archives, for what is done around them."""

    def make(folder: Path, name: str, *_others: object) -> Path:
        target = folder / f"{name}-3.jsa"
        target.write_bytes(b"new")
        target.chmod(0o400)
        return target

    monkeypatch.setattr(class_archive, "_make", make)


@pytest.mark.usefixtures("quick_maker")
def test_the_folder_is_for_this_account_alone_and_bounded(environment: Environment) -> None:
    folder = archive_folder(environment)
    folder.mkdir(mode=0o700, parents=True)
    for age in range(9):
        old = folder / f"{age}.jsa"
        old.write_bytes(b"old")
        os.utime(old, (1_000 - age, 1_000 - age))
    leftover = folder / ".making-of-a-killed-process"
    leftover.mkdir()
    (leftover / "unfinished.jsa").write_bytes(b"half")
    made = make_archive(environment)
    assert made.is_new
    assert made.size == 3
    assert {path.name for path in folder.iterdir()} == {
        ".lock",
        made.path.name,
        *(f"{age}.jsa" for age in range(5)),
    }
    assert not make_archive(environment).is_new


@pytest.mark.usefixtures("quick_maker")
def test_a_new_folder_is_closed_whatever_the_umask(environment: Environment) -> None:
    before = os.umask(0)
    try:
        make_archive(environment)
    finally:
        os.umask(before)
    assert archive_folder(environment).stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("quick_maker")
def test_a_folder_that_cannot_be_kept_safe_gets_no_archive(environment: Environment) -> None:
    folder = archive_folder(environment)
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(ArchiveNotMade, match="others may write to"):
        make_archive(environment)
    assert not list(folder.glob("*.jsa"))


def test_a_cache_that_cannot_be_written_is_told(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, where the folder would be")
    with pytest.raises(ArchiveNotMade, match="spark-classes: File exists"):
        make_archive(environment)
    # Whoever only wants to run is not bothered with it.
    assert java_options(environment, is_brief=True) == QUICK_COMPILER


def test_a_spark_that_does_not_run_is_told_in_its_own_words(environment: Environment) -> None:
    with pytest.raises(ArchiveNotMade, match="Spark did not run"):
        make_archive(environment)
    assert [path.name for path in archive_folder(environment).iterdir()] == [".lock"]


def test_archives_are_removed(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    run = Laminar()
    assert run("warm-up", "--remove").stdout == "There is no archive.\n"
    put_archive(environment)
    folder = tmp_path / "cache" / "spark-classes"
    assert run.json("warm-up", "--remove") == {"folder": str(folder), "removed": 1, "bytes": 7}
    assert usable_archive(environment) is None
    assert remove_archives(environment) == (0, 0)


def test_an_archive_that_is_there_is_not_made_again(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/false\n")
    program.chmod(0o755)
    monkeypatch.delenv(VARIABLE, raising=False)
    path = put_archive(environment)
    document = Laminar().json("warm-up")
    assert (document["archive"], document["is_new"]) == (str(path), False)
    assert "Spark's classes are kept already" in Laminar()("warm-up").stdout
    json.dumps(document)
