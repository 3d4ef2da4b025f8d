"""Ctrl-C and SIGTERM: the first asks to stop when that costs nothing, the second ends at once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_ASKED: Final = "stopping after the epoch at hand; once more ends at once"
_ENDED: Final = "ended at once; nothing is lost, the next run goes on from here"
# `timeout` signals its child, and then the group that the child is in: two signals, one wish. A
# person who presses Ctrl-C twice means it.
_SAME_WISH_SECONDS: Final = 1.0
_CLEAR: Final = "\r\x1b[2K\x1b[?25h"


@dataclass(slots=True)
class StopRequest:
    """Whether somebody has asked to stop.

    Attributes:
        as_json: Whether the end is told to a program.
        wanted: Whether they have.
        number: The signal that asked first.
        clock: Seconds, to tell one wish that comes as two signals from two wishes.
    """

    as_json: bool = False
    wanted: bool = False
    number: int = 0
    clock: Callable[[], float] = time.monotonic
    _since: float = 0.0
    _voice: int = 2

    @contextlib.contextmanager
    def listen(self) -> Iterator[None]:
        """Take the signals over, also those that were ignored when the process began."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # While Spark starts, standard error leads elsewhere.
        self._voice = os.dup(2)
        before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                # None: it was not Python that had set it.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            os.close(self._voice)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if not self.wanted:
            self.wanted, self.number, self._since = True, number, self.clock()
            self._say(_ASKED)
            return
        if number == signal.SIGTERM and self.clock() - self._since < _SAME_WISH_SECONDS:
            return
        code = 128 + number
        if self.as_json:
            error = {"kind": "interrupted", "message": _ENDED, "exit_code": code}
            _write(1, json.dumps({"error": error}) + "\n")
        else:
            self._say(f"error[interrupted]: {_ENDED}")
        # No clean-up: it would wait for sinks and for Spark. Spark's Java ends with its parent.
        os._exit(code)

    def _say(self, text: str) -> None:
        # In place of the live line, and with the cursor that it hides.
        clear = _CLEAR if os.isatty(self._voice) else ""
        _write(self._voice, f"{clear}{text}\n")


def _write(descriptor: int, text: str) -> None:
    """Past Python's buffers: a signal may come in the middle of a print."""
    with contextlib.suppress(OSError):
        os.write(descriptor, text.encode())
