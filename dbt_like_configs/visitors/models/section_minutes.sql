-- A page without a row in `sections` is a product's. Event time passes through the join.
SELECT
    coalesce(s.section, 'products') AS section,
    window_start AS minute,
    COUNT(*) AS clicks
FROM clicks c LEFT JOIN sections s ON lower(c.page) = s.page
GROUP BY TUMBLE(c.ts, INTERVAL '1' MINUTE), coalesce(s.section, 'products')
