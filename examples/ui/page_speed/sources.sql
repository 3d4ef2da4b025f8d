-- The logs that clickstream reads too: in Dagster, one asset.
CREATE SOURCE TABLE clicks (
    page     STRING NOT NULL,
    load_ms  INT NOT NULL,
    ts       TIMESTAMP,
    WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH (
    connector = 'file',
    path = '.laminar/clickstream/input',
    pattern = '*.ndjson',
    format = 'ndjson',
    'idle.timeout' = '1d'
);
