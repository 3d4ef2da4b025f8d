-- What must come of the topic, over all of it at once, in DuckDB. Nothing here knows of epochs.

CREATE TABLE records AS
SELECT partition, "offset" AS place, TRY_CAST(value AS JSON) AS json
FROM read_parquet(getvariable('topic'));

-- A record that is no such object is broken. What cannot be read as its type is NULL.
CREATE TABLE objects AS
SELECT partition, place, from_json(json, '{
    "order_id": "BIGINT", "product": "VARCHAR", "amount": "DECIMAL(10,2)", "ts": "TIMESTAMPTZ"
}') AS sale
FROM records WHERE json_type(json) = 'OBJECT';

CREATE TABLE sales AS
SELECT partition, place, unnest(sale) FROM objects
WHERE sale.order_id IS NOT NULL AND sale.product IS NOT NULL
  AND sale.amount IS NOT NULL AND sale.ts IS NOT NULL;

-- An order is late when, before it, its own partition had one more than five seconds newer
-- (docs/adr/0008-lateness-is-a-property-of-the-record.md).
CREATE TABLE judged AS
SELECT *, coalesce(ts < max(ts) OVER (
    PARTITION BY partition ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
) - INTERVAL 5 SECOND, false) AS is_late
FROM sales;

-- The partition that is furthest behind says which windows are over.
CREATE TABLE watermark AS
SELECT min(newest) - INTERVAL 5 SECOND AS moment
FROM (SELECT max(ts) AS newest FROM judged GROUP BY partition);

CREATE TABLE product_sales AS
SELECT product, since, count(*)::BIGINT AS orders, sum(amount)::DECIMAL(20,2) AS revenue
FROM (SELECT *, time_bucket(INTERVAL 10 SECOND, ts) AS since FROM judged WHERE NOT is_late)
GROUP BY product, since
HAVING since + INTERVAL 10 SECOND <= (SELECT moment FROM watermark);

CREATE TABLE counts AS
SELECT (SELECT count(*) FROM records)                                         AS read,
       (SELECT count(*) FROM judged WHERE NOT is_late)                        AS on_time,
       (SELECT count(*) FROM judged WHERE is_late)                            AS late,
       (SELECT count(*) FROM records) - (SELECT count(*) FROM sales)          AS broken;
