"""The documentation as a site: ``python -m infra.docs_site`` writes its pages.

The pages are the files of ``docs/`` and the README, with links that a site can follow; the
reference is made of the code: commands, keys of ``pipeline.yml``, errors, the Python API. ``make
docs`` then has mkdocs build it, which refuses a link that leads nowhere.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

import laminar_dagster as laminar
from laminar_dagster.cli.main import cli
from laminar_dagster.config.json_schema import attribute_texts, pipeline_schema
from laminar_dagster.core import errors

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = ROOT / ".laminar" / "site" / "pages"

# Pages that do not lie in `docs/`, and where they are on the site.
_OUTSIDE: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.md",
}
_LINK: Final = re.compile(r"(?<!`)(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCE: Final = re.compile(r"^(```|~~~).*?^\1\s*$", re.M | re.S)


class BrokenLink(Exception):
    """A page links to a file that is not there."""


def write_pages(target: Path = PAGES) -> list[str]:
    """Write every page of the site, and return their paths."""
    shutil.rmtree(target, ignore_errors=True)
    places = _places()
    for source, place in places.items():
        path = target / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            path.write_text(linked(ROOT / source, places), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / source, path)
    for place, text in reference_pages().items():
        path = target / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return sorted(each.relative_to(target).as_posix() for each in target.rglob("*.md"))


def _places() -> dict[str, str]:
    """Where each file of the repository is on the site."""
    found = dict(_OUTSIDE)
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.is_file():
            inner = path.relative_to(ROOT / "docs").as_posix()
            found[f"docs/{inner}"] = "adr/index.md" if inner == "adr/README.md" else inner
    return found


def linked(page: Path, places: dict[str, str]) -> str:
    """A page's text, its links as they lead on the site.

    Raises:
        BrokenLink: One leads to no file.
    """
    source = page.relative_to(ROOT).as_posix()
    here = Path(places[source]).parent

    def follow(link: re.Match[str]) -> str:
        picture, text, target = link.groups()
        path, hash_, anchor = target.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return link[0]
        wanted = os.path.relpath((page.parent / path).resolve(), ROOT)
        if not (ROOT / wanted).exists():
            raise BrokenLink(f"{source} links to {target}, which is not there")
        if wanted == "docs/adr":
            wanted = "docs/adr/README.md"
        if wanted in places:
            led = os.path.relpath(places[wanted], here)
            return f"{picture}[{text}]({led}{hash_}{anchor})"
        # A file of the code: named, since the site does not have it.
        return text if Path(wanted).name in text else f"{text} (`{wanted}`)"

    text = page.read_text(encoding="utf-8")
    if page.suffix != ".md":
        return f"# License\n\n```text\n{text}```\n"
    pieces, end = [], 0
    for fence in _FENCE.finditer(text):
        pieces += [_LINK.sub(follow, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*pieces, _LINK.sub(follow, text[end:])])


def reference_pages() -> dict[str, str]:
    """The pages that are made of the code."""
    return {
        "reference/commands.md": "\n".join(_commands()),
        "reference/pipeline-yml.md": "\n".join(_keys()),
        "reference/errors.md": "\n".join(_errors()),
        "reference/python.md": "\n".join(_api()),
    }


def _commands() -> Iterator[str]:
    yield "# Commands\n"
    yield "`laminar COMMAND --help` prints the same. Every command takes `--json`.\n"
    yield from _command(cli, click.Context(cli, info_name="laminar"), depth=2)


def _command(command: click.Command, context: click.Context, depth: int) -> Iterator[str]:
    yield f"{'#' * min(depth, 4)} {context.command_path}\n"
    yield f"```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                below = click.Context(inner, parent=context, info_name=name)
                yield from _command(inner, below, depth + 1)


def _keys() -> Iterator[str]:
    yield "# Keys of pipeline.yml\n"
    yield "Made of the models that read it. [Writing a pipeline](../pipelines.md) explains them.\n"
    schema = pipeline_schema()
    for name, model in schema["$defs"].items():
        yield f"## {name.removesuffix('Config')}\n\n{model['description']}\n"
        yield "| key | type | default | |\n|---|---|---|---|"
        required = model.get("required", ())
        for key, value in model["properties"].items():
            default = "required" if key in required else f"`{value.get('default')}`"
            yield f"| `{key}` | {_type(value)} | {default} | {_cell(value['description'])} |"
        yield ""


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2].removesuffix("Config")
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"] if each is not None)
    if "anyOf" in schema:
        kinds = [_type(each) for each in schema["anyOf"] if "pattern" not in each]
        return " or ".join(each for each in kinds if each != "null")
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if schema.get("type") == "object":
        return "names and values"
    return str(schema.get("type", ""))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _errors() -> Iterator[str]:
    yield "# Errors\n"
    yield (
        "What a command prints as `error[kind]`, by what a handler does about it. "
        "`--json` has `kind`, `message`, `hint` and `exit_code`.\n"
    )
    for group in (
        errors.RetryError,
        errors.UnknownOutcome,
        errors.UsageError,
        errors.RefusedError,
        errors.IntegrityError,
        errors.FencedError,
        errors.FailedError,
    ):
        yield f"## {group.__name__}: exit code {group.exit_code}\n\n{_summary(group)}\n"
        for kind in sorted(_below(group), key=lambda each: each.kind):
            yield f"### {kind.kind}\n\n{_summary(kind)} `{kind.__name__}`\n"
            hint = re.sub(r"`?\{(\w+)\}`?", r"…", getattr(kind, "hint", "") or "")
            if hint and hint != "…":
                yield f"*What to do:* {hint}\n"


def _below(group: type[errors.LaminarError]) -> Iterator[type[errors.LaminarError]]:
    for name in errors.__all__:
        kind = getattr(errors, name)
        if issubclass(kind, group) and kind is not group:
            yield kind


def _summary(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n\n")[0].replace("``", "`").replace("\n", " ")


def _api() -> Iterator[str]:
    yield "# Python API\n"
    yield "[Pipelines from Python](../python-api.md) shows it at work.\n"
    yield f"## laminar_dagster.open\n\n{_signature(laminar.open)}\n\n{_summary(laminar.open)}\n"
    for name in laminar.__all__:
        kind = getattr(laminar, name)
        if not inspect.isclass(kind):
            continue
        yield f"## {name}\n\n{_summary(kind)}\n"
        attributes = attribute_texts(kind)
        if attributes:
            yield "| attribute | |\n|---|---|"
            yield from (f"| `{each}` | {_cell(text)} |" for each, text in attributes.items())
            yield ""
        for method, value in vars(kind).items():
            if not method.startswith("_") and inspect.isfunction(value):
                yield f"### {name}.{method}\n\n{_signature(value)}\n"
                yield f"```text\n{inspect.getdoc(value)}\n```\n"


def _signature(function: Any) -> str:
    return f"```python\n{function.__name__}{inspect.signature(function)}\n```"


if __name__ == "__main__":
    sys.stdout.write(f"{len(write_pages())} pages in {PAGES.relative_to(ROOT)}\n")
