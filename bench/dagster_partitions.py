"""Whether the UI stays usable with 20,000 epochs: the queries that its pages really send.

A real browser opens each page once, and what it asks of the server is written down. The same is
then asked of the server again and again, without the browser.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.dagster_copies import copy_epoch, run_ids_of
from bench.dagster_project import OURS, DagsterProject, copy_home, settings
from bench.figures import Benchmark, Figure
from bench.measure import Sample
from bench.surroundings import Surroundings
from infra import chromium
from tests.services.dagster_client import DagsterClient
from tests.services.dagster_dev import DagsterDev

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Request

_NAME: Final = "dagster-partitions"
_MANY, _FEW = 20_000, 100
_ROUNDS: Final = 3
_SILENT: Final = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_REAL: Final = f"{1:012}"
# There on both sides.
_PARTITION: Final = f"{_FEW:012}"
_QUIET_FOR, _AT_MOST = 3.0, 90.0
_ASSET: Final = "/assets/clicks/checkpoint_manifest"
_PAGES: Final = {
    "asset": f"{_ASSET}?view=overview",
    "partitions": f"{_ASSET}?view=partitions",
    "partition": f"{_ASSET}?view=partitions&partition={_PARTITION}",
    "events": f"{_ASSET}?view=events",
    "plots": f"{_ASSET}?view=plots",
    "lineage": f"/locations/__repository__@{OURS}/asset-groups/clicks/lineage",
    "runs": "/runs",
}


@dataclass(frozen=True, slots=True)
class _Query:
    """What a page asks of the server."""

    name: str
    body: bytes

    def seconds(self, url: str) -> float:
        """How long the server takes for its answer."""
        request = urllib.request.Request(
            f"{url}/graphql", data=self.body, headers={"Content-Type": "application/json"}
        )
        begun = time.perf_counter()
        with urllib.request.urlopen(request, timeout=300) as response:
            response.read()
        return time.perf_counter() - begun


@dataclass(frozen=True, slots=True)
class _Page:
    """One loading of a page."""

    queries: tuple[_Query, ...]

    def timed(self, url: str) -> dict[str, float]:
        """Ask everything once, one after the other."""
        taken: dict[str, float] = {}
        for query in self.queries:
            taken[query.name] = taken.get(query.name, 0.0) + query.seconds(url)
        return taken


def dagster_partitions(surroundings: Surroundings) -> Iterator[Figure]:
    """The pages' queries with 20,000 epochs, beside the same with 100."""
    program = chromium.require().program
    project = DagsterProject.write(surroundings.folder())
    home = surroundings.folder() / "home"
    _run_one_epoch(project, home, surroundings)
    runs = [*run_ids_of(home)]
    with ExitStack() as stack:
        urls: dict[int, str] = {}
        many = surroundings.effort.scaled(_MANY)
        for epochs in (many, _FEW):
            data = surroundings.folder()
            copy_home(home, data / "home")
            copy_epoch(data / "home", _REAL, runs, epochs)
            server = stack.enter_context(
                DagsterDev(project.folder, dagster_yaml=settings(warm=False))
            )
            endpoint = server.start(data)
            DagsterClient(endpoint.url, OURS).stop("sensor", "clicks_commit_sensor")
            urls[epochs] = endpoint.url
        asked = {epochs: _ask_pages(program, url) for epochs, url in urls.items()}
        for name in _PAGES:
            taken: dict[int, list[dict[str, float]]] = {many: [], _FEW: []}
            for _ in range(_ROUNDS):
                for epochs, url in urls.items():
                    taken[epochs].append(asked[epochs][name].timed(url))
            yield _figure(name, many, taken)


BENCHMARK: Final = Benchmark(
    _NAME, "the queries of the UI's pages with 20,000 epochs", dagster_partitions
)


def _figure(name: str, many: int, taken: dict[int, list[dict[str, float]]]) -> Figure:
    slowest = max(taken[many][0], key=lambda query: min(each[query] for each in taken[many]))
    seconds = min(each[slowest] for each in taken[many])
    return Figure(
        f"{_NAME}/{name}",
        f"the queries of the page `{name}`, {many:,} epochs",
        Sample(tuple(sum(each.values()) for each in taken[many])),
        peer=f"{_FEW} epochs",
        peer_sample=Sample(tuple(sum(each.values()) for each in taken[_FEW])),
        note=f"{len(taken[many][0])} queries; the slowest is {slowest}, {seconds * 1000:.0f} ms",
    )


def _run_one_epoch(project: DagsterProject, home: Path, surroundings: Surroundings) -> None:
    """One epoch as a real run, so that its copies weigh what real ones do."""
    import dagster as dg

    from laminar_dagster.orchestration.pipeline_defs import build_project_defs

    surroundings.spark()
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    project.offer(1)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        defs = build_project_defs(project.folder)
        instance.add_dynamic_partitions("laminar_clicks_epochs", [_REAL])
        for job in ("clicks_epoch", "clicks_commit"):
            defs.resolve_job_def(job).execute_in_process(
                instance=instance, partition_key=_REAL, run_config=_SILENT
            )


def _ask_pages(program: Path, url: str) -> dict[str, _Page]:
    # Imported here: other benchmarks do not need it.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=program, args=options)
        try:
            return {name: _ask_page(browser, url + path) for name, path in _PAGES.items()}
        finally:
            browser.close()


def _ask_page(browser: Browser, address: str) -> _Page:
    """Open a page, and write down what it asks until it asks no more."""
    page = browser.new_context(viewport={"width": 1600, "height": 1000}).new_page()
    queries: dict[bytes, _Query] = {}
    waiting: set[Any] = set()
    last = time.monotonic()

    def sent(request: Request) -> None:
        nonlocal last
        body = request.post_data_buffer
        # A page that stays open asks some things again and again.
        if "/graphql" not in request.url or not body or body in queries:
            return
        last = time.monotonic()
        waiting.add(request)
        queries[body] = _Query(json.loads(body).get("operationName") or "?", body)

    def ended(request: Request) -> None:
        nonlocal last
        if request in waiting:
            last = time.monotonic()
            waiting.discard(request)

    page.on("request", sent)
    page.on("requestfinished", ended)
    page.on("requestfailed", ended)
    page.goto(address)
    begun = last = time.monotonic()
    while time.monotonic() - begun < _AT_MOST:
        if queries and not waiting and time.monotonic() - last > _QUIET_FOR:
            break
        page.wait_for_timeout(100)
    page.context.close()
    return _Page(tuple(queries.values()))
