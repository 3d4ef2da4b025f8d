"""Errors of the caller or the configuration: a retry without changes cannot help."""

from __future__ import annotations

from dataclasses import dataclass

from laminar_dagster.core.errors.base import StopError


@dataclass(eq=False)
class UsageError(StopError):
    """The caller or the configuration is wrong."""

    kind = "usage"
    exit_code = 2


@dataclass(eq=False)
class InvalidName(UsageError, ValueError):
    """A name that must not become part of a key.

    Also a ``ValueError``, so that a decoder reports it with its place in the document.
    """

    noun: str
    value: str
    reason: str

    kind = "invalid_name"
    text = "{noun} {value!r} {reason}"
    hint = "use letters, digits, '_', '-' and '.', at most 200 bytes"


@dataclass(eq=False)
class InvalidCheckpointId(UsageError, ValueError):
    """A text that is not a UUID of version 7."""

    value: str

    kind = "invalid_checkpoint_id"
    text = "{value!r} is not a checkpoint id"
    hint = "a checkpoint id is a lower-case UUID of version 7; list them with `checkpoints list`"


@dataclass(eq=False)
class InvalidConfig(UsageError):
    """A configuration file or option is wrong."""

    where: str
    problem: str
    suggestion: str = ""

    kind = "invalid_config"
    text = "{where}: {problem}"
    hint = "{suggestion}"


@dataclass(eq=False)
class AuthFailed(UsageError):
    """A server refused the credentials."""

    service: str
    reason: str

    kind = "auth_failed"
    text = "{service} refused the credentials: {reason}"
    hint = "check the user, the secret and what they are allowed to do"


@dataclass(eq=False)
class UnknownSource(UsageError):
    """The checkpoint has offsets for a source that is not there."""

    source_id: str

    kind = "unknown_source"
    text = "there is no source {source_id}"
    hint = "`checkpoints show` lists the sources of a checkpoint"


@dataclass(eq=False)
class EpochNotCommitted(UsageError):
    """The requested epoch has no checkpoint."""

    epoch: int

    kind = "epoch_not_committed"
    text = "epoch {epoch} is not committed"
    hint = "`laminar epochs list` shows those that are"


@dataclass(eq=False)
class UnknownBranch(UsageError):
    """The pipeline has no branch of that name."""

    branch: str
    known: tuple[str, ...] = ()

    kind = "unknown_branch"
    text = "there is no branch {branch}"

    def advice(self) -> str:
        """Name the existing branches, or how to make one."""
        if not self.known:
            return "`laminar fork --from-epoch N --as NAME` makes one"
        return f"there is: {', '.join(self.known)}"


@dataclass(eq=False)
class InvalidState(UsageError):
    """A call that the object's state does not allow."""

    subject: str
    state: str
    attempted: str

    kind = "invalid_state"
    text = "{subject} is {state}: cannot {attempted}"
    hint = "this is a bug in the caller, please report it"
