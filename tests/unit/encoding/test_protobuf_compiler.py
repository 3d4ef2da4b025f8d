"""What the Protobuf compiler says of a schema, and what its death does not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from laminar_dagster.core.errors import ComputeFailed
from laminar_dagster.encoding.protobuf_schema import compile_proto, load

SCHEMA = 'syntax = "proto3"; message Event { int64 id = 1; }'


def test_a_schema_is_compiled_or_refused() -> None:
    assert "__schema__.proto" in load(compile_proto(SCHEMA, {}))
    with pytest.raises(ValueError, match=r"does not compile: .*Expected"):
        compile_proto("message {", {})


def test_a_compiler_that_is_killed_says_nothing_of_the_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise every message of the schema would be set aside, and not by the next attempt."""
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\nkill -KILL $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))
    with pytest.raises(ComputeFailed, match="compiler: it was ended by signal 9"):
        compile_proto(SCHEMA, {})
    monkeypatch.undo()
    compile_proto(SCHEMA, {})
