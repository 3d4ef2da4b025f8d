"""Benchmarks: ``python -m bench [NAME…] [--quick] [--full] [--json FILE]``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bench import (
    checkpoint_overhead,
    cold_runs,
    dagster_idle,
    dagster_latency,
    dagster_partitions,
    documents,
    epoch_overhead,
    epochs,
    identifiers,
    keyed_growth,
    listing,
    mysql_cdc,
    postgres_cdc,
    recovery,
    report,
    rescale,
    sql_families,
    state_growth,
    state_io,
    stores,
    throughput,
)
from bench.figures import Benchmark, Figure
from bench.kafka import contests, decoding, memory, questions
from bench.kafka.venue import closing_venue
from bench.measure import FULL, QUICK
from bench.sinks import benchmarks as sinks
from bench.sinks import engines
from bench.surroundings import Surroundings
from infra.errors import ServiceError

GROUPS: Final[dict[str, tuple[Benchmark, ...]]] = {
    "documents": documents.BENCHMARKS,
    "identifiers": identifiers.BENCHMARKS,
    "stores": stores.BENCHMARKS,
    "listing": listing.BENCHMARKS,
    "epochs": epochs.BENCHMARKS,
    "recovery": recovery.BENCHMARKS,
    "engine": (
        throughput.BENCHMARK,
        epoch_overhead.BENCHMARK,
        state_growth.BENCHMARK,
        checkpoint_overhead.BENCHMARK,
        state_io.BENCHMARK,
        rescale.BENCHMARK,
    ),
    "cold": (cold_runs.BENCHMARK,),
    "sql": (sql_families.BENCHMARK, keyed_growth.BENCHMARK),
    "mysql-cdc": (mysql_cdc.BENCHMARK,),
    "postgres-cdc": (postgres_cdc.BENCHMARK,),
    "sinks": sinks.BENCHMARKS,
    "sinks-peers": engines.BENCHMARKS,
    "dagster": (
        dagster_latency.BENCHMARK,
        dagster_idle.BENCHMARK,
        dagster_partitions.BENCHMARK,
    ),
    "kafka": (
        *contests.BENCHMARKS,
        decoding.BENCHMARK,
        *questions.BENCHMARKS,
        memory.BENCHMARK,
    ),
}
# Only by name: the first takes a quarter of an hour, the others install peers.
ON_REQUEST: Final = frozenset({"cold", "kafka", "sinks-peers"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for. Fails only under ``CI=true``, when a service is missing."""
    options = _parser().parse_args(arguments)
    if options.list:
        _print_names()
        return 0
    benchmarks = _chosen(options.names)
    effort = replace(QUICK if options.quick else FULL, largest=options.full)
    machine = _machine()
    load = _load()
    figures: list[Figure] = []
    missing: dict[str, None] = {}
    with Surroundings(effort) as surroundings, closing_venue():
        for benchmark in benchmarks:
            print(f"{benchmark.name} …", file=sys.stderr, flush=True)
            begun = time.monotonic()
            try:
                figures += benchmark.run(surroundings)
            except ServiceError as error:
                missing[str(error)] = None
                note = str(error).splitlines()[0]
                figures.append(Figure(benchmark.name, benchmark.what, None, note=note))
            minutes = (time.monotonic() - begun) / 60
            print(f"{benchmark.name} took {minutes:.1f} minutes", file=sys.stderr, flush=True)
    machine |= {"load_average": [load, _load()], "rounds": effort.rounds, "epochs": effort.epochs}
    report.show(figures)
    print(_describe(machine))
    if options.json:
        content = {"machine": machine, "figures": [figure.as_json() for figure in figures]}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    for reason in missing:
        print(f"Not everything was measured: {reason}", file=sys.stderr)
    return 1 if missing and os.environ.get("CI") == "true" else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Run the benchmarks.")
    by_name = ", ".join(sorted(ON_REQUEST))
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        help=f"a benchmark or a group; without any, all but those of {by_name}, which take "
        "long or install the peers they are measured beside; kafka takes more than an hour",
    )
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--quick", action="store_true", help="few rounds: to see that it works")
    parser.add_argument("--full", action="store_true", help="also what takes many minutes")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every round to a file")
    return parser


def _chosen(names: Sequence[str]) -> list[Benchmark]:
    everything = [each for group in GROUPS.values() for each in group]
    known = {each.name for each in everything} | GROUPS.keys()
    if unknown := [name for name in names if name not in known]:
        hint = "`python -m bench --list` prints what there is"
        print(f"There is no benchmark {unknown[0]!r}; {hint}.", file=sys.stderr)
        raise SystemExit(2)
    groups = {each.name: group for group, members in GROUPS.items() for each in members}
    if not names:
        return [each for each in everything if groups[each.name] not in ON_REQUEST]
    return [each for each in everything if each.name in names or groups[each.name] in names]


def _print_names() -> None:
    for group, members in GROUPS.items():
        print(group)
        for each in members:
            print(f"  {each.name:22} {each.what}")


def _machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
    }


def _load() -> float:
    return round(os.getloadavg()[0], 1)


def _describe(machine: dict[str, Any]) -> str:
    before, after = machine["load_average"]
    return (
        f"Python {machine['python']}, {machine['system']} {machine['processor']}, "
        f"{machine['cores']} cores, load average {before} before and {after} after; "
        f"{machine['rounds']} rounds, {machine['epochs']} epochs."
    )


if __name__ == "__main__":
    sys.exit(main())
