-- Purchases after which the user did nothing for ten seconds. That no click comes is known when the
-- watermark has passed: then the row is put out, once.
SELECT p.user_id, p.page, p.amount, p.ts
FROM (SELECT user_id, page, amount, ts FROM clicks WHERE amount > 0) AS p
LEFT ANTI JOIN clicks AS c
    ON  p.user_id = c.user_id
    AND c.ts > p.ts AND c.ts <= p.ts + INTERVAL '10' SECOND
