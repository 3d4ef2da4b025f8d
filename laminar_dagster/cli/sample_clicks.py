"""The input of the example project: the same clicks every time, as real input looks.

Most come a little out of order. Some come too late for their watermark, and some lines are broken.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

SERVERS: Final = ("a", "b")

_BEGIN: Final = datetime(2026, 1, 1, 9, 0, tzinfo=UTC)
_CLICKS: Final = 300
_PAGES: Final = ("/", "/shop", "/shop/cart", "/shop/checkout", "/help")
_BROKEN: Final = (
    '{"user_id": 17, "page": "/shop", "amount": ',
    "GET /shop HTTP/1.1",
    '{"user_id": "nobody", "page": "/", "amount": null, "ts": "2026-01-01T09:02:00Z"}',
    '{"user_id": 5, "page": "/help", "amount": null}',
)


def sample_files() -> Iterator[tuple[str, str]]:
    """The name and the text of each file."""
    for server in SERVERS:
        lines = _lines(random.Random(f"clicks of server {server}"))
        yield f"server-{server}.ndjson", "".join(f"{line}\n" for line in lines)


def _lines(chance: random.Random) -> Iterator[str]:
    for number in range(_CLICKS):
        if number % 75 == 40:
            yield _BROKEN[number // 75 % len(_BROKEN)]
        # A second from one to the next; a few seconds of disorder, and now and then a minute.
        delay = 60 if number % 60 == 59 else chance.uniform(0, 6)
        yield _click(chance, _BEGIN + timedelta(seconds=round(number - delay, 3)))


def _click(chance: random.Random, moment: datetime) -> str:
    page = chance.choice(_PAGES)
    amount = round(chance.uniform(5, 120), 2) if page == "/shop/checkout" else None
    click = {
        "user_id": chance.randint(1, 40),
        "page": page,
        "amount": amount,
        "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    return json.dumps(click)
