-- What pages are about: somebody edits it by hand. An epoch sees the table as it was when the epoch
-- was planned, however often that epoch is run.
CREATE REFERENCE TABLE sections (
    page     STRING NOT NULL,
    section  STRING NOT NULL,
    PRIMARY KEY (page)
) WITH (
    connector = 'file',
    path = 'dbt_like_configs/visitors/tables/sections.csv',
    format = 'csv'
);

-- From when on a page counts as slow.
CREATE REFERENCE TABLE limits (
    name  STRING NOT NULL,
    ms    INT NOT NULL,
    PRIMARY KEY (name)
) WITH (
    connector = 'file',
    path = 'dbt_like_configs/visitors/tables/limits.csv',
    format = 'csv'
);
