-- Over rows that change: a user who buys once more leaves one group and joins another. What the view
-- below takes back is undone here, also where the next largest value has to be known then; it has no
-- event time, so nothing is forgotten.
CREATE MATERIALIZED VIEW users_by_purchases AS
SELECT
    purchases,
    COUNT(*)                  AS users,
    SUM(spent)                AS spent,
    MAX(spent)                AS most,
    MAX_BY(user_id, spent)    AS best_user,
    MEDIAN(spent)             AS median
FROM user_totals
GROUP BY purchases
EMIT CHANGES WITH (state.ttl = 'unbounded');
