CREATE SINK products_now FROM products_now WITH (
    connector = 'sqlite', path = '.laminar/products/products.db', mode = 'upsert', key = 'id'
);
