-- What must come of the input, over all of it at once, in DuckDB. Nothing here knows of epochs.

CREATE TABLE lines AS
SELECT filename AS server, row_number() OVER () AS place, TRY_CAST(line AS JSON) AS json
FROM read_csv(
    getvariable('input'), columns = {'line': 'VARCHAR'}, auto_detect = false, header = false,
    delim = '\x01', quote = '', escape = '', filename = true, parallel = false
);

-- A line that is no such object is broken. What cannot be read as its type is NULL.
CREATE TABLE objects AS
SELECT server, place, from_json(json, '{
    "user_id": "BIGINT", "page": "VARCHAR", "agent": "VARCHAR", "load_ms": "INTEGER",
    "amount": "DECIMAL(10,2)", "ts": "TIMESTAMPTZ"
}') AS click
FROM lines WHERE json_type(json) = 'OBJECT';

CREATE TABLE clicks AS
SELECT server, place, unnest(click) FROM objects
WHERE click.user_id IS NOT NULL AND click.page IS NOT NULL AND click.agent IS NOT NULL
  AND click.load_ms IS NOT NULL AND click.ts IS NOT NULL;

-- A click is late when, before it, its own server had logged one more than ten seconds newer
-- (docs/adr/0008-lateness-is-a-property-of-the-record.md).
CREATE TABLE judged AS
SELECT *, coalesce(ts < max(ts) OVER (
    PARTITION BY server ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
) - INTERVAL 10 SECOND, false) AS is_late
FROM clicks;

-- The server that is furthest behind says which minutes are over.
CREATE TABLE watermark AS
SELECT min(newest) - INTERVAL 10 SECOND AS moment
FROM (SELECT max(ts) AS newest FROM judged GROUP BY server);

CREATE TABLE visits AS
SELECT user_id, lower(page) AS page, load_ms, amount, ts
FROM judged WHERE NOT is_late AND agent <> 'bot';

CREATE TABLE page_minutes AS
SELECT page, minute,
       count(*)::BIGINT                          AS views,
       coalesce(sum(amount), 0)::DECIMAL(20,2)   AS revenue,
       sum(load_ms)::DOUBLE / count(load_ms)     AS mean_load_ms,
       max(load_ms)::INTEGER                     AS max_load_ms
FROM (SELECT *, time_bucket(INTERVAL 1 MINUTE, ts) AS minute FROM visits)
GROUP BY page, minute
HAVING minute + INTERVAL 1 MINUTE <= (SELECT moment FROM watermark);

CREATE TABLE purchases AS
SELECT user_id, page, amount, ts FROM visits WHERE amount > 0;

CREATE TABLE counts AS
SELECT (SELECT count(*) FROM lines)                                          AS read,
       (SELECT count(*) FROM visits)                                         AS processed,
       (SELECT count(*) FROM judged WHERE NOT is_late AND agent = 'bot')     AS filtered,
       (SELECT count(*) FROM judged WHERE is_late)                           AS late,
       (SELECT count(*) FROM lines) - (SELECT count(*) FROM clicks)          AS dead_lettered;
