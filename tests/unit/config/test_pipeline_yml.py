"""``pipeline.yml`` and contracts: every mistake with its line and the nearest spelling."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path

import pytest

from laminar_dagster.config.cron import check_cron
from laminar_dagster.config.mistakes import InvalidPipeline, Mistake
from laminar_dagster.config.pipeline import read_pipeline
from laminar_dagster.config.project import load_pipeline, load_project
from laminar_dagster.config.units import parse_duration, parse_size
from laminar_dagster.core.errors import InvalidConfig
from tests.unit.config.folders import CONFIG, SOURCES, load, mistakes, write

PROJECT = Path(__file__).parent / "projects"


def test_the_example_project_loads() -> None:
    (model,) = load_project(PROJECT, {})
    config = model.config
    assert (config.buckets, config.epoch.byte_limit) == (4, 256 * 1024**2)
    assert (config.epoch.longest_wait, config.idle_after) == (
        timedelta(seconds=5),
        timedelta(seconds=30),
    )
    assert [each.name for each in model.views] == ["valid_clicks", "clicks_per_minute"]
    assert [each.sink_id for each in model.sinks] == ["minutes", "minutes_delta"]
    assert [each.view for each in model.contracts] == ["clicks_per_minute"]
    assert model.warnings == ()


def test_defaults(tmp_path: Path) -> None:
    config = read_pipeline(write(tmp_path, {}))
    assert (config.buckets, config.determinism, config.on_bad_record, config.on_gap) == (
        *(8, "block"),
        *("dead_letter", "fail"),
    )
    assert load(tmp_path, {}).warnings == (
        f"{tmp_path}/shop: the pipeline has no view (so it computes nothing)",
    )


WRONG = [
    ("bukets: 3", "3: unknown key `bukets` (did you mean `buckets`?)"),
    ("buckets: 0", "3: Expected `int` >= 1"),
    ("buckets: many", "3: Expected `int`, got `str`"),
    ("determinism: wran", "3: Invalid enum value 'wran'"),
    ("epoch: {max_byts: 3}", "3: unknown key `max_byts` (did you mean `max_bytes`?)"),
    ("epoch: {max_bytes: 3XB}", "3: '3XB' is not a size such as 1000000, 256MiB or 1GB"),
    ("epoch: {max_delay: soon}", "3: 'soon' is not a duration such as 500ms, 30s, 15m, 1h or 7d"),
    ("idle_timeout: 30", "3: Expected `str`, got `int`"),
    ("schedule: '* * *'", "1: '* * *' is not a schedule: five fields are expected"),
    ("schedule: '61 * * * *'", "1: '61' is not a minute: a number from 0 to 59, a range, or *"),
    ("spark: {shuffle: 3}", "1: `shuffle` under `spark` is no setting of Spark"),
    ("spark: [a]", "3: a mapping is expected here"),
    ("sinks: {name: x}", "3: a list is expected here"),
    ("sinks:\n- {name: x, veiw: v, connector: c}", "4: unknown key `veiw` (did you mean `view`?)"),
    ("sinks:\n- {name: ../x, view: v, connector: c}", "4: sink id '../x' must not begin"),
    ("sources:\n- {name: s, connector: f, columns: {x: BIGNT}}", "4: `BIGNT` is not a type (did"),
    ("store: a", "3: `store` stands here twice"),
    ("x: !!python/object:os.system {}", "3: unknown key `x`"),
    ("description: !!python/name:os.system ''", "3: this value cannot be read"),
    ("description: 2020-99-99", "3: this value cannot be read"),
    ("? [a]\n: b", "3: a key is a plain name"),
    ("a: &a [x]\nb: *a", "4: aliases are not allowed (write it out)"),
    ("a: [", "4: expected the node content"),
]


@pytest.mark.parametrize(("line", "expected"), WRONG)
def test_a_mistake_has_its_line(tmp_path: Path, line: str, expected: str) -> None:
    found = mistakes(tmp_path, {"pipeline.yml": f"{CONFIG}{line}\n"})
    assert found[0].startswith(f"pipeline.yml:{expected}")


def test_the_name_is_that_of_the_folder(tmp_path: Path) -> None:
    found = mistakes(tmp_path, {"pipeline.yml": "store: x\nname: other\n"})
    assert found == [
        "pipeline.yml:2: `name` is 'other', and its folder is 'shop' (give both the same name)"
    ]


CONTRACTS = [
    ("n: {dtyp: int64}", "5: column `n` has no key `dtyp` (did you mean `dtype`?)"),
    ("n: {checks: {grater_than: 0}}", "5: there is no check `grater_than` (did you mean `gr"),
    ("n: {dtype: no_such_type}", "5: `no_such_type` is not the type of a column (write the"),
    ("n: {checks: {in_range: {min_value: 5, max_value: 0}}}", " pandera does not take this"),
    ("n: {checks: {__class__: 0}}", "5: there is no check `__class__`"),
    ("nn: {dtype: int64}", "5: view `per_minute` has no column `nn` (did you mean `n`?)"),
    ("n: 3", "5: column `n` is a mapping"),
]


@pytest.mark.parametrize(("column", "expected"), CONTRACTS)
def test_a_contract_is_checked(tmp_path: Path, column: str, expected: str) -> None:
    text = f"schema_type: dataframe\n\n\ncolumns:\n  {column}\n"
    files = {"a.sql": SOURCES, "contracts/per_minute.yml": text}
    (found,) = mistakes(tmp_path, files)
    assert found.startswith(f"contracts/per_minute.yml:{expected}")


def test_a_contract_is_for_a_view(tmp_path: Path) -> None:
    files = {"a.sql": SOURCES, "contracts/per_minut.yml": "columns: {}\n"}
    assert mistakes(tmp_path, files) == [
        "contracts/per_minut.yml: there is no view `per_minut` for this contract "
        "(did you mean `per_minute`?)"
    ]


def test_a_project_tells_the_mistakes_of_all_its_pipelines(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / "dbt_like_configs" / name
        folder.mkdir(parents=True)
        (folder / "pipeline.yml").write_text(f"name: {name}\nstor: x\n")
    with pytest.raises(InvalidPipeline) as caught:
        load_project(tmp_path, {})
    assert len(caught.value.mistakes) == 4


def test_the_error_pickles_and_keeps_its_mistakes() -> None:
    error = InvalidPipeline.of([Mistake("b.sql:2:1", "y", "z"), Mistake("a.sql:10:3", "x")])
    copy = pickle.loads(pickle.dumps(error))
    assert copy.mistakes == error.mistakes
    assert (copy.kind, copy.where, str(copy)) == (
        *("invalid_config", "a.sql:10:3"),
        "a.sql:10:3: x; b.sql:2:1: y (z)",
    )
    many = InvalidPipeline.of([Mistake("a", str(number)) for number in range(500)])
    assert len(many.mistakes) == 100
    assert str(many).endswith("; and more")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"pipeline\.yml: it cannot be read: No such file"):
        load_pipeline(tmp_path, {})


@pytest.mark.parametrize("text", ["*/5 * * * *", "0 2 1-15,20 jan-mar MON", "@daily", "0 0 * * 7"])
def test_schedules(tmp_path: Path, text: str) -> None:
    root = write(tmp_path, {"pipeline.yml": f"{CONFIG}schedule: '{text}'\n"})
    assert read_pipeline(root).schedule == text


@pytest.mark.parametrize(
    "text", ["", "@never", "* * * * * *", "*/0 * * * *", "5-1 * * * *", "a * * * *"]
)
def test_no_schedules(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        check_cron(text)


def test_units() -> None:
    assert parse_duration("1.5h") == timedelta(minutes=90)
    assert parse_size("2GB") == 2_000_000_000
    for wrong in ("", "0", "-1", True, 2**70):
        with pytest.raises(ValueError, match="is not a size"):
            parse_size(wrong)
