from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from laminar_dagster.cli.main import cli
from laminar_dagster.cli.numbers import EPOCH, EPOCH_OR_BEGINNING, PORT, NumberType
from laminar_dagster.cli.options import DurationType, LimitType, PathType, TextType


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90s", timedelta(seconds=90)),
        ("30m", timedelta(minutes=30)),
        ("1h", timedelta(hours=1)),
        ("1h30m", timedelta(minutes=90)),
        ("2D", timedelta(days=2)),
        ("1w", timedelta(weeks=1)),
        ("1.5h", timedelta(minutes=90)),
        (" 0s ", timedelta(0)),
        ("3650d", timedelta(days=3650)),
    ],
)
def test_reads_durations(text: str, span: timedelta) -> None:
    assert DurationType().convert(text, None, None) == span


@pytest.mark.parametrize("text", ["", "1", "1 h", "h1", "-1h", "1e3s", "3651d", "\u0661h", "1h;2m"])
def test_refuses_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter):
        DurationType().convert(text, None, None)


@pytest.mark.parametrize(("text", "limit"), [("1", 1), ("0", None), ("all", None), ("ALL", None)])
def test_reads_limits(text: str, limit: int | None) -> None:
    assert LimitType().convert(text, None, None) == limit


@pytest.mark.parametrize("text", ["", "-1", "+1", "1_000", "1.0", "every", "\u0661"])
def test_refuses_what_is_no_limit(text: str) -> None:
    with pytest.raises(click.BadParameter):
        LimitType().convert(text, None, None)


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [(EPOCH, "1", 1), (EPOCH, " 007 ", 7), (EPOCH_OR_BEGINNING, "0", 0), (PORT, "65535", 65_535)],
)
def test_reads_numbers(kind: NumberType, text: str, number: int) -> None:
    assert kind.convert(text, None, None) == number


@pytest.mark.parametrize(
    "text", ["", "x", "0", "-1", "+1", "1_000", "1.0", "1e3", "\u0661", str(2**63), "1" * 5000]
)
def test_refuses_what_is_no_number(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not the number of an epoch: a whole number"):
        EPOCH.convert(text, None, None)


def test_a_number_that_is_too_large_is_told_how_large_it_may_be() -> None:
    with pytest.raises(click.BadParameter, match=r"'65536' is not a port: .* from 0 to 65535"):
        PORT.convert("65536", None, None)


def commands(
    group: click.Group = cli, before: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))
        yield (*before, name), command


NUMBERS = [
    (words, parameter)
    for words, command in commands()
    for parameter in command.params
    if isinstance(parameter.type, NumberType)
]


def test_every_number_of_the_command_line_is_read_in_one_place() -> None:
    assert len(NUMBERS) > 12
    plain = (type(click.INT), type(click.FLOAT), click.IntRange, click.FloatRange)
    for words, command in commands():
        for parameter in command.params:
            counts = isinstance(parameter, click.Option) and parameter.count
            assert counts or not isinstance(parameter.type, plain), (words, parameter.name)


@pytest.mark.parametrize(
    ("words", "parameter"), NUMBERS, ids=lambda each: getattr(each, "name", None)
)
def test_a_wrong_number_is_answered_in_words(
    words: tuple[str, ...], parameter: click.Parameter
) -> None:
    option = parameter.opts[:1] if isinstance(parameter, click.Option) else []
    result = CliRunner().invoke(cli, [*words, *option, "x"])
    assert result.exit_code == 2
    told = " ".join(result.output.split())
    assert "'x' is not " in told
    assert "a whole number from " in told
    assert "integer" not in told


TEXTS = [
    (words, parameter)
    for words, command in [((), cli), *commands()]
    for parameter in command.params
    if not (isinstance(parameter, click.Option) and (parameter.is_flag or parameter.count))
]


def test_every_text_of_the_command_line_is_read_in_one_place() -> None:
    plain = (type(click.STRING), type(click.UNPROCESSED))
    for words, parameter in TEXTS:
        assert not isinstance(parameter.type, plain), (words, parameter.name)
        is_path = isinstance(parameter.type, click.Path)
        assert not is_path or isinstance(parameter.type, PathType), (words, parameter.name)


@pytest.mark.parametrize("text", ["", " \t"], ids=["empty", "blank"])
@pytest.mark.parametrize(
    ("words", "parameter"),
    TEXTS,
    ids=lambda each: getattr(each, "name", " ".join(each) if isinstance(each, tuple) else None),
)
def test_an_empty_text_is_refused_before_anything_is_done(
    words: tuple[str, ...],
    parameter: click.Parameter,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is what a shell makes of a variable that is not set."""
    monkeypatch.chdir(tmp_path)
    given = [*words]
    if isinstance(parameter, click.Option):
        given += [parameter.opts[0], text]
    else:
        command = dict(commands())[words]
        arguments = [each for each in command.params if not isinstance(each, click.Option)]
        given += ["1"] * arguments.index(parameter) + [text]
    # A group looks at its options when it has a command.
    given += ["list"] if words == ("checkpoints",) else ["validate"] if not words else []
    result = CliRunner().invoke(cli, given)
    assert result.exit_code == 2, result.output
    if isinstance(parameter.type, TextType | PathType):
        assert "it is empty" in result.output
    assert not [*tmp_path.iterdir()]
