"""The pages of the documentation's site: links that a site can follow, and the reference."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
import yaml

import laminar_dagster as laminar
from infra import docs_site
from infra.docs_site import BrokenLink, linked, reference_pages, write_pages
from laminar_dagster.cli.main import cli
from laminar_dagster.core import errors

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site") / "pages"
    write_pages(target)
    return target


def test_every_link_leads_to_a_file_of_the_site(site: Path) -> None:
    seen = 0
    for page in site.rglob("*.md"):
        text = re.sub(r"^```.*?^```\s*$", "", page.read_text(), flags=re.M | re.S)
        for target in re.findall(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)", text):
            path = target.partition("#")[0]
            if path and "://" not in path:
                seen += 1
                assert (page.parent / path).resolve().is_relative_to(site.resolve())
                assert (page.parent / path).is_file(), f"{page.name}: {target}"
    assert seen > 200


def test_the_menu_names_every_page_but_single_decisions(site: Path) -> None:
    class Loader(yaml.SafeLoader):
        """Takes mkdocs' tags for nothing."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    menu = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]
    named = set(re.findall(r"[\w./-]+\.md", str(menu)))
    pages = {each.relative_to(site).as_posix() for each in site.rglob("*.md")}
    assert named == {each for each in pages if not re.match(r"adr/0", each)}


def test_a_link_that_leads_nowhere_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docs_site, "ROOT", tmp_path)
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("[there](other.md)")
    with pytest.raises(BrokenLink, match=r"docs/page\.md links to other\.md"):
        linked(page, {"docs/page.md": "page.md"})


def test_links_out_of_the_site_become_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docs_site, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "code.py").touch()
    (tmp_path / "README.md").touch()
    page = tmp_path / "docs" / "page.md"
    page.write_text(
        "[the code](../code.py) [`code.py`](../code.py#L1) [start](../README.md#first)\n"
        "```md\n[as it stands](../code.py)\n```\n"
    )
    assert linked(page, {"docs/page.md": "page.md", "README.md": "index.md"}) == (
        "the code (`code.py`) `code.py` [start](index.md#first)\n"
        "```md\n[as it stands](../code.py)\n```\n"
    )


def test_the_reference_has_every_command_error_and_method() -> None:
    pages = reference_pages()
    for name in cli.list_commands(click.Context(cli)):
        assert f"## laminar {name}\n" in pages["reference/commands.md"]
    assert "### laminar epochs show\n" in pages["reference/commands.md"]
    groups = {kind.__name__ for kind in vars(errors).values() if isinstance(kind, type)}
    for name in groups:
        kind = getattr(errors, name)
        if kind.__subclasses__() and name != "InvalidConfig":
            continue
        assert f"### {kind.kind}\n" in pages["reference/errors.md"], name
    for name in laminar.__all__:
        assert f"{name}\n" in pages["reference/python.md"]
    assert "### ProjectPipeline.verify" in pages["reference/python.md"]
    assert "| `buckets` | integer | `8` |" in pages["reference/pipeline-yml.md"]
