"""What ``make audit`` makes of pip-audit's report."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from infra import audit

KNOWN = {"name": "left-pad", "version": "1.0", "vulns": []}
SKIPPED = {"name": "inner", "skip_reason": "Dependency not found: inner (1.0)"}
VULNERABLE = {
    "name": "old",
    "version": "2.1",
    "vulns": [{"id": "PYSEC-2026-1", "fix_versions": ["2.2", "3.0"], "aliases": []}],
}


def report(*packages: object) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


def test_nothing_known_is_a_success() -> None:
    found = audit.read(report(KNOWN, KNOWN))
    assert found.exit_code == 0
    assert found.describe()[-1] == "2 packages audited, 0 not, 0 known vulnerabilities"


def test_an_advisory_is_told_with_its_remedy() -> None:
    found = audit.read(report(KNOWN, VULNERABLE, SKIPPED))
    assert found.exit_code == 1
    assert found.describe()[0] == "old 2.1: PYSEC-2026-1, fixed in 2.2, 3.0"


@pytest.mark.parametrize(("packages", "audited"), [((KNOWN, SKIPPED), 1), ((SKIPPED,), 0), ((), 0)])
def test_what_was_passed_over_is_no_success(packages: tuple[object, ...], audited: int) -> None:
    found = audit.read(report(*packages))
    assert found.exit_code == os.EX_TEMPFAIL
    assert any("NOTHING WAS AUDITED" in line for line in found.describe()) is (audited == 0)


@pytest.mark.parametrize("text", ["", "connection refused", "[]", '{"fixes": []}'])
def test_no_report_is_an_error(text: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "infra.audit"], input=text, capture_output=True, text=True
    )
    assert ended.returncode == os.EX_TEMPFAIL
    assert "pip-audit gave no report" in ended.stderr
