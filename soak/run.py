"""The run: orders are sent, faults strike as the schedule says, and the pipeline goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

import msgspec

from examples.kafka_orders import processes
from examples.kafka_orders.failure import DemoFailed
from examples.kafka_orders.processes import Program
from examples.kafka_orders.producer import Sent
from examples.kafka_orders.watch import PIPELINE, Watch, positions
from infra.wire_requests import is_kafka_end_txn, is_postgres_commit
from soak.schedule import Fault, Strike
from soak.stage import Stage

_TICK: Final = 0.2
_STOPPED_FOR: Final = 8.0
# Without any epoch for so long, something is wrong.
_LONGEST_STANDSTILL: Final = 300.0
_PRODUCER_ENDS_WITHIN: Final = 90.0
_PIPELINE_ENDS_WITHIN: Final = 120.0


@dataclass(slots=True)
class Soak:
    """One run.

    Attributes:
        seconds: For how long faults strike, from the first epoch on.
        tell: Told what happens.
        update: Called now and then.
        struck: What has happened so far.
        confirmed: Epochs that all sinks have.
        began: When the first one was there.
    """

    stage: Stage
    watch: Watch
    rate: int
    seconds: float
    strikes: Sequence[Strike]
    tell: Callable[[str], None]
    update: Callable[[Soak], None]
    struck: list[Fault] = field(default_factory=list)
    confirmed: int = 0
    began: float | None = None
    _lives: int = 0
    _confirmed_at_strike: int = 0
    _moved: float = field(default_factory=time.monotonic)

    @property
    def passed(self) -> float:
        """Seconds since the first epoch."""
        return 0.0 if self.began is None else time.monotonic() - self.began

    def run(self) -> Sent:
        """All of it; what the producer sent.

        Raises:
            DemoFailed: A program ended, or stood still.
        """
        project = self.stage.home.folder
        account = project / "sent.json"
        arguments = ["--servers", self.stage.servers, "--rate", str(self.rate)]
        arguments += ["--account", str(account.absolute())]
        log = project / "logs" / "producer.log"
        with processes.producer(project.absolute(), arguments, log) as producer:
            pipeline = self._start()
            try:
                waiting = list(self.strikes)
                while self.passed < self.seconds:
                    self._look(pipeline)
                    _require_running(producer)
                    if waiting and self._is_time_for(waiting[0]):
                        pipeline = self._strike(waiting.pop(0).fault, pipeline)
                        self._moved = time.monotonic()
                    time.sleep(_TICK)
                self.stage.restore()
                self.tell("no more faults; the producer is asked to end")
                producer.ask_to_end()
                self._wait_for(producer, _PRODUCER_ENDS_WITHIN)
                sent = msgspec.json.decode(account.read_bytes(), type=Sent)
                self._catch_up(pipeline, sent)
                pipeline.ask_to_end()
                self._wait_for(pipeline, _PIPELINE_ENDS_WITHIN)
            finally:
                pipeline.kill()
            return sent

    def _start(self) -> Program:
        self._lives += 1
        project = self.stage.home.folder
        log = project / "logs" / f"pipeline-{self._lives}.log"
        return processes.pipeline(project.absolute(), PIPELINE, log)

    def _look(self, pipeline: Program) -> None:
        """How far it is; it must move."""
        _require_running(pipeline)
        confirmed = self.watch.look().confirmed
        if confirmed > self.confirmed:
            self.confirmed, self._moved = confirmed, time.monotonic()
            self.began = self.began or self._moved
        elif time.monotonic() - self._moved > _LONGEST_STANDSTILL:
            raise DemoFailed(
                f"no epoch was done for {_LONGEST_STANDSTILL:g} s:\n{pipeline.last_words()}"
            )
        self.update(self)

    def _is_time_for(self, strike: Strike) -> bool:
        """It is due, and there was an epoch since the last one."""
        return self.passed >= strike.due and self.confirmed > self._confirmed_at_strike

    def _strike(self, fault: Fault, pipeline: Program) -> Program:
        """Let it happen; the pipeline that goes on."""
        self.tell(f"epoch {self.confirmed + 1}: {fault}")
        self.struck.append(fault)
        self._confirmed_at_strike = self.confirmed
        stage = self.stage
        match fault:
            case Fault.KILL:
                pipeline.kill()
                return self._start()
            case Fault.PAUSE:
                pipeline.pause()
                time.sleep(_STOPPED_FOR)
                pipeline.resume()
            case Fault.TAKE_OVER:
                return self._take_over(pipeline)
            case Fault.CUT_POSTGRES:
                stage.postgres_wire.cut()
            case Fault.LOSE_COMMIT:
                stage.postgres_wire.cut_next_request(is_postgres_commit)
            case Fault.LOSE_REPLY_TO_COMMIT:
                stage.postgres_wire.swallow_next_reply(is_postgres_commit)
            case Fault.RESTART_POSTGRES:
                stage.restart_postgres()
            case Fault.CUT_KAFKA:
                stage.kafka_wire.cut()
            case Fault.LOSE_END_TXN:
                stage.kafka_wire.cut_next_request(is_kafka_end_txn)
            case Fault.LOSE_REPLY_TO_END_TXN:
                stage.kafka_wire.swallow_next_reply(is_kafka_end_txn)
            case Fault.RESTART_KAFKA:
                stage.restart_kafka()
            case _:
                assert_never(fault)
        return pipeline

    def _take_over(self, first: Program) -> Program:
        """Two at once for a while; the second stays."""
        first.pause()
        second = self._start()
        try:
            before = self.confirmed
            while self.confirmed == before:
                self._look(second)
                time.sleep(_TICK)
            first.resume()
            # Both are at it. What the first finds done, it must leave alone.
            before = self.confirmed
            while self.confirmed < before + 2:
                self._look(second)
                time.sleep(_TICK)
        except BaseException:
            second.kill()
            raise
        finally:
            first.kill()
        return second

    def _catch_up(self, pipeline: Program, sent: Sent) -> None:
        """Until everything that was sent is in the sinks."""
        while not self.confirmed or positions(self.watch.manifest(self.confirmed)) != sent.ends:
            self._look(pipeline)
            time.sleep(_TICK)

    def _wait_for(self, program: Program, within: float) -> None:
        deadline = time.monotonic() + within
        while (code := program.ended()) is None:
            if time.monotonic() > deadline:
                raise DemoFailed(f"{program.log.stem} did not end within {within:g} s")
            self.update(self)
            time.sleep(_TICK)
        if code != 0:
            raise DemoFailed(f"{program.log.stem} ended with {code}:\n{program.last_words()}")


def _require_running(program: Program) -> None:
    if (code := program.ended()) is not None:
        raise DemoFailed(f"{program.log.stem} ended with {code}:\n{program.last_words()}")
