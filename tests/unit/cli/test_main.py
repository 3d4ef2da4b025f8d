from __future__ import annotations

import importlib.metadata
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from laminar_dagster.cli.checkpoints import listing
from laminar_dagster.cli.main import cli
from laminar_dagster.core.errors import StoreUnavailable
from tests.unit.cli.conditions import History, Laminar, Project

CANARY = "canary-4f9c2b7e1d"


def test_tells_its_version() -> None:
    version = importlib.metadata.version("laminar-dagster")
    assert Laminar()("--version").stdout == f"laminar {version}\n"
    assert Laminar().json("--version") == {"version": version}


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_helps_at_every_level(option: str) -> None:
    run = Laminar()
    top = run(option).stdout
    assert "75  a service is away" in top
    # In the order in which they are needed.
    commands = top[top.index("Commands:") : top.index("Exit codes:")]
    names = [line.split()[0] for line in commands.splitlines()[1:] if line.strip()]
    assert names[:6] == ["init", "validate", "sql", "run", "status", "epochs"]
    assert names[-1] == "checkpoints"
    for name in names[:6]:
        assert "--json" in run(name, option).stdout
    group = run("checkpoints", option).stdout
    for name in ("list", "show", "verify", "gc"):
        assert f"\n  {name} " in group
        page = run("checkpoints", name, option)
        assert page.exit_code == 0
        assert "--store URL" in page.stdout
        assert "--json" in page.stdout


@pytest.mark.parametrize("args", [(), ("checkpoints",)])
def test_without_a_command_shows_the_help(args: tuple[str, ...]) -> None:
    result = Laminar()(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: laminar")
    error = Laminar().json(*args, exit_code=2)["error"]
    assert error["kind"] == "usage"


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (("checkpoint", "list"), "did you mean `checkpoints`?"),
        (("checkpoints", "lst"), "did you mean `list`?"),
        (("checkpoints", "verfiy"), "did you mean `verify`?"),
        (("checkpoints", "list", "--limt", "3"), "did you mean `--limit`?"),
        (("checkpoints", "gc", "--dryrun"), "did you mean `--dry-run`?"),
        (("zzz",), "`laminar --help` lists what there is"),
        (("checkpoints", "list", "--zzz"), "`laminar checkpoints list --help` lists what there is"),
    ],
)
def test_suggests_the_nearest_name(args: tuple[str, ...], hint: str) -> None:
    assert Laminar().error(*args, exit_code=2)["hint"] == hint


@pytest.mark.parametrize(
    "args",
    [
        ("checkpoints", "list", "surplus"),
        ("checkpoints", "list", "--limit"),
        ("checkpoints", "show", "--epoch"),
        ("--project",),
    ],
)
def test_wrong_arguments_are_usage_errors(args: tuple[str, ...]) -> None:
    # ``--json`` first: at the end it would be taken for the missing value.
    result = CliRunner().invoke(cli, ["--json", *args])
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["kind"] == "usage"
    assert Laminar()(*args).stderr.startswith("error[usage]: ")


def test_json_may_stand_anywhere(history: History) -> None:
    store = ["--store", str(history.root)]
    for args in (
        ["--json", "checkpoints", "list", *store],
        ["checkpoints", "--json", "list", *store],
        ["checkpoints", "list", "--json", *store],
        ["--json", "checkpoints", "--json", "list", "--json", *store],
    ):
        result = CliRunner().invoke(cli, args)
        assert (result.exit_code, len(json.loads(result.stdout)), result.stderr) == (0, 5, "")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ver"], ["verify"]),
        (["status", "cl"], ["clicks"]),
        (["epochs", "show", "1", ""], ["clicks"]),
        (["status", "no"], []),
        (["run", "--until"], ["--until-caught-up"]),
    ],
)
def test_a_shell_completes_commands_options_and_pipelines(
    project: Project, words: list[str], offered: list[str]
) -> None:
    line = ["laminar", "--project", str(project.root), *words]
    told = CliRunner().invoke(
        cli,
        env={
            "COMP_WORDS": shlex.join(line[:-1]) + f" {line[-1]}",
            "COMP_CWORD": str(len(line) - 1),
            "_LAMINAR_COMPLETE": "bash_complete",
        },
        prog_name="laminar",
    )
    assert [each.removeprefix("plain,") for each in told.stdout.split()] == offered


def _fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> Any:
        raise error

    monkeypatch.setattr(listing, "open_checkpoints", fail)


def test_an_error_tells_kind_message_hint_exit_code_and_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _fail_with(StoreUnavailable("s3://bucket", "it does not answer"), monkeypatch)
    assert Laminar().error("checkpoints", "list", exit_code=75) == {
        "kind": "store_unavailable",
        "message": "object store s3://bucket is away: it does not answer",
        "hint": "check that the store is up and reachable, then run the command again",
        "exit_code": 75,
        "context": {"store": "s3://bucket", "reason": "it does not answer"},
    }


def test_ctrl_c_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_with(KeyboardInterrupt(), monkeypatch)
    result = Laminar()("checkpoints", "list")
    assert result.exit_code == 130
    assert result.stderr.strip() == "error[interrupted]: interrupted"
    assert Laminar().json("checkpoints", "list", exit_code=130)["error"]["kind"] == "interrupted"


def test_a_bug_is_told_without_a_traceback_unless_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_with(ZeroDivisionError("oh"), monkeypatch)
    error = Laminar().error("checkpoints", "list", exit_code=1)
    assert (error["kind"], error["message"]) == ("internal", "ZeroDivisionError: oh")
    assert "Traceback" not in Laminar()("checkpoints", "list").stderr
    monkeypatch.setenv("LAMINAR_DEBUG", "1")
    result = Laminar()("checkpoints", "list", "--json")
    assert result.stderr.startswith("Traceback")
    assert json.loads(result.stdout)["error"]["kind"] == "internal"


def test_a_reader_that_went_away_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_with(BrokenPipeError(32, "Broken pipe"), monkeypatch)
    result = Laminar()("checkpoints", "list")
    assert (result.exit_code, result.output) == (1, "")


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(
    "url",
    [
        f"s3://user:{CANARY}@bucket/x",
        f"s3://bucket/x?secret_key={CANARY}",
        f"s3://bucket/x?endpoint=http://user:{CANARY}@127.0.0.1:1",
        f"s3://bucket/x?endpoint=http%3A%2F%2Fuser%3A{CANARY}%40127.0.0.1%3A1",
        f"s3://AKIA:half/{CANARY}@bucket/x",
        f"postgres://user:{CANARY}@host/db",
        f"s3://user:{CANARY}@[half",
    ],
)
def test_an_address_with_credentials_is_never_repeated(
    url: str, as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAMINAR_DEBUG", "1")
    extra = ["--json"] if as_json else []
    for args in (
        ["checkpoints", "list", "--store", url],
        ["checkpoints", "list", url],
        ["checkpoints", "show", url, "--store", str(tmp_path)],
        ["checkpoints", "list", "--limit", url],
        [url],
    ):
        result = CliRunner().invoke(cli, [*args, *extra])
        assert result.exit_code == 2
        assert CANARY not in result.output


@pytest.mark.parametrize("debug", ["", "1"])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_secret_of_the_environment_is_never_printed(
    as_json: bool, debug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    monkeypatch.setenv("LAMINAR_DEBUG", debug)
    extra = ["--json"] if as_json else []
    for error in (RuntimeError(f"key {CANARY}"), StoreUnavailable("s3://b", f"said {CANARY}")):
        _fail_with(error, monkeypatch)
        result = CliRunner().invoke(cli, ["checkpoints", "list", *extra])
        assert "***" in result.output
        assert CANARY not in result.output


def test_a_letter_that_the_terminal_lacks_is_written_as_its_number(history: History) -> None:
    runner = CliRunner(charset="latin-1")
    args = ["checkpoints", "show", "größe-ж", "--store", str(history.root)]
    assert r"größe-\u0436" in runner.invoke(cli, args).stderr
    document = json.loads(runner.invoke(cli, [*args, "--json"]).stdout)
    assert document["error"]["context"]["value"] == "größe-ж"
