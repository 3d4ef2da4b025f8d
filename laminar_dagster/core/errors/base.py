"""What every error has, and the three things a handler can do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(eq=False)
class LaminarError(Exception):
    """Base of every error of this package."""

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    text: ClassVar[str] = "failed"
    hint: ClassVar[str] = ""

    def __str__(self) -> str:
        """What happened, with the fields filled in."""
        return self.text.format(**self.context())

    def context(self) -> dict[str, Any]:
        """The fields of the error, by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def advice(self) -> str:
        """What the user can do about it, with the fields filled in."""
        return self.hint.format(**self.context())

    def to_record(self) -> dict[str, Any]:
        """The error as plain data, for places that carry no objects."""
        return {"kind": self.kind, "context": self.context()}

    @staticmethod
    def from_record(record: dict[str, Any]) -> LaminarError:
        """The error that ``to_record`` was called on."""
        for each in _descendants(LaminarError):
            if each.kind == record["kind"]:
                context = record["context"].items()
                # JSON has no tuples.
                return each(**{k: tuple(v) if isinstance(v, list) else v for k, v in context})
        raise ValueError(f"no error has the kind {record['kind']!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from the fields: a default exception pickle loses keyword arguments."""
        return type(self), tuple(self.context().values())


def _descendants(kind: type[LaminarError]) -> Iterator[type[LaminarError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _descendants(child)


@dataclass(eq=False)
class RetryError(LaminarError):
    """Nothing happened. The same call may succeed later."""

    kind = "retry"
    exit_code = 75


@dataclass(eq=False)
class UnknownOutcome(LaminarError):
    """It may or may not have happened. Read the durable fact, then decide."""

    kind = "unknown_outcome"
    exit_code = 75


@dataclass(eq=False)
class StopError(LaminarError):
    """Retrying cannot help; somebody has to change something."""

    kind = "stop"
