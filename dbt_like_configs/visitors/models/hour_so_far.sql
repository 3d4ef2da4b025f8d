-- Every ten minutes, the hour up to then. The window is a table function, as Flink SQL writes it.
CREATE MATERIALIZED VIEW hour_so_far AS
SELECT
    window_start                              AS hour,
    window_end                                AS until,
    COUNT(*)                                  AS clicks,
    SUM(amount)                               AS revenue,
    APPROX_COUNT_DISTINCT(user_id, 0.02)      AS users,
    APPROX_PERCENTILE(load_ms, 0.99)          AS slow_ms
FROM TABLE(CUMULATE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' MINUTE, INTERVAL '1' HOUR))
GROUP BY window_start, window_end;
