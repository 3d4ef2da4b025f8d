-- What each user has spent: rows that change.
SELECT user_id, SUM(amount) AS spent
FROM clicks
WHERE amount > 0
GROUP BY user_id
EMIT CHANGES WITH (state.ttl = 'unbounded')
