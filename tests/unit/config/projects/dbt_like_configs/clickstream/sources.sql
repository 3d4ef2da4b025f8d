-- Events of the web site, one JSON object a line.
CREATE SOURCE TABLE clicks (
    user_id   BIGINT NOT NULL,
    page      STRING,
    amount    DECIMAL(10, 2),
    device    STRUCT<os: STRING, version: INT>,
    ts        TIMESTAMP,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
    connector = 'file',
    path = 'data/clicks',
    format = 'json'
);
