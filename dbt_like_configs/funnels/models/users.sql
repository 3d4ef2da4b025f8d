-- Both side by side. Who has bought nothing has no partner; with the first purchase that row is taken
-- back, and one with the sum takes its place.
SELECT c.user_id, c.clicks, s.spent
FROM clicked AS c
LEFT JOIN spent AS s ON c.user_id = s.user_id
EMIT CHANGES WITH (state.ttl = 'unbounded')
