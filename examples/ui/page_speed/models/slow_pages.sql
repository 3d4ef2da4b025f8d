SELECT
    page,
    HOP_START(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE) AS since,
    COUNT(*)                                                AS views,
    AVG(load_ms)                                            AS mean_load_ms,
    MAX(load_ms)                                            AS max_load_ms
FROM clicks
GROUP BY HOP(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE), page
EMIT ON WINDOW CLOSE
