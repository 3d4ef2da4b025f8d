"""What Spark did meanwhile: its stages, and the processor time of the JVM and of its workers.

Processor time does not grow when other processes have the cores. So it compares two ways of doing
a thing also on a machine that is busy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JVM: Final = "java"
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that is completed. Its wall times are those of ``time.time``.

    Attributes:
        run_seconds: Of all tasks together.
    """

    begun: float
    ended: float
    tasks: int
    run_seconds: float
    shuffled_bytes: int

    @property
    def seconds(self) -> float:
        """On the wall."""
        return self.ended - self.begun


class StageWatch:
    """Tells which stages ran since it was asked last."""

    def __init__(self, spark: SparkSession) -> None:
        """Start with what has run so far."""
        self._spark = spark
        self._known = set(self._jobs())

    def new(self) -> list[Stage]:
        """In the order in which they began; those that were skipped are left out."""
        jobs = [job for job in self._jobs() if job not in self._known]
        self._known.update(jobs)
        tracker = self._spark.sparkContext.statusTracker()
        infos = [info for job in jobs if (info := tracker.getJobInfo(job))]
        # The tracker knows names only; times are with the JVM alone.
        store = self._spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001
        found = []
        for number in sorted({stage for info in infos for stage in info.stageIds}):
            stage = store.lastStageAttempt(number)
            if stage.submissionTime().isDefined() and stage.completionTime().isDefined():
                found.append(
                    Stage(
                        begun=stage.submissionTime().get().getTime() / 1000,
                        ended=stage.completionTime().get().getTime() / 1000,
                        tasks=stage.numTasks(),
                        run_seconds=stage.executorRunTime() / 1000,
                        shuffled_bytes=stage.shuffleWriteBytes(),
                    )
                )
        return sorted(found, key=lambda stage: stage.begun)

    def _jobs(self) -> list[int]:
        return list(self._spark.sparkContext.statusTracker().getJobIdsForGroup(None))


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Seconds of the JVM, and of the Python processes below it."""

    jvm: float
    python: float

    @property
    def both(self) -> float:
        """All that Spark used, the driver's own Python left out."""
        return self.jvm + self.python

    def since(self, before: ProcessorTime) -> ProcessorTime:
        """What was added."""
        return ProcessorTime(self.jvm - before.jvm, self.python - before.python)


@dataclass(frozen=True, slots=True)
class Process:
    """A line of ``/proc``: with the seconds of children that have ended."""

    parent: int
    name: str
    own: float
    ended_children: float


def processor_time() -> ProcessorTime:
    """Of everything below this process, so far."""
    return sum_up(processes(), os.getpid())


def sum_up(processes: Mapping[int, Process], root: int) -> ProcessorTime:
    """Of all that descend from a process, without that process itself."""
    below: set[int] = set()
    found = {root}
    while found:
        below |= found
        found = {number for number, each in processes.items() if each.parent in found} - below
    mine = [processes[number] for number in below - {root}]
    return ProcessorTime(
        jvm=sum(each.own for each in mine if each.name == _JVM),
        # Workers end when they please: what they used is then with the one that started them, be
        # it another Python or the JVM.
        python=sum(each.own for each in mine if each.name != _JVM)
        + sum(each.ended_children for each in mine),
    )


def parse_stat(text: str) -> Process:
    """Read ``/proc/<pid>/stat``. The name in brackets may hold anything, brackets too."""
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    user, system, waited_user, waited_system = (int(each) / _TICKS for each in fields[11:15])
    return Process(int(fields[1]), name, user + system, waited_user + waited_system)


def processes() -> dict[int, Process]:
    """All that this account may see, as they are now."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(path.parent.name)] = parse_stat(path.read_text())
        except OSError:
            # It has ended meanwhile.
            continue
    return found
