-- A purchase within ten seconds of a slow page, and what it was. Both are clicks: one stream joined with
-- itself. A pair is put out when its second click comes.
SELECT slow.user_id, slow.page AS slow_page, slow.load_ms, bought.page AS bought, bought.amount
FROM clicks AS slow
JOIN clicks AS bought
    ON  slow.user_id = bought.user_id
    AND bought.ts BETWEEN slow.ts AND slow.ts + INTERVAL '10' SECOND
    AND bought.amount > 0
    AND slow.load_ms > 500
