CREATE SINK minutes FROM clicks_per_minute WITH (
    connector = 'sqlite',
    path = 'clicks.db',
    mode = 'upsert',
    key = 'window_start, page'
);
