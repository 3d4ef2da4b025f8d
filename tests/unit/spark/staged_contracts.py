"""Stages rows as executors do, under a contract, and says what the epoch breaks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from laminar_dagster.config.contract_rules import ContractRules
from laminar_dagster.config.contracts import read_contract
from laminar_dagster.config.mistakes import Report
from laminar_dagster.config.model import Place, View
from laminar_dagster.config.relations import PythonRows
from laminar_dagster.core.ids import CheckpointId, OperatorId, SinkId
from laminar_dagster.spark.columns import CONTROL, KEEP, PART
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.reports import sort_out
from laminar_dagster.spark.staging import REPORT, StageStep
from laminar_dagster.testing.memory_store import MemoryStore

ATTEMPT = CheckpointId.from_parts(1, 1)


def read_rules(folder: Path, text: str, columns: Sequence[str]) -> ContractRules:
    """The rules of a contract for a view ``v`` of these columns; what is wrong fails."""
    contract, report = read(folder, text, columns)
    assert not report.mistakes, [str(each) for each in report.mistakes]
    assert contract
    return contract


def read(folder: Path, text: str, columns: Sequence[str]) -> tuple[ContractRules | None, Report]:
    """The rules of a contract, and what is wrong with it. pandera is not asked."""
    path = folder / "v.yml"
    path.write_text(text)
    query = PythonRows.__new__(PythonRows)
    view = View(OperatorId("v"), query, "", Place("v.sql", 1), tuple(columns))
    report = Report()
    contract = read_contract(path, [view], report, builds=False)
    return (contract.rules if contract else None), report


def broken(
    rules: ContractRules,
    files: Sequence[Mapping[str, pa.Array]],
    weights: Sequence[Sequence[int]] | None = None,
    *,
    takes_back_first: bool = False,
) -> list[str]:
    """What an epoch breaks whose rows lie in these files, each written by a task of its own.

    Args:
        rules: Of the contract.
        files: The columns of each.
        weights: For each file, whether its rows come (1) or are taken back (-1).
        takes_back_first: As for ``StageStep``.
    """
    store = MemoryStore()
    texts: list[str] = []
    for part, columns in enumerate(files):
        step = StageStep("v", (SinkId("s"),), False, takes_back_first, rules, ATTEMPT, store)
        rows = len(next(iter(columns.values())))
        batch: dict[str, Any] = {
            PART: pa.array([part] * rows, pa.int64()),
            CONTROL: pa.nulls(rows, pa.string()),
            KEEP: pa.array([True] * rows),
            **columns,
        }
        if weights:
            batch[WEIGHT] = pa.array(weights[part], pa.int8())
        outs = list(step(iter([pa.record_batch(batch)])))
        texts += [text for out in outs for text in out.column(REPORT).to_pylist()]
    assert sum("staged" in json.loads(text) for text in texts) >= len(files)
    return [each.problem for each in sort_out(texts, ATTEMPT).broken]
