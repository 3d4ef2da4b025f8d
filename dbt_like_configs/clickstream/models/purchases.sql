-- Every visit that cost something, put out in the epoch that reads it.
SELECT user_id, page, amount, ts
FROM visits
WHERE amount > 0
