-- One row for each user, which changes with every epoch that has clicks of that user. Who did not
-- click for a day leaves the table.
CREATE MATERIALIZED VIEW user_totals AS
SELECT
    user_id,
    COUNT(*)                                AS clicks,
    COUNT(*) FILTER (WHERE amount > 0)      AS purchases,
    COALESCE(SUM(amount), 0)                AS spent,
    MAX(ts)                                 AS last_seen
FROM clicks
WHERE agent <> 'bot'
GROUP BY user_id
EMIT CHANGES WITH (state.ttl = '1d');
