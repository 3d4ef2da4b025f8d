-- A bare SELECT: the view is called like its file.
SELECT
    c.user_id,
    lower(trim(c.page)) AS page,   -- one spelling
    c.amount,
    c.device.os,
    c.ts
FROM clicks AS c
WHERE c.page IS NOT NULL AND c.user_id > 0
