CREATE SINK slow_pages FROM slow_pages WITH (
    connector = 'sqlite',
    path = '.laminar/page_speed/output/speed.db',
    mode = 'upsert',
    key = 'page, since'
);
