"""The aggregates that a pipeline's SQL has, for ``support.py``."""

from __future__ import annotations

from typing import Final

from laminar_dagster.config.sql.supported import Supported

AGGREGATES: Final[tuple[Supported, ...]] = (
    Supported(
        "COUNT, SUM, MIN, MAX, AVG",
        "SELECT window_end, COUNT(*) AS n, COUNT(amount) AS paid, SUM(amount) AS s, "
        "MIN(ts) AS first, MAX(ts) AS last, AVG(amount) AS mean FROM clicks "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
    ),
    Supported(
        "COUNT(DISTINCT x), exactly",
        "SELECT window_end, COUNT(DISTINCT user_id) AS users, COUNT(DISTINCT user_id, page) "
        "AS visits, SUM(DISTINCT amount) AS prices FROM clicks "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        "of one or more columns; SUM too. The state holds every distinct value",
    ),
    Supported(
        "APPROX_COUNT_DISTINCT(x [, deviation])",
        "SELECT window_end, APPROX_COUNT_DISTINCT(user_id) AS users, "
        "APPROX_COUNT_DISTINCT(page, 0.01) AS pages FROM clicks "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        "HyperLogLog: at most 4 bytes for each of 512 registers, and a standard error of 5 %; "
        "down to 0.5 % as the second argument says. Any cut into epochs gives the same number",
    ),
    Supported(
        "APPROX_PERCENTILE(x, p [, accuracy])",
        "SELECT window_end, PERCENTILE_APPROX(amount, array(0.5, 0.99)) AS p FROM clicks "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        "of numbers, by a histogram (DDSketch): the answer is at most 1 % of its value away "
        "from the exact percentile, and 1 / accuracy if that is given. Spark bounds the error "
        "of the rank instead. Any cut into epochs gives the same",
    ),
    Supported(
        "MEDIAN, PERCENTILE, PERCENTILE_CONT, PERCENTILE_DISC, MODE",
        "SELECT window_end, MEDIAN(amount) AS m, PERCENTILE_CONT(0.9) WITHIN GROUP "
        "(ORDER BY amount) AS p, MODE(page) AS page FROM clicks "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        "exactly: the state holds every distinct value with its count. Of several modes the "
        "smallest",
    ),
    Supported(
        "STDDEV, VARIANCE, SKEWNESS, KURTOSIS, CORR, COVAR, REGR",
        "SELECT window_end, STDDEV(amount) AS s, VAR_POP(amount) AS v, CORR(amount, user_id) "
        "AS c, REGR_SLOPE(amount, user_id) AS slope FROM clicks "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        "by moments about the mean; where Spark divides by 0 they are null",
    ),
    Supported(
        "BOOL_AND, EVERY, BOOL_OR, SOME, BIT_AND, BIT_OR, BIT_XOR, ANY_VALUE",
        "SELECT window_end, EVERY(amount > 0) AS paid, BIT_OR(user_id) AS bits, "
        "ANY_VALUE(page) AS page FROM clicks GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        "any value is the smallest",
    ),
    Supported(
        "STRING_AGG, LISTAGG",
        "SELECT window_end, STRING_AGG(DISTINCT page, ', ') AS pages, LISTAGG(page, ' > ') "
        "WITHIN GROUP (ORDER BY ts) AS path FROM clicks "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        "ascending, or as WITHIN GROUP says; where that leaves it open, by the texts",
    ),
    Supported(
        "MIN_BY, MAX_BY",
        "SELECT page, MAX_BY(user_id, amount) AS best FROM clicks "
        "GROUP BY page EMIT CHANGES WITH (state.ttl = '1d')",
        "of values with the same place, the smallest or largest",
    ),
    Supported(
        "FIRST, LAST, FIRST_VALUE, LAST_VALUE",
        "SELECT user_id, FIRST(page) AS entry, LAST(page) AS page FROM clicks "
        "GROUP BY SESSION(ts, INTERVAL '30' MINUTE), user_id",
        "by event time: MIN_BY(x, ts) and MAX_BY(x, ts)",
    ),
    Supported(
        "ARRAY_AGG, COLLECT_LIST, COLLECT_SET",
        "SELECT window_end, ARRAY_AGG(page) AS pages, "
        "array_join(ARRAY_AGG(DISTINCT page), ', ') AS list FROM clicks "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        "without nulls, in ascending order of the values; array_join makes a text of it",
    ),
    Supported(
        "COUNT_IF",
        "SELECT window_end, COUNT_IF(amount > 0) AS paid FROM clicks "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
    ),
    Supported(
        "FILTER (WHERE …)",
        "SELECT window_end, COUNT(*) FILTER (WHERE amount > 0) AS paid FROM clicks "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
    ),
    Supported(
        "HAVING",
        "SELECT page, window_end, COUNT(*) AS n FROM clicks "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), page HAVING COUNT(*) > 10 AND n < 100",
        "over aggregates, keys, the window's edges and columns of SELECT",
    ),
)
