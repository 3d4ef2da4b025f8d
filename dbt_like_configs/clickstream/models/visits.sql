-- A bare SELECT: the view is called like its file. Crawlers go; what is left feeds both views below.
SELECT user_id, lower(page) AS page, load_ms, amount, ts
FROM clicks
WHERE agent <> 'bot'
