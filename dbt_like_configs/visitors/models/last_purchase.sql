-- The newest purchase of each user: of rows with the same key, the first in some order.
CREATE MATERIALIZED VIEW last_purchase AS
WITH purchases AS (
    SELECT user_id, page, amount, ts FROM clicks WHERE amount > 0 AND agent <> 'bot'
)
SELECT user_id, page, amount, ts
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY ts DESC) AS place FROM purchases
)
WHERE place = 1
EMIT CHANGES WITH (state.ttl = '1d');
