"""What ends the demo early."""

from __future__ import annotations


class DemoFailed(Exception):
    """The demo could not show what it is there to show."""
