"""A client of Dagster's webserver: what a user does in the UI, over the UI's own GraphQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeVar

from infra.load import Deadline
from tests.services.dagster_graphql import ERROR, INVALID, NOT_FOUND, GraphQL, GraphQLError
from tests.services.dagster_records import (
    ENDED,
    Backfill,
    CheckExecution,
    Event,
    Materialization,
    Run,
    RunStatus,
    Tick,
    error_text,
)

Instigator = Literal["sensor", "schedule"]
Strategy = Literal["ALL_STEPS", "FROM_FAILURE", "FROM_ASSET_FAILURE"]
T = TypeVar("T")

# Events of one run that are fetched at once: the most that Dagster gives.
_PAGE = 1_000


class DagsterClient(GraphQL):
    """Talks to one webserver about one code location.

    An asset's key is written with slashes: ``clickstream/page_minutes``.
    """

    def __init__(self, url: str, location: str | None = None) -> None:
        """Take the webserver's address, and the code location if there is more than one."""
        super().__init__(url)
        self._location = location

    @cached_property
    def repository(self) -> dict[str, str]:
        """What selects the code location's repository in other queries."""
        (location, repository) = self._only_repository()
        return {"repositoryLocationName": location, "repositoryName": repository}

    def failed_locations(self) -> dict[str, str] | None:
        """Why code locations could not be loaded, by name; None while they are being loaded."""
        entries = self._locations()
        if not entries or any(each["loadStatus"] != "LOADED" for each in entries):
            return None
        return {
            each["name"]: error_text(each["locationOrLoadError"])
            for each in entries
            if each["locationOrLoadError"]["__typename"] == "PythonError"
        }

    # Runs

    def launch(
        self,
        job: str,
        *,
        partition: str | None = None,
        tags: Mapping[str, str] = {},
        run_config: Mapping[str, Any] = {},
        assets: Sequence[str] = (),
    ) -> str:
        """Launch a run of a job, as the launchpad does; return the run's id."""
        given = {"dagster/partition": partition} if partition is not None else {}
        selector: dict[str, Any] = {**self.repository, "jobName": job}
        if assets:
            selector["assetSelection"] = [_asset_key(each) for each in assets]
        answer = self.expect(
            "LaunchRunSuccess",
            f"""mutation ($params: ExecutionParams!) {{
                launchRun(executionParams: $params) {{
                    {ERROR} {INVALID} ... on LaunchRunSuccess {{ run {{ runId }} }}
                }}
            }}""",
            params={
                "selector": selector,
                "runConfigData": run_config,
                "executionMetadata": {"tags": _pairs({**tags, **given})},
            },
        )
        return str(answer["run"]["runId"])

    def reexecute(self, run_id: str, strategy: Strategy = "ALL_STEPS") -> str:
        """Re-execute a run that has ended; return the new run's id."""
        answer = self.expect(
            "LaunchRunSuccess",
            f"""mutation ($params: ReexecutionParams!) {{
                launchRunReexecution(reexecutionParams: $params) {{
                    {ERROR} {INVALID} ... on LaunchRunSuccess {{ run {{ runId }} }}
                }}
            }}""",
            params={"parentRunId": run_id, "strategy": strategy},
        )
        return str(answer["run"]["runId"])

    def terminate(self, run_id: str, *, force: bool = False) -> None:
        """Ask a run to end; with ``force``, call it ended at once, whatever its process does."""
        self.expect(
            "TerminateRunSuccess",
            f"""mutation ($run: String!, $policy: TerminateRunPolicy!) {{
                terminateRun(runId: $run, terminatePolicy: $policy) {{
                    {ERROR} ... on TerminateRunFailure {{ message }}
                }}
            }}""",
            run=run_id,
            policy="MARK_AS_CANCELED_IMMEDIATELY" if force else "SAFE_TERMINATE",
        )

    def run(self, run_id: str) -> Run:
        """One run."""
        answer = self.expect(
            "Run",
            f"""query ($run: ID!) {{
                runOrError(runId: $run) {{ {ERROR} ... on Run {{ {Run.FIELDS} }} }}
            }}""",
            run=run_id,
        )
        return Run.of(answer)

    def runs(
        self,
        *,
        job: str | None = None,
        tags: Mapping[str, str] = {},
        statuses: Iterable[RunStatus] = (),
        limit: int = 1000,
    ) -> list[Run]:
        """The runs that match everything given, the newest first."""
        wanted: dict[str, Any] = {"pipelineName": job} if job else {}
        wanted |= {"tags": _pairs(tags)} if tags else {}
        wanted |= {"statuses": sorted(statuses)} if statuses else {}
        answer = self.expect(
            "Runs",
            f"""query ($filter: RunsFilter!, $limit: Int!) {{
                runsOrError(filter: $filter, limit: $limit) {{
                    {ERROR} ... on Runs {{ results {{ {Run.FIELDS} }} }}
                }}
            }}""",
            filter=wanted,
            limit=limit,
        )
        return [Run.of(each) for each in answer["results"]]

    def wait(
        self, run_id: str, *statuses: RunStatus, within: float = 120.0, expect: bool = True
    ) -> Run:
        """Wait until a run has one of these statuses, or has ended if none are given.

        Args:
            within: Seconds.
            expect: Fail as soon as the run ends in a status that is not one of these.

        Raises:
            AssertionError: With the run's event log.
        """
        wanted = frozenset(statuses) or ENDED
        deadline = Deadline(within)
        while (run := self.run(run_id)).status not in wanted:
            if deadline.is_over or (expect and run.status in ENDED):
                text = (
                    f"run {run_id} of {run.job} is {run.status}, not {' or '.join(sorted(wanted))}"
                )
                raise AssertionError(f"{text}; its events:\n{self.event_log(run_id)}")
            time.sleep(0.2)
        return run

    def events(self, run_id: str) -> list[Event]:
        """The event log of a run, from its beginning."""
        found: list[Event] = []
        cursor: str | None = None
        while True:
            page = self.expect(
                "EventConnection",
                f"""query ($run: ID!, $cursor: String, $limit: Int!) {{
                    logsForRun(runId: $run, afterCursor: $cursor, limit: $limit) {{
                        {ERROR}
                        ... on EventConnection {{ cursor hasMore events {{ {Event.FIELDS} }} }}
                    }}
                }}""",
                run=run_id,
                cursor=cursor,
                limit=_PAGE,
            )
            found.extend(map(Event.of, page["events"]))
            if not page["hasMore"]:
                return found
            cursor = page["cursor"]

    def event_log(self, run_id: str) -> str:
        """The event log of a run as text, with the stack of each error."""
        return "\n".join(map(str, self.events(run_id)))

    # Sensors and schedules

    def start(self, kind: Instigator, name: str) -> None:
        """Switch a sensor or schedule on."""
        field, selector = f"start{kind.title()}", f"{kind}Selector"
        self.expect(
            "Sensor" if kind == "sensor" else "ScheduleStateResult",
            f"""mutation ($selector: {kind.title()}Selector!) {{
                {field}({selector}: $selector) {{ {ERROR} }}
            }}""",
            selector={**self.repository, f"{kind}Name": name},
        )

    def stop(self, kind: Instigator, name: str) -> None:
        """Switch a sensor or schedule off, and see that it is."""
        field = "stopSensor" if kind == "sensor" else "stopRunningSchedule"

        def stopped() -> bool:
            self.expect(
                "StopSensorMutationResult" if kind == "sensor" else "ScheduleStateResult",
                f"mutation ($id: String!) {{ {field}(id: $id) {{ {ERROR} }} }}",
                id=self._instigator(name, "id")["id"],
            )
            # A tick that ends just now may write back that it is on.
            time.sleep(0.5)
            return not self.is_running(name)

        self.wait_for(stopped, f"the {kind} {name} to stop")

    def is_running(self, name: str) -> bool:
        """Whether a sensor or schedule is on."""
        return bool(self._instigator(name, "status")["status"] == "RUNNING")

    def ticks(self, name: str, limit: int = 100) -> list[Tick]:
        """The evaluations of a sensor or schedule, the newest first."""
        answer = self._instigator(name, f"ticks(limit: {limit}) {{ {Tick.FIELDS} }}")
        return [Tick.of(each) for each in answer["ticks"]]

    # Assets

    def add_partition(self, definition: str, key: str) -> None:
        """Add a key to a dynamic partitions definition."""
        self.expect(
            "AddDynamicPartitionSuccess",
            f"""mutation ($of: RepositorySelector!, $definition: String!, $key: String!) {{
                addDynamicPartition(
                    repositorySelector: $of, partitionsDefName: $definition, partitionKey: $key
                ) {{ {ERROR} }}
            }}""",
            of=self.repository,
            definition=definition,
            key=key,
        )

    def partitions(self, asset: str) -> list[str]:
        """The keys of the partitions of an asset, in order."""
        answer = self.expect(
            "AssetNode",
            f"""query ($key: AssetKeyInput!) {{
                assetNodeOrError(assetKey: $key) {{
                    {NOT_FOUND} ... on AssetNode {{ partitionKeys }}
                }}
            }}""",
            key=_asset_key(asset),
        )
        return list(answer["partitionKeys"])

    def backfill(
        self, assets: Sequence[str], partitions: Sequence[str], tags: Mapping[str, str] = {}
    ) -> str:
        """Launch a backfill of assets over partitions; return its id."""
        answer = self.expect(
            "LaunchBackfillSuccess",
            f"""mutation ($params: LaunchBackfillParams!) {{
                launchPartitionBackfill(backfillParams: $params) {{
                    {ERROR} {INVALID} ... on LaunchBackfillSuccess {{ backfillId }}
                }}
            }}""",
            params={
                "assetSelection": [_asset_key(each) for each in assets],
                "partitionNames": list(partitions),
                "tags": _pairs(tags),
            },
        )
        return str(answer["backfillId"])

    def wait_for_backfill(self, backfill_id: str, within: float = 180.0) -> Backfill:
        """Wait until a backfill has ended, well or not."""
        query = f"""query ($id: String!) {{
            partitionBackfillOrError(backfillId: $id) {{
                {ERROR} ... on PartitionBackfill {{ {Backfill.FIELDS} }}
            }}
        }}"""

        def ended() -> Backfill | None:
            found = Backfill.of(self.expect("PartitionBackfill", query, id=backfill_id))
            return found if found.has_ended else None

        return self.wait_for(ended, f"the end of backfill {backfill_id}", within)

    def materializations(
        self, asset: str, partitions: Sequence[str] | None = None, limit: int = 100
    ) -> list[Materialization]:
        """The materializations of an asset, the newest first; none if it never was."""
        text = f"""query ($key: AssetKeyInput!, $partitions: [String!], $limit: Int!) {{
            assetOrError(assetKey: $key) {{
                {NOT_FOUND}
                ... on Asset {{
                    assetMaterializations(partitions: $partitions, limit: $limit) {{
                        {Materialization.FIELDS}
                    }}
                }}
            }}
        }}"""
        answer = self.expect(
            "Asset", text, key=_asset_key(asset), partitions=partitions, limit=limit
        )
        return [Materialization.of(each) for each in answer["assetMaterializations"]]

    def check_executions(
        self, asset: str, check: str, partition: str | None = None, limit: int = 100
    ) -> list[CheckExecution]:
        """The executions of an asset check, the newest first."""
        answer = self.query(
            f"""query ($key: AssetKeyInput!, $check: String!, $partition: String, $limit: Int!) {{
                assetCheckExecutions(
                    assetKey: $key, checkName: $check, partition: $partition, limit: $limit
                ) {{ {CheckExecution.FIELDS} }}
            }}""",
            key=_asset_key(asset),
            check=check,
            partition=partition,
            limit=limit,
        )
        return [CheckExecution.of(each) for each in answer["assetCheckExecutions"]]

    def wait_for(self, look: Callable[[], T | None], what: str, within: float = 60.0) -> T:
        """Look again and again until there is something; return it.

        Raises:
            AssertionError: There was nothing in time.
        """
        deadline = Deadline(within)
        while not (found := look()):
            if deadline.is_over:
                raise AssertionError(f"waited {deadline} in vain for {what}")
            time.sleep(0.2)
        return found

    def _instigator(self, name: str, fields: str) -> dict[str, Any]:
        return self.expect(
            "InstigationState",
            f"""query ($selector: InstigationSelector!) {{
                instigationStateOrError(instigationSelector: $selector) {{
                    {ERROR} ... on InstigationState {{ {fields} }}
                }}
            }}""",
            selector={**self.repository, "name": name},
        )

    def _locations(self) -> list[dict[str, Any]]:
        answer = self.expect(
            "Workspace",
            f"""{{
                workspaceOrError {{
                    {ERROR}
                    ... on Workspace {{
                        locationEntries {{
                            name loadStatus
                            locationOrLoadError {{
                                {ERROR} ... on RepositoryLocation {{ repositories {{ name }} }}
                            }}
                        }}
                    }}
                }}
            }}""",
        )
        return list(answer["locationEntries"])

    def _only_repository(self) -> tuple[str, str]:
        found = [
            (each["name"], repository["name"])
            for each in self._locations()
            if self._location in (None, each["name"])
            for repository in each["locationOrLoadError"]["repositories"]
        ]
        if len(found) != 1:
            raise GraphQLError(f"there is not one code location but {found}; name it")
        return found[0]


def _asset_key(key: str) -> dict[str, list[str]]:
    return {"path": key.split("/")}


def _pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]
