"""Random histories of a store: checkpoints that share files, losers, winners and strangers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from hypothesis import strategies as st

from laminar_dagster.core import layout
from laminar_dagster.core.garbage import Garbage, Holdings, find_garbage
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import ObjectInfo
from tests.unit.core.samples import MOMENT, checkpoint, dead_letters, manifest, operator, state_file

NOW: Final = MOMENT
GRACE: Final = timedelta(hours=1)
STRANGERS: Final = (
    "notes.txt",
    "checkpoints/readme",
    "checkpoints/_latest.bak",
    "checkpoints/other/manifest.json",
    "epochs/7/plan.json",
    "epochs/00000000000000000001/notes",
    f"checkpoints/{checkpoint(900)}/manifest",
)


@dataclass(frozen=True)
class Store:
    """What is in a store, and what its owner knows of it."""

    objects: dict[str, ObjectInfo]
    committed: tuple[CheckpointManifest, ...]
    losers: dict[CheckpointId, EpochNumber]
    undecided: CheckpointId | None
    keep: int

    @property
    def retained(self) -> tuple[CheckpointManifest, ...]:
        return self.committed[-self.keep :]

    @property
    def decided(self) -> EpochNumber:
        return EpochNumber(len(self.committed) + (self.undecided is not None))

    def reachable(self) -> set[str]:
        return {key for each in self.retained for key, _, _ in each.files()}

    def holdings(self, listing: list[ObjectInfo] | None = None) -> Holdings:
        """As a collector finds them: an attempt is known by its record alone."""
        epochs = {each.checkpoint_id: each.epoch for each in self.committed} | self.losers
        if self.undecided:
            epochs[self.undecided] = self.decided
        attempts = {
            home: epoch
            for home, epoch in epochs.items()
            if layout.attempt_key(home) in self.objects
        }
        return Holdings(
            retained=self.retained,
            undecided=frozenset({self.undecided} if self.undecided else ()),
            attempts=attempts,
            decided=self.decided,
            objects=list(self.objects.values()) if listing is None else listing,
        )

    def collect(self, now: datetime = NOW) -> Garbage:
        return find_garbage(self.holdings(), now, GRACE)

    def without(self, keys: tuple[str, ...]) -> Store:
        left = {key: info for key, info in self.objects.items() if key not in keys}
        return replace(self, objects=left)

    def may_go(self) -> set[str]:
        """All that must be gone in the end."""
        kept = {each.checkpoint_id for each in self.retained} | {self.undecided}
        reachable = self.reachable()
        in_use = {key.split("/")[1] for key in reachable}
        gone = set()
        for key in self.objects:
            epoch = layout.parse_epoch_key(key)
            if epoch and epoch.is_plan and epoch.epoch < self.retained[0].epoch:
                gone.add(key)
            parsed = layout.parse_checkpoint_key(key)
            if not parsed or key in STRANGERS or parsed[0] in kept or key in reachable:
                continue
            if self.losers.get(parsed[0], 0) > self.decided:
                continue
            if not (layout.is_attempt_path(parsed[1]) and parsed[0] in in_use):
                gone.add(key)
        return gone


@st.composite
def stores(draw: st.DrawFn, *, aging: bool = False) -> Store:
    """A store after up to six epochs.

    Args:
        draw: Of hypothesis.
        aging: Whether the objects of one folder were written at different times.
    """
    last = draw(st.integers(1, 6))
    minted = draw(st.permutations(range(20)))
    homes = [checkpoint(n, minted=minted[n]) for n in range(20)]
    objects: dict[str, ObjectInfo] = {}

    def age() -> timedelta:
        return timedelta(minutes=draw(st.integers(0, 180)))

    def put(key: str, old: timedelta) -> None:
        objects[key] = ObjectInfo(key, draw(st.integers(0, 99)), NOW - old)

    def folder(home: CheckpointId, *paths: str) -> None:
        old = age()
        put(layout.attempt_key(home), old)
        for path in paths:
            put(layout.checkpoint_folder(home) + path, age() if aging else old)

    committed: list[CheckpointManifest] = []
    base = 1
    snapshots = set()
    for epoch in range(1, last + 1):
        base = draw(st.integers(base, epoch))
        if base == epoch:
            snapshots.add(epoch)
        files = [
            state_file(
                written,
                # What was written as a delta stays one, also when it stands first.
                delta=written not in snapshots,
                full=written == base,
                origin=None if written == epoch else homes[written],
            )
            for written in range(base, epoch + 1)
        ]
        document = manifest(
            epoch,
            checkpoint_id=homes[epoch],
            operators=(operator(*files),),
            dead_letters=(dead_letters(),),
        )
        document.validate()
        committed.append(document)
        own = [key for key, _, _ in document.files() if homes[epoch] in key]
        paths = [key.removeprefix(layout.checkpoint_folder(homes[epoch])) for key in own]
        folder(homes[epoch], "manifest.json", "sources/clicks.offsets", *paths)
        put(layout.plan_key(EpochNumber(epoch)), age())
        put(layout.prepared_key(EpochNumber(epoch)), age())
    undecided = homes[last + 1] if draw(st.booleans()) else None
    if undecided:
        folder(undecided, "operators/agg/0.delta", "staged/lake/part-0.arrow")
        put(layout.plan_key(EpochNumber(last + 1)), age())
        put(layout.prepared_key(EpochNumber(last + 1)), age())
    losers = {}
    for number in draw(st.sets(st.integers(10, 15))):
        losers[homes[number]] = EpochNumber(draw(st.integers(1, last + 2)))
        folder(homes[number], "operators/agg/0.snap", "staged/lake/part-0.arrow")
    put(layout.LATEST, age())
    for key in draw(st.sets(st.sampled_from(STRANGERS))):
        put(key, age())
    return Store(
        objects=objects,
        committed=tuple(committed),
        losers=losers,
        undecided=undecided,
        keep=draw(st.integers(1, last)),
    )
