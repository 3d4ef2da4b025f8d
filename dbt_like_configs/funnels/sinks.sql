CREATE SINK purchases_after FROM purchases_after WITH (
    connector = 'sqlite', path = '.laminar/funnels/output/funnels.db'
);
CREATE SINK left_behind FROM left_behind WITH (
    connector = 'sqlite', path = '.laminar/funnels/output/funnels.db'
);
CREATE SINK users FROM users WITH (
    connector = 'sqlite', path = '.laminar/funnels/output/funnels.db',
    mode = 'upsert', key = 'user_id'
);
