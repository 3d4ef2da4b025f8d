-- SQL over a model in Python: `steps` hands its event time on.
SELECT window_start AS minute, step, COUNT(*) AS clicks
FROM steps
GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), step
