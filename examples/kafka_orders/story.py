"""The run itself: orders are sent, the pipeline is killed and started again, and catches up."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from examples.kafka_orders import processes
from examples.kafka_orders.answer import rows_in_sqlite
from examples.kafka_orders.board import Board
from examples.kafka_orders.failure import DemoFailed
from examples.kafka_orders.processes import Program
from examples.kafka_orders.producer import Sent
from examples.kafka_orders.screen import Screen
from examples.kafka_orders.topic import TopicView
from examples.kafka_orders.watch import PIPELINE, Watch

_PAUSE: Final = 0.1
_LOOK_AT_TOPIC_EVERY: Final = 0.4
# An epoch that is so old has reached Spark.
_INTO_THE_JOB: Final = 0.3
# Without any epoch for so long, something is wrong.
_LONGEST_STANDSTILL: Final = 240.0
_PRODUCER_ENDS_WITHIN: Final = 90.0


class Kill(msgspec.Struct, frozen=True):
    """A pipeline that was killed.

    Attributes:
        processes: How many were killed at once.
        lag: What waited then.
    """

    epoch: int
    processes: int
    lag: int


@dataclass(slots=True)
class Director:
    """Lets it happen.

    Attributes:
        project: Where everything is.
        servers: The broker's address.
        seconds: For how long orders are sent once the first epoch is done.
        kills: How often to kill the pipeline.
        killed: When that has happened.
    """

    project: Path
    servers: str
    rate: int
    seconds: int
    kills: int
    board: Board
    screen: Screen
    watch: Watch
    topic: TopicView
    killed: list[Kill] = field(default_factory=list)
    _confirmed: int = 0
    _topic_seen: float = 0.0
    _killed_at: float | None = None
    _first_done_at: float | None = None
    _moved: float = field(default_factory=time.monotonic)

    def run(self) -> Sent:
        """All of it; what the producer sent.

        Raises:
            DemoFailed: A program ended, or stood still.
        """
        account = self.project / "sent.json"
        arguments = ["--servers", self.servers, "--rate", str(self.rate)]
        arguments += ["--account", str(account.absolute())]
        log = self.project / "logs" / "producer.log"
        with processes.producer(self.project.absolute(), arguments, log) as producer:
            self.screen.tell(f"a producer sends {self.rate:,} orders a second (pid {producer.pid})")
            while self._work(producer):
                pass
            return self._end_of(producer, account)

    def _work(self, producer: Program) -> bool:
        """One life of the pipeline. Whether there is to be another."""
        number = len(self.killed) + 1
        log = self.project / "logs" / f"pipeline-{number}.log"
        self.board.is_starting = True
        self._moved = time.monotonic()
        with processes.pipeline(self.project.absolute(), PIPELINE, log) as worker:
            self.screen.tell(f"laminar run {PIPELINE} --forever (pid {worker.pid})")
            while not self._is_caught_up(producer):
                self._look()
                _require_running(worker)
                if self._is_to_be_killed() and self._kill(worker):
                    return True
                if self._is_to_send_no_more(producer):
                    self.screen.tell("the producer is asked to end")
                    producer.ask_to_end()
                    self._wait_for(producer, _PRODUCER_ENDS_WITHIN)
                    self._look_at_topic()
                time.sleep(_PAUSE)
            self.screen.tell("nothing waits any more; the pipeline is asked to end")
            worker.ask_to_end()
            if (code := self._wait_for(worker, _LONGEST_STANDSTILL)) != 0:
                raise DemoFailed(f"the pipeline ended with {code}:\n{worker.last_words()}")
            self._look()
        self.board.is_doing(None)
        return False

    def _at_work(self) -> float:
        """Seconds since the first epoch was done."""
        return 0.0 if self._first_done_at is None else self.board.now - self._first_done_at

    def _is_to_send_no_more(self, producer: Program) -> bool:
        """When it is time, and the pipeline that came after the last kill is seen at work."""
        return (
            producer.ended() is None
            and self._at_work() >= self.seconds
            and len(self.killed) == self.kills
            and not self.board.is_starting
        )

    def _is_caught_up(self, producer: Program) -> bool:
        """Whether all orders were sent, and all of them are in the sinks."""
        if (code := producer.ended()) is None:
            return False
        if code != 0:
            raise DemoFailed(f"the producer ended with {code}:\n{producer.last_words()}")
        return bool(self.board.ends) and self.board.ends == self.board.positions

    def _end_of(self, producer: Program, account: Path) -> Sent:
        if producer.ended() != 0 or not account.exists():
            raise DemoFailed(f"the producer left no account:\n{producer.last_words()}")
        return msgspec.json.decode(account.read_bytes(), type=Sent)

    def _look(self) -> None:
        """What is new in the store and the topic, onto the board."""
        look = self.watch.look()
        if time.monotonic() - self._topic_seen > _LOOK_AT_TOPIC_EVERY:
            self._look_at_topic()
        for epoch in range(self._confirmed + 1, look.confirmed + 1):
            rows = rows_in_sqlite(self.project / "output")
            figures = self.board.finished(self.watch.manifest(epoch), rows)
            self._confirmed, self._moved = epoch, time.monotonic()
            self._first_done_at = self._first_done_at or self.board.now
            self.screen.epoch(figures)
            self._tell_of_recovery(figures.lag)
        self.board.is_doing(look.doing)
        self.screen.update()
        if time.monotonic() - self._moved > _LONGEST_STANDSTILL:
            raise DemoFailed(f"no epoch was done for {_LONGEST_STANDSTILL:g} s")

    def _tell_of_recovery(self, lag: int) -> None:
        if self._killed_at is not None and lag <= self.killed[-1].lag:
            passed = self.board.now - self._killed_at
            self.screen.tell(f"caught up {passed:.0f} s after the kill: {lag:,} wait")
            self._killed_at = None

    def _look_at_topic(self) -> None:
        self.board.measured(self.topic.ends())
        self._topic_seen = time.monotonic()

    def _is_to_be_killed(self) -> bool:
        """In the middle of a job, when there was an epoch since the last time."""
        due = self.seconds * (len(self.killed) + 1) / (self.kills + 1)
        return (
            len(self.killed) < self.kills
            and self._at_work() >= due
            and not self.board.is_starting
            and self.board.doing == "computing"
            and self.board.now - self.board.doing_since > _INTO_THE_JOB
        )

    def _kill(self, worker: Program) -> bool:
        """Let it stand still, look again, and kill it if it is the moment."""
        worker.pause()
        look = self.watch.look()
        if look.doing != "computing" or look.confirmed != self._confirmed:
            worker.resume()
            return False
        count = worker.kill()
        self._look_at_topic()
        kill = Kill(look.confirmed + 1, count, self.board.lag)
        self.killed.append(kill)
        self._killed_at = self.board.now
        self.board.is_doing(None)
        self.screen.tell(
            f"[bold red]kill -9[/], {count} processes, in the middle of epoch {kill.epoch};"
            f" {kill.lag:,} wait"
        )
        return True

    def _wait_for(self, program: Program, within: float) -> int:
        """Its exit code, when it has ended; the board goes on."""
        deadline = time.monotonic() + within
        while (code := program.ended()) is None:
            if time.monotonic() > deadline:
                raise DemoFailed(f"{program.log.stem} did not end within {within:g} s")
            self._look()
            time.sleep(_PAUSE)
        return code


def _require_running(worker: Program) -> None:
    if (code := worker.ended()) is not None:
        raise DemoFailed(f"the pipeline ended with {code}:\n{worker.last_words()}")
