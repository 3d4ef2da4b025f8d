"""Keep, migrate, rescale or rebuild: decided from two definitions alone."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from laminar_dagster.core.definition import OperatorDefinition, PipelineDefinition
from laminar_dagster.core.deployment import (
    OperatorChange,
    Verdict,
    compare_definitions,
    is_wider,
)
from laminar_dagster.core.ids import OperatorId, PipelineName

OPERATOR = OperatorDefinition(
    operator_id=OperatorId("sums"),
    time="ts",
    size_micros=60_000_000,
    slide_micros=60_000_000,
    keys=("page",),
    partials=("count(*)", "sum(price)", "max(n)"),
    where="n > 0",
    reads={"clicks": "as files", "clean": "a view"},
    columns={"clicks.page": "string", "clicks.price": "decimal(10,2)", "clicks.n": "int"},
    arguments=("clicks.price",),
)


def definition(*operators: OperatorDefinition, buckets: int = 8) -> PipelineDefinition:
    return PipelineDefinition(
        version=1,
        pipeline=PipelineName("shop"),
        fingerprint="f",
        buckets=buckets,
        operators=operators,
    )


def changed(**parts: Any) -> OperatorChange:
    new = structs.replace(OPERATOR, **parts)
    (found,) = compare_definitions(definition(OPERATOR), definition(new))
    return found


CASES: list[tuple[dict[str, Any], Verdict, str]] = [
    ({}, "keep", ""),
    ({"partials": ("max(n)", "count(*)", "sum(price)")}, "keep", ""),
    ({"partials": ("count(*)",)}, "migrate", "`sum(price)`, `max(n)` is left out"),
    ({"partials": (*OPERATOR.partials, "min(n)")}, "rebuild", "open windows hold no `min(n)`"),
    ({"partials": (*OPERATOR.partials, "min(n)")}, "rebuild", "with `state.added = 'null'`"),
    (
        {"partials": (*OPERATOR.partials, "min(n)"), "on_added": "null"},
        "migrate",
        "`min(n)` is added: NULL in rows that are there, exact in all that begin",
    ),
    (
        {"partials": (*OPERATOR.partials, "min(n)"), "on_added": "from_now"},
        "migrate",
        "`min(n)` is added: counted from the next epoch on, also in rows there are",
    ),
    ({"on_added": "null"}, "keep", ""),
    ({"time": "at"}, "rebuild", "event time was `ts`, and is `at`"),
    ({"size_micros": 120_000_000}, "rebuild", "the window was 60 s, and is 120 s every 60 s"),
    ({"keys": ()}, "rebuild", "the keys were `page`, and are nothing"),
    ({"where": None}, "rebuild", "filtered by `n > 0`, and the filter is nothing"),
    ({"where": "x" * 999}, "rebuild", "…"),
    ({"reads": {"clicks": "as files"}}, "rebuild", "`clean`, which it reads, is no longer read"),
    (
        {"reads": {**OPERATOR.reads, "more": "x"}},
        "rebuild",
        "`more`, which it reads, was not read before",
    ),
    (
        {"reads": {**OPERATOR.reads, "clicks": "csv"}},
        "rebuild",
        "`clicks`, which it reads, has changed",
    ),
    (
        {"columns": {**OPERATOR.columns, "clicks.price": "decimal(12,2)"}},
        "migrate",
        "`clicks.price` is widened from DECIMAL(10,2) to DECIMAL(12,2)",
    ),
    (
        {"columns": {**OPERATOR.columns, "clicks.price": "double"}},
        "rebuild",
        "`clicks.price` was DECIMAL(10,2), and is DOUBLE",
    ),
    (
        {"columns": {**OPERATOR.columns, "clicks.n": "bigint"}},
        "rebuild",
        "`clicks.n` was INT, and is BIGINT",
    ),
    ({"columns": {**OPERATOR.columns, "clicks.more": "date"}}, "keep", ""),
]


@pytest.mark.parametrize(("parts", "verdict", "reason"), CASES)
def test_a_change_and_its_verdict(parts: dict[str, Any], verdict: Verdict, reason: str) -> None:
    found = changed(**parts)
    assert found.verdict == verdict
    assert bool(found.reasons) == (verdict != "keep")
    assert not reason or any(reason in each for each in found.reasons)


OPERATOR_IN_PYTHON = structs.replace(
    OPERATOR, kept_as="operator", partials=(), state={"n": "int32", "old": "string"}, code="1"
)


@pytest.mark.parametrize(
    ("parts", "verdict", "reason"),
    [
        ({"code": "2"}, "migrate", "its code has changed, and goes on with the state"),
        (
            {"state": {"n": "int32", "old": "string", "new": "int64"}},
            "migrate",
            "`new` is added to its state, null for keys that are there",
        ),
        ({"state": {"n": "int32"}}, "migrate", "`old` is left out of its state"),
        (
            {"state": {"n": "int64", "old": "string"}},
            "migrate",
            "`n` of its state is widened from int32 to int64",
        ),
        (
            {"state": {"n": "string", "old": "string"}},
            "rebuild",
            "`n` of its state was int32, and is string",
        ),
        ({"version_of_state": "2"}, "rebuild", "its version was nothing, and is `2`"),
        ({"lateness_micros": 2_000_000}, "rebuild", "up to 0 s late, and are to be up to 2 s"),
        ({"gap_micros": 5_000_000}, "rebuild", "for ever, and are to be kept for 5 s after the"),
        ({"weight": "_weight"}, "rebuild", "rows were weighed by nothing, and are by `_weight`"),
        ({"kept_as": None}, "rebuild", "as an operator, and is to be kept until windows close"),
        ({"offset_micros": 1_000_000}, "rebuild", "and is 60 s, shifted by 1 s"),
        ({"slide_micros": 30_000_000, "grows": True}, "rebuild", "60 s in steps of 30 s"),
        ({"size_micros": 0, "slide_micros": 0}, "rebuild", "the window was 60 s, and is none"),
    ],
)
def test_a_changed_operator_in_python(parts: dict[str, Any], verdict: Verdict, reason: str) -> None:
    new = structs.replace(OPERATOR_IN_PYTHON, **parts)
    (found,) = compare_definitions(definition(OPERATOR_IN_PYTHON), definition(new))
    assert found.verdict == verdict
    assert any(reason in each for each in found.reasons), found.reasons


def test_what_weighs_its_rows_cannot_begin_in_the_middle() -> None:
    weighed = structs.replace(OPERATOR, kept_as="group", weight="_weight", on_added="from_now")
    more = structs.replace(weighed, partials=(*OPERATOR.partials, "sum(n)"))
    (found,) = compare_definitions(definition(weighed), definition(more))
    assert found.verdict == "rebuild"
    assert found.reasons[0].startswith("its state holds no `sum(n)`, and would take back what")
    more = structs.replace(more, on_added="null")
    assert compare_definitions(definition(weighed), definition(more))[0].verdict == "migrate"


def test_ranks_get_no_columns() -> None:
    ranks = structs.replace(OPERATOR, kept_as="rank", on_added="null")
    more = structs.replace(ranks, partials=(*OPERATOR.partials, "m"))
    (found,) = compare_definitions(definition(ranks), definition(more))
    assert found.verdict == "rebuild"
    assert "what was left out of them cannot be had back" in found.reasons[0]


def test_the_same_input_is_the_same_whatever_is_read_by_name() -> None:
    """An input that was not written down is compared by the names of what is read."""
    old = structs.replace(OPERATOR, input="1")
    renamed = {"clicks": "as files", "clear": "a view"}
    for before, after, verdict in (
        ("1", "1", "keep"),
        ("1", "2", "rebuild"),
        (None, "1", "rebuild"),
    ):
        first = structs.replace(old, input=before)
        second = structs.replace(old, input=after, reads=renamed)
        (found,) = compare_definitions(definition(first), definition(second))
        assert found.verdict == verdict


OVER_A_TABLE = structs.replace(
    OPERATOR,
    input="1",
    reads={**OPERATOR.reads, "pages": "in a.csv"},
    columns={**OPERATOR.columns, "pages.section": "int"},
    references={"pages": "a.csv, with int"},
)
MOVED = {**OVER_A_TABLE.reads, "pages": "in b.csv"}
TOLD = (
    "`pages` is declared otherwise: records meet its new rows from the next epoch on, as after a"
    " refresh"
)


@pytest.mark.parametrize("told", [None, "2"])
def test_a_table_that_moved_is_told_and_kept(told: str | None) -> None:
    """Also where the views cannot be told by their digest."""
    new = structs.replace(
        OVER_A_TABLE, input=told, reads=MOVED, references={"pages": "b.csv, with int"}
    )
    (found,) = compare_definitions(definition(OVER_A_TABLE), definition(new))
    assert (found.verdict, found.reasons) == ("keep", (TOLD,))
    fewer = structs.replace(new, partials=("count(*)", "max(n)"))
    (found,) = compare_definitions(definition(OVER_A_TABLE), definition(fewer))
    assert (found.verdict, found.reasons) == ("migrate", ("`sum(price)` is left out", TOLD))
    (found,) = compare_definitions(definition(OVER_A_TABLE), definition(fewer, buckets=9))
    assert (found.verdict, found.reasons[1:]) == ("rescale", ("`sum(price)` is left out", TOLD))


def test_a_table_that_has_to_stay_is_a_rebuild_however_it_is_declared_otherwise() -> None:
    for old, reads, verdict in (
        (OVER_A_TABLE, OVER_A_TABLE.reads, "rebuild"),
        # What its columns were was not written down then.
        (structs.replace(OVER_A_TABLE, references={}), OVER_A_TABLE.reads, "keep"),
        (structs.replace(OVER_A_TABLE, references={}), MOVED, "rebuild"),
    ):
        new = structs.replace(
            OVER_A_TABLE, reads=reads, references={"pages": "other"}, fixed=("pages",)
        )
        (found,) = compare_definitions(definition(old), definition(new))
        assert found.verdict == verdict
        assert TOLD not in found.reasons


def test_a_table_that_was_not_read_before_is_a_rebuild() -> None:
    new = structs.replace(OVER_A_TABLE, input="2")
    (found,) = compare_definitions(definition(OPERATOR), definition(new))
    assert (found.verdict, found.reasons) == (
        "rebuild",
        ("`pages`, which it reads, was not read before",),
    )


SPREAD = "its state is spread over 8 buckets, not 9"


def test_other_buckets_alone_are_a_rescale() -> None:
    (found,) = compare_definitions(definition(OPERATOR), definition(OPERATOR, buckets=9))
    assert (found.verdict, found.reasons) == ("rescale", (SPREAD,))


def test_a_rescale_converts_what_is_to_be_converted() -> None:
    fewer = structs.replace(OPERATOR, partials=("count(*)", "max(n)"))
    (found,) = compare_definitions(definition(OPERATOR), definition(fewer, buckets=9))
    assert (found.verdict, found.reasons) == ("rescale", (SPREAD, "`sum(price)` is left out"))


def test_other_buckets_and_another_obstacle_are_a_rebuild() -> None:
    other = structs.replace(OPERATOR, time="at")
    (found,) = compare_definitions(definition(OPERATOR), definition(other, buckets=9))
    assert (found.verdict, found.reasons) == (
        "rebuild",
        (SPREAD, "event time was `ts`, and is `at`"),
    )


def test_without_keys_there_is_nothing_to_spread() -> None:
    whole = structs.replace(OPERATOR, keys=())
    (found,) = compare_definitions(definition(whole), definition(whole, buckets=9))
    assert (found.verdict, found.reasons) == ("keep", ())


def test_operators_that_come_and_go() -> None:
    other = structs.replace(OPERATOR, operator_id=OperatorId("others"))
    found = compare_definitions(definition(OPERATOR), definition(other))
    assert [(each.operator_id, each.verdict) for each in found] == [
        ("others", "new"),
        ("sums", "drop"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("int", "bigint", True),
        ("INT", "int", True),
        ("bigint", "int", False),
        ("float", "double", True),
        ("decimal(10,2)", "decimal(10, 2)", True),
        ("decimal(10,2)", "decimal(9,2)", False),
        ("decimal(10,2)", "decimal(10,3)", False),
        ("string", "string", True),
        ("string", "int", False),
    ],
)
def test_a_wider_type(old: str, new: str, expected: bool) -> None:
    assert is_wider(old, new) is expected
