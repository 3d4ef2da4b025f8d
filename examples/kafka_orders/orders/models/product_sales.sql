-- One row for each product and ten seconds, put out once, when the watermark has passed them.
CREATE MATERIALIZED VIEW product_sales AS
SELECT
    product,
    TUMBLE_START(ts, INTERVAL '10' SECOND) AS since,
    COUNT(*)                               AS orders,
    SUM(amount)                            AS revenue
FROM orders
GROUP BY TUMBLE(ts, INTERVAL '10' SECOND), product
EMIT ON WINDOW CLOSE;
