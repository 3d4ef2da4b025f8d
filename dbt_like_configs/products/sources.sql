-- SET GLOBAL binlog_row_metadata = 'FULL';
-- GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO laminar;  GRANT SELECT ON shop.products TO laminar;
CREATE SOURCE TABLE products (
    id       BIGINT NOT NULL,
    name     STRING NOT NULL,
    price    DECIMAL(12, 2),
    is_sold  BOOLEAN,
    PRIMARY KEY (id)
) WITH (
    connector = 'mysql-cdc',
    host = 'localhost',
    database = 'shop',
    user = 'laminar',          -- and password = '${…}'
    tables = 'products'
);
