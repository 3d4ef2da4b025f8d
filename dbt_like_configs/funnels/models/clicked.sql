-- How often each user has clicked: rows that change.
SELECT user_id, COUNT(*) AS clicks
FROM clicks
GROUP BY user_id
EMIT CHANGES WITH (state.ttl = 'unbounded')
