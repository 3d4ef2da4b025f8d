-- _weight tells the sink which rows are taken back.
SELECT id, trim(name) AS name, price, _weight
FROM products
WHERE is_sold
