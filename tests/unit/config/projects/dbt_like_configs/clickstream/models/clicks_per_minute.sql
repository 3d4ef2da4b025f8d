CREATE MATERIALIZED VIEW clicks_per_minute AS
SELECT
    TUMBLE_START(ts, INTERVAL '1' MINUTE) AS window_start,
    page,
    COUNT(*)                              AS clicks,
    ROUND(SUM(amount) / COUNT(*), 2)      AS mean_amount,
    MAX(ts)                               AS last_click
FROM valid_clicks
GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), page
HAVING COUNT(*) > 1 OR SUM(amount) > 100
EMIT ON WINDOW CLOSE;
