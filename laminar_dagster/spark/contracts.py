"""A view's contract, a pandera schema in YAML, checked where the rows are."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

_SAMPLES: Final = 3


def broken_rules(contract: str, rows: pa.Table) -> list[str]:
    """What the rows break, one line a rule, with a few of the values; empty when all is well."""
    import pandera.errors

    try:
        _schema(contract).validate(rows.to_pandas(), lazy=True)
    except pandera.errors.SchemaErrors as error:
        return [
            f"{column or 'the table'}: {check} ({len(cases)} times, for example "
            f"{', '.join(repr(case) for case in cases['failure_case'].head(_SAMPLES))})"
            for (column, check), cases in error.failure_cases.groupby(
                ["column", "check"], dropna=False, sort=True
            )
        ]
    return []


@lru_cache(maxsize=32)
def _schema(contract: str) -> Any:
    """Reading a schema takes longer than using it; a worker keeps those it has read."""
    from pandera.pandas import DataFrameSchema

    return DataFrameSchema.from_yaml(contract)
