-- Each sink commits an epoch in one transaction of its own, together with its ledger.
CREATE SINK sales FROM product_sales WITH (
    connector = 'sqlite',
    path = 'output/shop.db',
    table = 'product_sales',
    mode = 'upsert',
    key = 'product, since'
);

-- The same rows, in another system. It appends: a row that came twice would stay twice.
CREATE SINK sales_lake FROM product_sales WITH (
    connector = 'delta',
    path = 'output/product_sales'
);
