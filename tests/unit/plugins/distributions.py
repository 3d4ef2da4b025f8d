"""Distributions as an installer leaves them: modules, and metadata beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(
    folder: Path,
    name: str,
    entry_points: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str],
    version: str = "0.1",
) -> None:
    """Put a distribution into a folder that is on ``sys.path``, or will be.

    Args:
        folder: Where to.
        name: The distribution's name.
        entry_points: Objects by name, by group.
        modules: The text of each module, by the module's name.
        version: The distribution's version.
    """
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (metadata / "entry_points.txt").write_text(
        "\n".join(
            line
            for group, named in entry_points.items()
            for line in (f"[{group}]", *(f"{key} = {value}" for key, value in named.items()), "")
        )
    )
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
