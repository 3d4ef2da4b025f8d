-- Each sink commits an epoch in one transaction of its own, together with its ledger.
CREATE SINK minutes FROM page_minutes WITH (
    connector = 'sqlite',
    path = '.laminar/clickstream/output/clicks.db',
    table = 'page_minutes',
    mode = 'upsert',
    key = 'page, minute'
);

-- The same rows, in another system. It appends: a row that came twice would stay twice.
CREATE SINK minutes_lake FROM page_minutes WITH (
    connector = 'delta',
    path = '.laminar/clickstream/output/page_minutes'
);

CREATE SINK purchases FROM purchases WITH (
    connector = 'sqlite',
    path = '.laminar/clickstream/output/clicks.db'
);
