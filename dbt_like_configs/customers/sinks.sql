CREATE SINK customers_now FROM customers_now WITH (
    connector = 'sqlite', path = '.laminar/customers/customers.db', mode = 'upsert', key = 'id'
);
