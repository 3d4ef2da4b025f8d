"""What a seed stands for: sinks, a store, a number of epochs, and faults one after the other.

Drawing is pure: the same seed is always the same case.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Literal

from tests.integration.proof.kill_points import EVERY_STEP, AtSink, AtWrite, KillPoint
from tests.integration.proof.sinks.places import KINDS, ON_SERVERS

VARIABLE: Final = "LAMINAR_PROOF_SEED"

# What befalls the request that publishes an epoch.
WireFault = Literal["cut", "lose reply", "hold and kill", "hold reply and kill", "hold and stop"]

_WIRE_FAULTS: Final[tuple[WireFault, ...]] = (
    "cut",
    "lose reply",
    "hold and kill",
    "hold reply and kill",
    "hold and stop",
)
_INSIDE_COMPUTE: Final = tuple(
    AtWrite(when, nth, name, f"/{name}/")
    for when in ("before", "after")
    for nth in (1, 2)
    for name in ("operators", "staged")
)


@dataclass(frozen=True)
class Killed:
    """SIGKILL at a point, so many epochs after the one that is to be done next."""

    later: int
    point: KillPoint


@dataclass(frozen=True)
class OnTheWire:
    """A fault between a sink and its server."""

    kind: str
    fault: WireFault


@dataclass(frozen=True)
class Away:
    """The server of a sink is away for as long as a process lives."""

    kind: str


Fault = Killed | OnTheWire | Away


@dataclass(frozen=True)
class Drawn:
    """A case."""

    seed: int
    store: Literal["local", "s3"]
    kinds: tuple[str, ...]
    epochs: int
    faults: tuple[Fault, ...]


def draw(seed: int) -> Drawn:
    """The case of a seed."""
    chance = random.Random(seed)
    kinds = tuple(sorted(chance.sample(sorted(KINDS), chance.randint(2, 4))))
    return Drawn(
        seed=seed,
        store=chance.choice(["local", "local", "s3"]),
        kinds=kinds,
        epochs=chance.randint(2, 4),
        faults=tuple(_draw_fault(chance, kinds) for _ in range(chance.randint(1, 3))),
    )


def _draw_fault(chance: random.Random, kinds: tuple[str, ...]) -> Fault:
    on_servers = [kind for kind in kinds if kind in ON_SERVERS]
    if on_servers and chance.random() < 0.5:
        kind = chance.choice(on_servers)
        if chance.random() < 0.2:
            return Away(kind)
        return OnTheWire(kind, chance.choice(_WIRE_FAULTS))
    points: list[KillPoint] = [
        *EVERY_STEP,
        *_INSIDE_COMPUTE,
        *(AtSink("inside", kind) for kind in kinds for _ in range(3)),
        *(AtSink("after", kind) for kind in kinds for _ in range(3)),
    ]
    return Killed(chance.randint(0, 1), chance.choice(points))


def seeds(wanted: str | None, usual: int) -> list[int]:
    """Which seeds to run: a number, a range such as ``100-199``, or else the usual ones."""
    if not wanted:
        return list(range(usual))
    first, _, last = wanted.partition("-")
    return list(range(int(first), int(last or first) + 1))
