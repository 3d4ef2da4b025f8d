from __future__ import annotations

import re

import pytest

from laminar_dagster.cli.tables import Column, Fields, Line, Table, show

STYLE = re.compile(r"\x1b\[[0-9;]*m")
TABLE = Table(
    (
        Column("id"),
        Column("size", right=True, optional=1),
        Column("name", optional=2),
        Column("note", folds=10),
    ),
    [("a" * 20, "1 B", "n" * 20, "latest"), ("b", "22 KiB", "", "damaged: it is cut off")],
)


def test_plain_text_is_aligned_and_names_empty_cells(capsys: pytest.CaptureFixture[str]) -> None:
    show([Fields([("one", "1"), ("three", "")]), TABLE, Line("done")])
    assert capsys.readouterr().out.splitlines() == [
        "one:   1",
        "three: -",
        f"ID{' ' * 18}    SIZE  NAME{' ' * 18}NOTE",
        f"{'a' * 20}     1 B  {'n' * 20}  latest",
        f"b{' ' * 19}  22 KiB  -{' ' * 21}damaged: it is cut off",
        "done",
    ]


def test_a_title_is_set_off_but_not_at_the_top(capsys: pytest.CaptureFixture[str]) -> None:
    titled = Table((Column("x"),), [("1",)], "Title")
    show([titled, titled])
    assert capsys.readouterr().out == "Title\nX\n1\n\nTitle\nX\n1\n"


def _on_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    show([Table(TABLE.columns, TABLE.rows, "Things"), Fields([("label", "value")]), Line("done")])
    return capsys.readouterr().out


def test_a_wide_terminal_shows_every_column_in_colour(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = _on_terminal(100, monkeypatch, capsys)
    assert "\x1b[31mdamaged: it is cut off" in out
    text = STYLE.sub("", out)
    assert text.startswith("Things\n")
    assert "n" * 20 in text
    assert "Left out" not in text
    assert "label  value\ndone\n" in text


@pytest.mark.parametrize(("width", "left_out"), [(60, "name"), (42, "name"), (34, "size, name")])
def test_a_narrow_terminal_leaves_columns_out_rather_than_cut_cells(
    width: int, left_out: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = STYLE.sub("", _on_terminal(width, monkeypatch, capsys))
    assert "a" * 20 in text
    assert "latest" in text
    table, _, rest = text.partition("Left out, the terminal is too narrow: ")
    assert rest.splitlines()[0] == left_out
    assert max(map(len, table.splitlines())) <= width


def test_no_colour_when_none_is_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = _on_terminal(100, monkeypatch, capsys)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", out)


@pytest.mark.parametrize("forced", [False, True])
def test_cells_cannot_steer_the_terminal(
    forced: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if forced:
        monkeypatch.setenv("FORCE_COLOR", "1")
    evil = "\x1b]0;title\x07[bold]x\rhidden :smile:"
    show([Table((Column("x"),), [(evil,)]), Fields([("y", evil)]), Line(evil)])
    out = STYLE.sub("", capsys.readouterr().out)
    assert out.count(r"\x1b]0;title\x07[bold]x\rhidden :smile:") == 3
    assert "\x07" not in out
    assert "\r" not in out
