"""One case: a pipeline with its sinks and its store, what it must come to, and whether it has."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import KafkaPosition
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.verification import verify_checkpoint
from laminar_dagster.stores.url import open_store
from tests.integration.proof.processes import Worker, start
from tests.integration.proof.published import manifests_of
from tests.integration.proof.sinks.accounts import log_of, right_rows
from tests.integration.proof.sinks.ground import Ground, Place, Server
from tests.integration.proof.sinks.job import SinkJob
from tests.integration.proof.sinks.places import table_of

# What a second process may need, while the first one's locks are still held.
PATIENCE = 60.0


@dataclass(frozen=True)
class Case:
    """A pipeline under a fault.

    Attributes:
        store: Its address.
        environment: With the store's credentials.
        seed: Of the input.
        epochs: How many there are in the input.
        per_epoch: Records that an epoch takes of each lane.
    """

    ground: Ground
    places: tuple[Place, ...]
    store: str = "state"
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    seed: int = 7
    epochs: int = 3
    per_epoch: int = 12

    def make(self) -> None:
        """Prepare the places."""
        for place in self.places:
            place.make()

    def job(self, **what: Any) -> SinkJob:
        """The work; see `SinkJob` for what it can be told."""
        return SinkJob(
            root=self.ground.root,
            name=self.ground.name,
            environment=self.environment,
            store=self.store,
            sinks=tuple(map(table_of, self.places)),
            seed=self.seed,
            records=self.epochs * self.per_epoch,
            per_epoch=self.per_epoch,
            **what,
        )

    def start(self, **what: Any) -> Worker:
        """Start a worker on it."""
        return start(self.job(**what))

    def finish(self) -> None:
        """Go on in another process until all input is read, and look at everything."""
        self.start(patience=PATIENCE).must_finish()
        self.check_everything()

    def wait_for_step(self, worker: Worker, epoch: int, step: str) -> None:
        """Return when a worker has begun a step of the protocol."""
        begun = self.ground.root / f"step-{worker.process.pid}-{epoch}-{step}"
        deadline = time.monotonic() + PATIENCE
        while not begun.exists():
            assert time.monotonic() < deadline, f"it never began {step}"
            assert worker.process.is_alive(), f"it ended before {step}"
            time.sleep(0.01)

    def wait_for_the_others(self, epoch: int, kind: str) -> None:
        """Return when the sinks elsewhere than this one's server have an epoch.

        A writer that is stopped with a file locked keeps everybody out of it: there is no server
        that could tell that it stands still.
        """
        others = [place for place in self.places if place.server != self.server_of(kind)]
        deadline = time.monotonic() + PATIENCE
        while any(place.ledger() < epoch for place in others):
            assert time.monotonic() < deadline, "the other sinks do not commit"
            time.sleep(0.02)

    def place(self, kind: str) -> Place:
        """One of the places."""
        return next(place for place in self.places if place.kind == kind)

    def server_of(self, kind: str) -> Server:
        """The server of one of the places."""
        server = self.place(kind).server
        assert server
        return server

    @cached_property
    def checkpoints(self) -> CheckpointStore:
        """The store. Its client is not quickly made."""
        return CheckpointStore(open_store(self.store, self.ground.root))

    # --- judging ----------------------------------------------------------------------------------

    def check_everything(self) -> None:
        """All input is in every sink exactly once, and the store tells the same story."""
        manifests = manifests_of(self.checkpoints)
        assert len(manifests) == self.epochs
        ledgers = self.check_whole_epochs()
        assert ledgers == {place.kind: self.epochs for place in self.places}
        latest = self.checkpoints.latest()
        assert latest
        assert latest.epoch == self.epochs
        for manifest in manifests:
            problems = [
                each for each in verify_checkpoint(self.checkpoints, manifest) if each.problem
            ]
            assert problems == [], f"epoch {manifest.epoch}: {problems}"
        self._check_accounting(manifests)

    def check_whole_epochs(self) -> dict[str, int]:
        """Each sink holds as many whole epochs as its ledger says; returns the ledgers."""
        log = log_of(self.seed, self.epochs * self.per_epoch)
        ledgers = {}
        for place in self.places:
            ledger = place.ledger()
            right = right_rows(place.view, log, self._ends(ledger))
            found = place.rows()
            missing, surplus = right - found, found - right
            assert not missing and not surplus, (
                f"{place.kind} is not what {ledger} epochs make it:"
                f" {missing.total()} rows are missing, such as {list(missing)[:3]};"
                f" {surplus.total()} are too many, such as {list(surplus)[:3]}"
            )
            ledgers[place.kind] = ledger
        return ledgers

    def _ends(self, epoch: int) -> list[int]:
        """How far an epoch reads, as its plan says."""
        if not epoch:
            return [0, 0]
        plan = self.checkpoints.plan(EpochNumber(epoch))
        assert plan
        ends = [part.end for part in plan.sources[0].ranges]
        return [end.offset for end in ends if isinstance(end, KafkaPosition)]

    def _check_accounting(self, manifests: list[CheckpointManifest]) -> None:
        assert all(each.counts.is_balanced for each in manifests)
        assert sum(each.counts.read for each in manifests) == 2 * self.epochs * self.per_epoch
        assert self._ends(self.epochs) == [self.epochs * self.per_epoch] * 2
