"""What can go wrong with a service, grouped by what the caller does about it.

ServiceError
├── ServiceUnavailable    this machine lacks something: say what to install, skip the test
└── ServiceFailed         it is installed and does not work: a bug, never skipped
"""

from __future__ import annotations


class ServiceError(Exception):
    """Anything that keeps a service from running."""

    def __init__(self, service: str, reason: str) -> None:
        """Say which service, and why in words a user can act on."""
        super().__init__(service, reason)
        self.service = service
        self.reason = reason

    def __str__(self) -> str:
        """Return one message that starts with the service's name."""
        return f"{self.service}: {self.reason}"


class ServiceUnavailable(ServiceError):
    """The machine cannot run the service until someone installs something."""


class ServiceFailed(ServiceError):
    """The service is installed, and failed to start, to answer or to stop."""
