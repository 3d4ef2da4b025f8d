-- A visit ends when its user has been silent for half a minute, and is then put out once.
CREATE MATERIALIZED VIEW visits AS
SELECT
    user_id,
    window_start                            AS since,
    window_end                              AS until,
    COUNT(*)                                AS clicks,
    COALESCE(SUM(amount), 0)                AS spent
FROM clicks
WHERE agent <> 'bot'
GROUP BY SESSION(ts, INTERVAL '30' SECOND), user_id
EMIT ON WINDOW CLOSE;
