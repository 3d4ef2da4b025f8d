-- Compared with one value of a table: an epoch has that of the copy which its plan has pinned.
SELECT user_id, page, load_ms, ts
FROM clicks
WHERE load_ms > (SELECT max(ms) FROM limits WHERE name = 'slow')
