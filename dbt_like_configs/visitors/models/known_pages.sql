-- Which user has seen which page: a row that has come stays the same, so it is put out once.
SELECT DISTINCT user_id, lower(page) AS page
FROM clicks
EMIT CHANGES WITH (state.ttl = '1d')
