-- _weight tells the sink which rows are taken back.
SELECT id, upper(country) AS country, name, credit, _weight
FROM customers
