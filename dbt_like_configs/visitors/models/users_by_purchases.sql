-- Over rows that change: a user who buys once more leaves one group and joins another. What the view
-- below takes back is undone here; it has no event time, so nothing is forgotten.
CREATE MATERIALIZED VIEW users_by_purchases AS
SELECT purchases, COUNT(*) AS users, SUM(spent) AS spent
FROM user_totals
GROUP BY purchases
EMIT CHANGES WITH (state.ttl = 'unbounded');
