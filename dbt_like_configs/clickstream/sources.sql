-- The logs of four web servers, one JSON object a line. Each file is a partition of the stream.
CREATE SOURCE TABLE clicks (
    user_id  BIGINT NOT NULL,
    page     STRING NOT NULL,
    agent    STRING NOT NULL,
    load_ms  INT NOT NULL,
    amount   DECIMAL(10, 2),
    ts       TIMESTAMP,
    -- A click may come up to ten seconds after a later one of its server. After that it is late:
    -- it is counted, and left out, whatever the epoch it falls into.
    WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH (
    connector = 'file',
    path = '.laminar/clickstream/input',
    pattern = '*.ndjson',
    format = 'ndjson',
    -- A server that is silent for a day no longer keeps the minutes of the others open.
    'idle.timeout' = '1d'
);
