"""What the manual tells an administrator to run."""

from __future__ import annotations

from pathlib import Path

_DOCS = Path(__file__).parents[4] / "docs"


def documented_statements(page: str, documented: str, ours: str) -> list[str]:
    """The statements that prepare a server for a sink, with our name in place of the page's."""
    manual = (_DOCS / page).read_text()
    (block,) = (part for part in manual.split("```") if "CREATE TABLE" in part)
    found = block.removeprefix("sql").replace(documented, ours).split(";")
    return [statement.strip() for statement in found if statement.strip()]
