"""The example project: the files that ``laminar init`` and ``dg scaffold`` write.

Its input is the same clicks every time, as real input looks: most come a little out of order, some
come too late for their watermark, and some lines are broken.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from typing import Final

from laminar_dagster.config.json_schema import pipeline_schema
from laminar_dagster.config.pipeline import FOLDER
from laminar_dagster.core.ids import PipelineName

SERVERS: Final = ("a", "b")

_TEMPLATE: Final = "project_template"
_SUFFIX: Final = ".template"
_PLACEHOLDER: Final = "__pipeline__"
_CONFIG: Final = "pipeline.yml"
_SCHEMA: Final = "pipeline.schema.json"
# A statement with this option is left out where the module is not installed: it would be refused.
_NEEDS: Final = {"connector = 'delta'": "deltalake"}

_BEGIN: Final = datetime(2026, 1, 1, 9, 0, tzinfo=UTC)
_CLICKS: Final = 300
_PAGES: Final = ("/", "/shop", "/shop/cart", "/shop/checkout", "/help")
_BROKEN: Final = (
    '{"user_id": 17, "page": "/shop", "amount": ',
    "GET /shop HTTP/1.1",
    '{"user_id": "nobody", "page": "/", "amount": null, "ts": "2026-01-01T09:02:00Z"}',
    '{"user_id": 5, "page": "/help", "amount": null}',
)


def project_files(name: PipelineName) -> Iterator[tuple[str, str]]:
    """The path and the text of every file of the example project."""
    template = files("laminar_dagster") / _TEMPLATE
    for path, file in sorted(_walk(template)):
        text = _usable(file.read_text("utf-8")).replace(_PLACEHOLDER, name)
        yield path.replace(_PLACEHOLDER, name).removesuffix(_SUFFIX), text
    for path, text in sample_files():
        yield f"input/{path}", text


def pipeline_files(name: PipelineName, data: str) -> tuple[dict[str, str], dict[str, str]]:
    """The example pipeline for a project that is there: its files, and those of its input.

    Args:
        name: What the pipeline is called.
        data: A folder of its own, from the project's, for what it reads and writes.
    """
    folder = f"{FOLDER}/{name}/"
    pipeline = {
        path.removeprefix(folder): _moved(text, data)
        for path, text in project_files(name)
        if path.startswith(folder)
    }
    given = {f"{data}/input/{path}": text for path, text in sample_files()}
    return pipeline | with_schemas(pipeline), given


def _moved(text: str, data: str) -> str:
    """A file of the pipeline that reads and writes below another folder."""
    for inner in ("input", "output"):
        text = re.sub(rf"(path = ')({inner}\b)", rf"\1{data}/\2", text)
    return text


def with_schemas(project: Mapping[str, str]) -> dict[str, str]:
    """Each ``pipeline.yml`` of a project with a first line that editors read, and what it names."""
    files = {}
    for path, text in project.items():
        folder, _, name = path.rpartition("/")
        if name == _CONFIG:
            schema = json.dumps(pipeline_schema(), indent=2, ensure_ascii=False)
            files[path] = f"# yaml-language-server: $schema={_SCHEMA}\n{text}"
            files[f"{folder}/{_SCHEMA}".lstrip("/")] = schema + "\n"
    return files


def _walk(folder: Traversable, above: str = "") -> Iterator[tuple[str, Traversable]]:
    for each in folder.iterdir():
        path = f"{above}{each.name}"
        if each.is_dir():
            yield from _walk(each, f"{path}/")
        elif path.endswith(_SUFFIX):
            yield path, each


def _usable(text: str) -> str:
    """A file without the statements that could not be used here; blank lines are between them."""
    missing = [option for option, module in _NEEDS.items() if find_spec(module) is None]
    statements = text.split("\n\n")
    return "\n\n".join(each for each in statements if not any(option in each for option in missing))


def sample_files() -> Iterator[tuple[str, str]]:
    """The name and the text of each file."""
    for server in SERVERS:
        lines = _lines(random.Random(f"clicks of server {server}"))
        yield f"server-{server}.ndjson", "".join(f"{line}\n" for line in lines)


def _lines(chance: random.Random) -> Iterator[str]:
    for number in range(_CLICKS):
        if number % 75 == 40:
            yield _BROKEN[number // 75 % len(_BROKEN)]
        # A second from one to the next; a few seconds of disorder, and now and then a minute.
        delay = 60 if number % 60 == 59 else chance.uniform(0, 6)
        yield _click(chance, _BEGIN + timedelta(seconds=round(number - delay, 3)))


def _click(chance: random.Random, moment: datetime) -> str:
    page = chance.choice(_PAGES)
    amount = round(chance.uniform(5, 120), 2) if page == "/shop/checkout" else None
    click = {
        "user_id": chance.randint(1, 40),
        "page": page,
        "amount": amount,
        "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    return json.dumps(click)
