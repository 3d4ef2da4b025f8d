-- The same in SQL: one row for each part of a path. How many clicks each part had in a minute.
SELECT window_start AS minute, place + 1 AS level, part AS name, COUNT(*) AS clicks
FROM clicks
LATERAL VIEW posexplode(split(trim(BOTH '/' FROM lower(page)), '/')) parts AS place, part
WHERE part <> ''
GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), place, part
