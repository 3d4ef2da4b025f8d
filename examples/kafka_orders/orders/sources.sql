CREATE SOURCE TABLE orders (
    order_id BIGINT NOT NULL,
    product  STRING NOT NULL,
    amount   DECIMAL(10, 2) NOT NULL,
    ts       TIMESTAMP,
    -- An order may come up to five seconds after a later one of its partition. After that it is
    -- late: it is counted, and left out, whatever the epoch it falls into.
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
    connector = 'kafka',
    'bootstrap.servers' = '127.0.0.1:9092',
    topic = 'orders',
    'group.id' = 'sales-pipeline',
    format = 'json'
);
