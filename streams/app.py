"""The Faust app around the log layer: one service and one agent on a channel for each of Hookline's agents.

Faust runs the life cycle, the channels and the timers; every byte to and from Kafka is the log layer's, so its Kafka side is off.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import faust
import structlog
from faust.app.base import BootStrategy

from streams.log.kafka import KafkaLog
from streams.log.machine import Limits, Machine
from streams.settings import Settings

log_line = structlog.get_logger()

CHANNEL_BATCHES = 2
DRAIN_S = 4.0


class WithoutKafka(BootStrategy):
    """Faust's documented switch."""

    enable_kafka = False
    enable_kafka_consumer = False
    enable_kafka_producer = False
    enable_web = False


class App(faust.App):
    """Agents, services and timers, and nothing of Kafka."""

    BootStrategy = WithoutKafka


def new_app(name: str) -> App:
    """An app on the running event loop. The broker address is never used."""
    return App(
        name, broker="kafka://unused", store="memory://", autodiscover=False, loop=asyncio.get_running_loop(), stream_wait_empty=False
    )


class AgentService(faust.Service):
    """One agent at work: reads into its channel, commits what it finishes, and stops in order."""

    def __init__(self, app: App, log: KafkaLog, machine: Machine, failed: Callable[[BaseException], None]) -> None:
        super().__init__()
        self.machine, self._agent, self._log, self._failed = machine, machine.agent, log, failed
        self._channel = app.channel(maxsize=CHANNEL_BATCHES)
        self._running: list[asyncio.Task[None]] = []
        app.agent(self._channel, name=self._agent.name)(self._handle)

    async def _handle(self, stream: Any) -> None:
        async for batch in stream:
            try:
                self.machine.offer(batch.epoch, batch.records, batch.ends)
            except Exception as error:  # Faust would go on with the next batch, and what is in this one would be passed over
                self._failed(error)
                raise

    async def on_start(self) -> None:
        """Join the group."""
        await self._log.start(self.machine)
        self._running = [self._watch(self._read), self._watch(self.machine.run), self._watch(self.machine.keep)]
        log_line.info("agent.started", agent=self._agent.name)

    def _watch(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        async def watched() -> None:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - without its reader or its commits the process is of no use: it ends
                self._failed(error)

        return asyncio.get_running_loop().create_task(watched())

    async def _read(self) -> None:
        while True:
            batch = await self._log.read()
            if batch.records or batch.ends:
                await self._channel.put(batch)  # type: ignore[arg-type]  # what is put comes out: Faust calls it an event

    async def drain(self) -> None:
        """Stop reading, finish and commit what is in work, let go."""
        reading, committing, sweeping = self._running
        sweeping.cancel()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await self.machine.stop(DRAIN_S)
        committing.cancel()
        await self._log.stop_reading()
        await self._log.close()
        log_line.info("agent.stopped", agent=self._agent.name)


def limits(settings: Settings) -> Limits:
    """The machine's part of the settings."""
    return Limits(
        in_flight_max=settings.in_flight_max,
        uncommitted_max=settings.uncommitted_max,
        record_bytes_max=settings.record_bytes_max,
        commit_interval_s=settings.commit_interval_ms / 1000,
    )


async def run_agents(machines: Sequence[Machine], logs: Sequence[KafkaLog], stop: asyncio.Event, ready: Callable[[], None]) -> None:
    """Run machines on their logs until told to stop; `ready` when each has its shards. One that fails for good raises here."""
    app = new_app("hookline")
    failure: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def failed(error: BaseException) -> None:
        if not failure.done():
            failure.set_exception(error)

    services = [AgentService(app, log, machine, failed) for log, machine in zip(logs, machines, strict=True)]
    for service in services:
        await app.add_runtime_dependency(service)
    await app.start()
    app.flow_control.resume()
    stopping: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
    telling = asyncio.ensure_future(_tell_when_ready(machines, ready))
    await asyncio.wait([failure, stopping], return_when=asyncio.FIRST_COMPLETED)
    telling.cancel()
    if failure.done():
        failure.result()
    await asyncio.gather(*(service.drain() for service in services))  # at once: Faust would stop one after another
    await app.stop()


async def _tell_when_ready(machines: Sequence[Machine], ready: Callable[[], None]) -> None:
    for machine in machines:
        await machine.restored.wait()
    ready()
