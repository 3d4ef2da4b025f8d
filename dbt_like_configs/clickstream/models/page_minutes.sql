-- One row for each page and minute, put out once, when the watermark has passed the minute.
-- Until then the minute is state: `laminar state show page_minutes clickstream`.
CREATE MATERIALIZED VIEW page_minutes AS
SELECT
    page,
    TUMBLE_START(ts, INTERVAL '1' MINUTE) AS minute,
    COUNT(*)                              AS views,
    COALESCE(SUM(amount), 0)              AS revenue,
    AVG(load_ms)                          AS mean_load_ms,
    MAX(load_ms)                          AS max_load_ms
FROM visits
GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), page
EMIT ON WINDOW CLOSE;
