"""Whether a key identifies the rows of a view: known from the query, refused, or to be counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.connectors import Connectors, SourceTraits
from laminar_dagster.config.model import Column
from tests.unit.config.folders import load, mistakes

SOURCES = """
CREATE SOURCE TABLE bids (
    auction BIGINT, bidder BIGINT, channel STRING, day DATE, price INT, hot BOOLEAN,
    tags ARRAY<STRING>, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH (connector = 'file', path = 'bids');
CREATE SOURCE TABLE auctions (
    id BIGINT, seller BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH (connector = 'file', path = 'auctions');
CREATE SOURCE TABLE users (id BIGINT, name STRING, land STRING, PRIMARY KEY (id))
WITH (connector = 'captured', table = 'users');
CREATE SOURCE TABLE shares (owner BIGINT, firm STRING, n INT, PRIMARY KEY (owner, firm))
WITH (connector = 'captured');
CREATE SOURCE TABLE halves (id BIGINT, name STRING, PRIMARY KEY (id)) WITH (connector = 'bare');
CREATE SOURCE TABLE told (id BIGINT, name STRING, PRIMARY KEY (id)) WITH (connector = 'messages');
CREATE SOURCE TABLE timed (
    id BIGINT, name STRING, at TIMESTAMP, PRIMARY KEY (id),
    WATERMARK FOR at AS at - INTERVAL '10' SECOND
) WITH (connector = 'captured');
CREATE REFERENCE TABLE pages (page STRING, title STRING, PRIMARY KEY (page))
WITH (connector = 'file', path = 'p', 'refresh.interval' = 'never');
CREATE REFERENCE TABLE moods (page STRING, mood STRING, PRIMARY KEY (page))
WITH (connector = 'file', path = 'p');
CREATE REFERENCE TABLE changing (page STRING, mood STRING, PRIMARY KEY (page))
WITH (connector = 'file', path = 'p', on_retraction = 'join_current');
CREATE VIEW totals AS SELECT channel, day, COUNT(*) AS n FROM bids GROUP BY channel, day
EMIT CHANGES WITH (state.ttl = '1d');
"""
FOREVER = "EMIT CHANGES WITH (state.ttl = 'unbounded')"
WEIGHT = (Column("_weight", "tinyint"),)
CONNECTORS = Connectors(
    sources={"file": ("*",), "captured": ("*",), "bare": ("*",), "messages": ("*",)},
    sinks={"sqlite": ("*",), "kafka": ("*",)},
    references={"file": ("*",)},
    traits={
        "captured": lambda _: SourceTraits(columns=WEIGHT, enforces_keys=True),
        "messages": lambda _: SourceTraits(columns=WEIGHT),
        "bare": lambda _: SourceTraits(
            columns=WEIGHT, lacks_retractions="before", replaces_rows=True
        ),
    },
)
RANKED = (
    "SELECT auction, bidder, price, place FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction"
    " ORDER BY price DESC) AS place FROM bids) WHERE place {} " + FOREVER
)
GROUPED = "SELECT channel, day, COUNT(*) AS n FROM bids {} GROUP BY channel, day " + FOREVER
TUMBLED = (
    "SELECT channel, window_start AS w, window_end AS until, COUNT(*) AS n FROM bids"
    " GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), channel"
)
GROWING = (
    "SELECT window_start AS since, window_end AS until, COUNT(*) AS n FROM TABLE(CUMULATE(TABLE"
    " bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR))"
    " GROUP BY window_start, window_end"
)
PAIRS = (
    "SELECT a.channel, a.n, b.land FROM totals a JOIN (SELECT land, COUNT(*) AS n FROM users"
    f" GROUP BY land) b ON a.channel = b.land {FOREVER}"
)


def files(sql: str, key: str, connector: str = "sqlite") -> dict[str, str]:
    option = "'key.columns'" if connector == "kafka" else "key"
    sink = f"connector = '{connector}', mode = 'upsert', {option} = '{key}'"
    return {
        "sources.sql": SOURCES,
        "models/v.sql": sql,
        "sinks.sql": f"CREATE SINK s FROM v WITH ({sink})",
    }


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        (GROUPED.format(""), "channel, day"),
        (GROUPED.format(""), "n, day, channel"),
        (GROUPED.format("WHERE channel = 'a'"), "day"),
        (f"SELECT hot, day, COUNT(*) AS n FROM bids WHERE hot GROUP BY hot, day {FOREVER}", "day"),
        (
            f"SELECT ts, CAST(ts AS DATE) AS d, COUNT(*) AS n FROM bids GROUP BY ts,"
            f" CAST(ts AS DATE) {FOREVER}",
            "ts",
        ),
        ("SELECT CAST(day AS STRING) AS d, channel AS c, _weight FROM totals", "c, d"),
        (f"SELECT DISTINCT channel, day FROM bids {FOREVER}", "channel, day"),
        (f"SELECT channel, MAX(n) AS n FROM totals GROUP BY channel {FOREVER}", "channel"),
        (GROUPED.format("WHERE channel IS NULL"), "day"),
        (GROUPED.format("WHERE hot <> true").replace("channel", "hot"), "day"),
        (GROUPED.format("WHERE NOT hot = true").replace("channel", "hot"), "day"),
        (GROUPED.format("WHERE hot IS TRUE").replace("channel", "hot"), "day"),
        (GROUPED.format("WHERE hot <=> false").replace("channel", "hot"), "day"),
        # Grouped by what already has a row for each.
        (
            "SELECT t.channel, t.n FROM (SELECT channel, COUNT(*) AS n FROM bids GROUP BY channel)"
            f" t GROUP BY t.channel, t.n {FOREVER}",
            "channel",
        ),
        (RANKED.format("= 1"), "auction"),
        (RANKED.format("<= 10"), "auction, place"),
        (
            f"SELECT auction, bidder FROM ({RANKED.format('<= 3').removesuffix(FOREVER)}) t"
            f" WHERE place = 3 {FOREVER}",
            "auction",
        ),
        (TUMBLED, "channel, w"),
        (TUMBLED, "until, channel"),
        (GROWING, "until"),
        (TUMBLED.replace("window_start AS w", "unix_micros(window_start) AS w"), "channel, w"),
        (
            "SELECT channel, window_start AS w, COUNT(*) AS n FROM bids"
            " GROUP BY SESSION(ts, INTERVAL '1' MINUTE), channel",
            "channel, w",
        ),
        ("SELECT id, upper(name) AS name, _weight FROM users", "id"),
        ("SELECT id, name, _weight FROM timed", "id"),
        (f"SELECT id, name, COUNT(*) AS n FROM users GROUP BY id, name {FOREVER}", "id"),
        ("SELECT owner, firm, n, _weight FROM shares WHERE firm = 'x'", "owner"),
        ("SELECT id, name, _weight FROM halves", "id"),
        (PAIRS.replace("a.n,", "a.day,"), "channel, day"),
        (
            f"SELECT s.owner, s.firm, u.name FROM shares s LEFT JOIN users u ON s.owner = u.id"
            f" {FOREVER}",
            "owner, firm",
        ),
        (
            f"SELECT p.title, b.channel, COUNT(*) AS n FROM bids b JOIN pages p"
            f" ON b.channel = p.page GROUP BY b.channel, p.title {FOREVER}",
            "channel",
        ),
    ],
)
@pytest.mark.parametrize("connector", ["sqlite", "kafka"])
def test_a_key_that_the_query_proves(tmp_path: Path, sql: str, key: str, connector: str) -> None:
    (sink,) = load(tmp_path, files(sql, key, connector), connectors=CONNECTORS).sinks
    assert not sink.counts_rows


@pytest.mark.parametrize(
    ("sql", "key", "fit"),
    [
        (GROUPED.format(""), "day", "set key = 'channel, day'"),
        (GROUPED.format("WHERE channel <> 'a'"), "day", "set key = 'channel, day'"),
        (GROUPED.format("").replace("SELECT channel,", "SELECT"), "day", "put out all that"),
        (RANKED.format("<= 10"), "auction", "set key = 'auction, place'"),
        (RANKED.format("<= 10"), "place", "set key = 'auction, place'"),
        (TUMBLED, "channel", "set key = 'channel, w'"),
        (TUMBLED, "w, until", "set key = 'channel, w'"),
        ("SELECT owner, firm, n, _weight FROM shares", "firm", "set key = 'owner, firm'"),
        ("SELECT id, 7 AS seven, _weight FROM told", "seven", "put out all that"),
        ("SELECT channel AS c, day, n, _weight FROM totals", "c", "set key = 'c, day'"),
    ],
)
def test_a_key_that_is_too_small_is_refused(tmp_path: Path, sql: str, key: str, fit: str) -> None:
    (found,) = mistakes(tmp_path, files(sql, key), connectors=CONNECTORS)
    expected = f"sinks.sql:1: rows of view `v` would overwrite each other in sink `s`: `{key}`"
    assert found.startswith(f"{expected} does not identify them"), found
    assert fit in found


def test_the_key_of_messages_is_named_as_its_option(tmp_path: Path) -> None:
    wrong = files(GROUPED.format(""), "day", "kafka")
    (found,) = mistakes(tmp_path, wrong, connectors=CONNECTORS)
    assert "set 'key.columns' = 'channel, day'" in found


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        # Right or wrong by what the data is like.
        ("SELECT auction, bidder FROM bids", "auction"),
        (GROUPED.format(""), "day, n"),
        (GROUPED.format("WHERE channel IN ('a')"), "day"),
        (GROUPED.format("WHERE channel = upper('a')"), "day"),
        (RANKED.format("<= 10"), "auction, bidder"),
        (RANKED.format("= 1"), "bidder"),
        (GROWING, "since"),
        (TUMBLED.replace("window_start AS w", "unix_seconds(window_start) AS w"), "channel, w"),
        ("SELECT lower(channel) AS channel, day, _weight FROM totals", "channel, day"),
        (
            f"SELECT a.id, b.bidder FROM auctions a JOIN bids b ON a.id = b.auction {FOREVER}",
            "id, bidder",
        ),
        ("SELECT channel, day FROM bids UNION ALL SELECT channel, day FROM bids", "channel, day"),
        ("SELECT auction, explode(tags) AS tag FROM bids", "auction, tag"),
        ("SELECT name, _weight FROM users", "name"),
        # What anybody may write is counted, whatever its reader says.
        ("SELECT id, name, _weight FROM told", "id"),
        # What takes a row back may be late, so that the row stays beside the new one.
        (f"SELECT id, name, COUNT(*) AS n FROM timed GROUP BY id, name {FOREVER}", "id"),
        (f"SELECT t.id, u.land FROM timed t JOIN users u ON t.name = u.name {FOREVER}", "id, land"),
        # It is taken back with the mood that its page has then.
        (
            "SELECT id, mood, COUNT(*) AS n FROM (SELECT u.id, m.mood, u._weight FROM users u"
            f" JOIN changing m ON u.name = m.page) GROUP BY id, mood {FOREVER}",
            "id",
        ),
        # A log: each change of a row is a row.
        ("SELECT id, name, _weight AS way FROM users", "id"),
        ("SELECT id, name FROM users WHERE _weight = 1", "id"),
        # What is found may change, so one channel may have two moods.
        (
            f"SELECT m.mood, b.channel, COUNT(*) AS n FROM bids b JOIN moods m"
            f" ON b.channel = m.page GROUP BY b.channel, m.mood {FOREVER}",
            "channel",
        ),
        # A price that is equal to a text is equal to several.
        (
            "SELECT price, channel, COUNT(*) AS n FROM bids WHERE price = channel"
            f" GROUP BY price, channel {FOREVER}",
            "price",
        ),
        (
            "SELECT b.price, b.channel FROM (SELECT CAST(price AS BIGINT) AS price, channel,"
            " COUNT(*) AS n FROM bids GROUP BY CAST(price AS BIGINT), channel) b"
            " WHERE b.price = b.channel EMIT CHANGES WITH (state.ttl = 'unbounded')",
            "price",
        ),
        # Large whole numbers are equal to one float.
        (GROUPED.format("WHERE price = 9e15").replace("channel, day", "price, day"), "day"),
        (GROUPED.format("WHERE hot IS DISTINCT FROM true").replace("channel", "hot"), "day"),
        (GROUPED.format("WHERE NOT hot <=> true").replace("channel", "hot"), "day"),
        (GROUPED.format("WHERE hot OR true").replace("channel", "hot"), "day"),
        (GROUPED.format("WHERE hot >= false").replace("channel", "hot"), "day"),
        # One side may have a group of null, and the other too.
        (PAIRS.replace("JOIN", "FULL JOIN").replace("a.n,", "a.day,"), "channel, day, land"),
    ],
)
def test_what_is_open_is_counted(tmp_path: Path, sql: str, key: str) -> None:
    (sink,) = load(tmp_path, files(sql, key), connectors=CONNECTORS).sinks
    assert sink.counts_rows


def test_a_row_that_is_replaced_without_a_word_is_warned_of(tmp_path: Path) -> None:
    """It looks like a second row of its key, so nobody can count."""
    model = load(
        tmp_path, files("SELECT id, name, _weight FROM halves", "name"), connectors=CONNECTORS
    )
    assert not model.sinks[0].counts_rows
    (warning,) = model.warnings
    assert "nobody knows whether `name` identifies the rows of view `v`" in warning
    right = files("SELECT id, name, _weight FROM halves", "id")
    assert load(tmp_path, right, connectors=CONNECTORS).warnings == ()


def test_a_source_that_only_grows_has_no_primary_key(tmp_path: Path) -> None:
    wrong = files("SELECT auction FROM bids", "auction")
    wrong["sources.sql"] = SOURCES.replace("hot BOOLEAN", "hot BOOLEAN, PRIMARY KEY (auction)")
    (found,) = mistakes(tmp_path, wrong, connectors=CONNECTORS)
    assert found.startswith("sources.sql:3:99: source `bids` only grows")


def test_a_primary_key_of_no_column(tmp_path: Path) -> None:
    wrong = files("SELECT id, _weight FROM users", "id")
    wrong["sources.sql"] = SOURCES.replace("land STRING, PRIMARY KEY (id)", "PRIMARY KEY (ID, no)")
    found = mistakes(tmp_path, wrong, connectors=CONNECTORS)
    assert "the key names `no`, which is no column" in found[0]
