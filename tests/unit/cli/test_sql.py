from __future__ import annotations

import pytest

from tests.unit.cli.conditions import Project


def test_shows_the_parts_of_a_pipeline(project: Project) -> None:
    told = project.laminar("sql", "SHOW SOURCES").stdout.splitlines()
    assert told[0].split("  ")[0] == "SOURCE"
    assert told[1].startswith("clicks  file")
    document = project.laminar.json("sql", "show materialized views;", "clicks")
    assert document["columns"] == ["View", "Reads", "Columns", "Defined at"]
    assert [row["View"] for row in document["rows"]] == ["clicks_per_minute", "purchases"]


def test_describes_with_notes(project: Project) -> None:
    told = project.laminar("sql", "DESCRIBE SOURCE clicks").stdout
    assert "user_id  BIGINT         NO" in told
    assert "\nconnector: file\n" in told
    told = project.laminar("sql", "DESCRIBE MATERIALIZED VIEW purchases").stdout
    assert "\nWHERE amount > 0" in told


def test_nothing_is_said_in_words(project: Project) -> None:
    (project.folder / "sinks.sql").unlink()
    assert project.laminar("sql", "SHOW SINKS").stdout == "None.\n"
    assert project.laminar.json("sql", "SHOW SINKS")["rows"] == []


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("SHWO SOURCES", "did you mean `SHOW`?"),
        ("DESCRIBE SOURCE clcks", "did you mean `clicks`?"),
        (";", "for example SHOW SOURCES"),
        ("", "`laminar sql --help` shows what it takes"),
    ],
)
def test_a_wrong_statement_is_a_usage_error(project: Project, statement: str, hint: str) -> None:
    error = project.laminar.error("sql", statement, exit_code=2)
    assert error["hint"] == hint


def test_a_secret_is_not_shown(project: Project) -> None:
    server = "connector = 'postgres', host = 'localhost', database = 'd', user = 'u'"
    sink = f"CREATE SINK s FROM purchases WITH ({server}, table = 't', password = 'canary-1');"
    (project.folder / "secret.sql").write_text(sink)
    told = project.laminar("sql", "DESCRIBE SINK s")
    assert told.exit_code == 0
    assert "localhost" in told.output
    assert "canary-1" not in told.output
