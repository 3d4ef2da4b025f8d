"""``laminar plan`` on reference tables that come, move and go."""

from __future__ import annotations

from laminar_dagster.config.definition import define
from laminar_dagster.config.project import load_pipeline
from laminar_dagster.runtime.assembly import build_reference, known_connectors
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.testing.memory_pipeline import (
    MemoryEngine,
    MemoryLog,
    MemorySink,
    MemorySource,
    MemoryTable,
)
from tests.unit.cli.conditions import Project

TABLE = """\
CREATE REFERENCE TABLE pages (page STRING, section STRING, PRIMARY KEY (page))
WITH (connector = 'file', path = 'pages.csv', format = 'csv');
"""
VIEW = """\
SELECT p.section, COUNT(*) AS n FROM clicks c JOIN pages p ON c.page = p.page
GROUP BY TUMBLE(c.ts, INTERVAL '1' MINUTE), p.section
"""


class Running:
    """The project's pipeline, which pins its tables and computes in memory."""

    def __init__(self, project: Project) -> None:
        for name in ("pages.csv", "other.csv"):
            (project.root / name).write_text("page,section\n/,home\n")
        (project.folder / "models/per_section.sql").write_text(VIEW)
        (project.folder / "tables.sql").write_text(TABLE)
        self.project = project
        self.log, self.table = MemoryLog([[]]), MemoryTable()

    def run(self) -> None:
        """An epoch."""
        root, store = self.project.root, LocalStore(self.project.store)
        model = load_pipeline(self.project.folder, connectors=known_connectors())
        self.log.partitions[0].append(1)
        pipeline = Pipeline(
            name=model.config.name,
            fingerprint=model.fingerprint,
            checkpoints=CheckpointStore(store),
            engine=MemoryEngine(store, self.log),
            sources=(MemorySource(self.log),),
            sinks=(MemorySink(self.table),),
            references=tuple(build_reference(each, root) for each in model.references),
            definition=define(model),
        )
        EpochRunner(pipeline).run()


def tables(project: Project) -> list[tuple[str, str]]:
    found = project.laminar.json("plan")["others"]
    return [(each["name"], each["change"]) for each in found if each["kind"] == "table"]


def test_a_table_that_comes_moves_and_goes(project: Project) -> None:
    running = Running(project)
    running.run()
    assert tables(project) == []
    project.edit("tables.sql", "pages.csv", "other.csv")
    assert tables(project) == [("pages", "declared otherwise: is copied anew for the next epoch")]
    found = project.laminar.json("plan")
    assert found["verdict"] == "keep"
    (operator,) = (each for each in found["operators"] if each["operator"] == "per_section")
    assert operator["verdict"] == "keep"
    assert operator["reasons"] == [
        "`pages` is declared otherwise: records meet its new rows from the next epoch on, as after"
        " a refresh"
    ]
    human = " ".join(project.laminar("plan").stdout.split())
    assert "as after a refresh" in human and "declared otherwise: is copied anew" in human
    # And so it is: the next epoch goes on, with the table from there.
    running.run()
    assert tables(project) == []
    project.edit("tables.sql", "pages (", "sites (")
    project.edit("models/per_section.sql", "pages", "sites")
    changed = project.laminar.json("plan", exit_code=3)
    assert [each["change"] for each in changed["others"] if each["kind"] == "table"] == [
        "new: is copied for the next epoch",
        "no longer there; nothing is removed",
    ]


def test_a_column_of_a_table_that_the_state_goes_by_may_not_change_its_type(
    project: Project,
) -> None:
    Running(project).run()
    project.edit("tables.sql", "section STRING", "section INT")
    found = project.laminar.json("plan", exit_code=3)
    reasons = {each["operator"]: each["reasons"] for each in found["operators"]}
    assert reasons["per_section"] == ["`pages.section` was STRING, and is INT"]
