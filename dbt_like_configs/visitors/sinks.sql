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
