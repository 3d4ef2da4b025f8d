"""What a click is: for programs that are measured, and import nothing that they do not need."""

from __future__ import annotations

from typing import Final

COLUMNS: Final = "at TIMESTAMP, page STRING, amount DOUBLE, n INT"
DELAY_SECONDS: Final = 5
PAGE: Final = "/page/"
PAGE_DIGITS: Final = 8


def page_name(number: int) -> str:
    """How a page is called."""
    return f"{PAGE}{number:0{PAGE_DIGITS}}"
