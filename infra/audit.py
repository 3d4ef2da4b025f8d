"""What is known against the packages of the lock: reads pip-audit's JSON, for ``make audit``.

pip-audit passes over every package of which its advisory service has no word, and succeeds. Where
that service cannot be reached it passes over all of them, and a green result says nothing. So what
was not audited is counted here, and is no success.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_NOT_AUDITED: Final = os.EX_TEMPFAIL
_EXAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One advisory against one package.

    Attributes:
        package: Name and version, as the lock has them.
        advisory: Its number.
        fixed_in: The versions that are said to be free of it.
    """

    package: str
    advisory: str
    fixed_in: tuple[str, ...]

    def describe(self) -> str:
        """The finding in a line."""
        remedy = f"fixed in {', '.join(self.fixed_in)}" if self.fixed_in else "no fixed version yet"
        return f"{self.package}: {self.advisory}, {remedy}"


@dataclass(frozen=True, slots=True)
class Audit:
    """What pip-audit found.

    Attributes:
        audited: How many packages the advisory service knows.
        skipped: Why a package was passed over, for each that was.
        findings: All advisories.
    """

    audited: int
    skipped: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """0 for all packages audited and nothing known, 1 for findings, 75 for a part unknown."""
        if self.findings:
            return 1
        return _NOT_AUDITED if self.skipped or not self.audited else os.EX_OK

    def describe(self) -> Sequence[str]:
        """The audit in lines."""
        lines = [finding.describe() for finding in self.findings]
        if self.skipped:
            lines += [f"not audited: {reason}" for reason in self.skipped[:_EXAMPLES]]
            if len(self.skipped) > _EXAMPLES:
                lines.append(f"not audited: {len(self.skipped) - _EXAMPLES} more")
        if not self.audited:
            lines.append("NOTHING WAS AUDITED: the advisory data cannot be reached from here")
        lines.append(
            f"{self.audited} packages audited, {len(self.skipped)} not, "
            f"{len(self.findings)} known vulnerabilities"
        )
        return lines


def read(text: str) -> Audit:
    """Read what pip-audit printed.

    Raises:
        ValueError: It is no report of pip-audit.
    """
    try:
        packages: Sequence[Mapping[str, Any]] = json.loads(text)["dependencies"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("pip-audit gave no report") from error
    findings = [
        Finding(
            f"{package['name']} {package['version']}",
            advisory["id"],
            tuple(advisory["fix_versions"]),
        )
        for package in packages
        for advisory in package.get("vulns", ())
    ]
    return Audit(
        audited=sum("skip_reason" not in package for package in packages),
        skipped=tuple(package["skip_reason"] for package in packages if "skip_reason" in package),
        findings=tuple(findings),
    )


def main() -> int:
    """Read a report from standard input and say what it means."""
    try:
        audit = read(sys.stdin.read())
    except ValueError as error:
        print(f"error: {error}; what it said is above", file=sys.stderr)
        return _NOT_AUDITED
    for line in audit.describe():
        print(line)
    return audit.exit_code


if __name__ == "__main__":
    sys.exit(main())
