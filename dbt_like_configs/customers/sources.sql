-- CREATE PUBLICATION laminar_customers FOR TABLE public.customers;
-- ALTER TABLE public.customers REPLICA IDENTITY FULL;
CREATE SOURCE TABLE customers (
    id       BIGINT NOT NULL,
    name     STRING,
    country  STRING NOT NULL,
    credit   DECIMAL(12, 2),
    PRIMARY KEY (id)
) WITH (
    connector = 'postgres-cdc',
    host = 'localhost',
    database = 'shop',
    user = 'laminar',          -- the password is in PGPASSWORD or ~/.pgpass, or password = '${…}'
    tables = 'public.customers',
    slot = 'laminar_customers',
    before = 'required',
    'retain.wal' = '64MiB'
);
