-- The logs of `clickstream`, read by a pipeline of its own: offsets and state are not shared.
CREATE SOURCE TABLE clicks (
    user_id  BIGINT NOT NULL,
    page     STRING NOT NULL,
    agent    STRING NOT NULL,
    load_ms  INT NOT NULL,
    amount   DECIMAL(10, 2),
    ts       TIMESTAMP,
    WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH (
    connector = 'file',
    path = '.laminar/clickstream/input',
    pattern = '*.ndjson',
    format = 'ndjson',
    'idle.timeout' = '1d'
);
