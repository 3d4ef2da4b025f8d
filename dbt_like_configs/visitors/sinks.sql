-- Rows that change are put by key. A sink that appends would be refused: it cannot take a row back.
CREATE SINK user_totals FROM user_totals WITH (
    connector = 'sqlite', path = '.laminar/visitors/output/visitors.db',
    mode = 'upsert', key = 'user_id'
);
CREATE SINK users_by_purchases FROM users_by_purchases WITH (
    connector = 'sqlite', path = '.laminar/visitors/output/visitors.db',
    mode = 'upsert', key = 'purchases'
);
CREATE SINK last_purchase FROM last_purchase WITH (
    connector = 'sqlite', path = '.laminar/visitors/output/visitors.db',
    mode = 'upsert', key = 'user_id'
);
CREATE SINK known_pages FROM known_pages WITH (
    connector = 'sqlite', path = '.laminar/visitors/output/visitors.db',
    mode = 'upsert', key = 'user_id, page'
);

-- What is put out once can be appended.
CREATE SINK visits FROM visits WITH (
    connector = 'sqlite', path = '.laminar/visitors/output/visitors.db'
);
CREATE SINK hours FROM hour_so_far WITH (
    connector = 'sqlite', path = '.laminar/visitors/output/visitors.db'
);
CREATE SINK section_minutes FROM section_minutes WITH (
    connector = 'sqlite', path = '.laminar/visitors/output/visitors.db'
);
CREATE SINK left_carts FROM left_carts WITH (
    connector = 'sqlite', path = '.laminar/visitors/output/visitors.db'
);
CREATE SINK steps_by_minute FROM steps_by_minute WITH (
    connector = 'sqlite', path = '.laminar/visitors/output/visitors.db'
);
CREATE SINK path_minutes FROM path_minutes WITH (
    connector = 'sqlite', path = '.laminar/visitors/output/visitors.db'
);
CREATE SINK part_minutes FROM part_minutes WITH (
    connector = 'sqlite', path = '.laminar/visitors/output/visitors.db'
);
CREATE SINK slow_clicks FROM slow_clicks WITH (
    connector = 'sqlite', path = '.laminar/visitors/output/visitors.db'
);
