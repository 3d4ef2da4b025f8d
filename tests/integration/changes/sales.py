"""A pipeline over a table of sales: those that are large now, and what each minute brought."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from tests.integration.changes.captured import CapturedDatabase

NOW = "SELECT id, product, amount, _weight FROM sales WHERE amount > 10"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

_COLUMNS = """
  id BIGINT NOT NULL, product STRING, amount DECIMAL(10, 2), at TIMESTAMP,
  WATERMARK FOR at AS at - INTERVAL '1' MINUTE
"""
_MINUTES = """
SELECT product, window_start AS minute, SUM(amount * _weight) AS revenue, SUM(_weight) AS sales
FROM sales GROUP BY TUMBLE(at, INTERVAL '1' MINUTE), product HAVING SUM(_weight) > 0
"""
_SINKS = """
CREATE SINK now FROM sales_now
WITH (connector = 'sqlite', path = 'out.db', table = 'now', mode = 'upsert', key = 'id');
CREATE SINK minutes FROM minutes
WITH (connector = 'sqlite', path = 'out.db', table = 'minutes', mode = 'append');
"""
# Keys so far apart that MySQL's are copied by ranges, and become several files.
_SALES = [
    (100 * n, f"p{n % 3}", round(Decimal(n) / 7, 2), BEGIN + timedelta(seconds=n))
    for n in range(300)
]


def lay_out(captured: CapturedDatabase, root: Path, **options: str) -> Path:
    """Make the table and the project, which reads it in two epochs; the folder of its models.

    Args:
        captured: Where the table is.
        root: Where the project is.
        options: Of the source.
    """
    captured.make(
        "sales",
        f"id bigint PRIMARY KEY, product varchar(20), amount numeric(10, 2), at {captured.moment}",
    )
    captured.insert("sales", _SALES)
    folder = root / "dbt_like_configs" / "sales"
    models = folder / "models"
    models.mkdir(parents=True)
    limits = "epoch:\n  max_records: 200\n"
    (folder / "pipeline.yml").write_text(f"name: sales\nstore: state\nbuckets: 2\n{limits}")
    source = captured.declaration("sales", _COLUMNS, snapshot__file__bytes="8KiB", **options)
    (folder / "sources.sql").write_text(source)
    (folder / "sinks.sql").write_text(_SINKS)
    (models / "sales_now.sql").write_text(NOW)
    (models / "minutes.sql").write_text(_MINUTES)
    return models
