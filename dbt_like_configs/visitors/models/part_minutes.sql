-- Over a model in Python that takes data frames of pandas: what `path_minutes` computes in SQL alone.
SELECT window_start AS minute, level, name, COUNT(*) AS clicks
FROM path_parts
GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), level, name
