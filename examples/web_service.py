"""A web service that consumes beside its requests: FastAPI's lifespan starts the consumer and ends it.

    pip install fastapi uvicorn
    python examples/web_service.py --topic flights --group demo

SIGTERM and a reload end it in this order: uvicorn lets the requests end; the loop is cancelled, what it started is
awaited, what is finished is committed; the consumer leaves the group.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, Response

from instride import AsyncConsumer, ConsumerRecord, OffsetLedger

AT_WORK = 1000  # records that may be handled at a time
GRACE = 25  # seconds for what was started, when the service ends


class Records:
    """The consumer's part of the service."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self.handled = 0
        self._consumer = consumer
        self._ledger = OffsetLedger()
        self._tasks: dict[tuple[str, int, int, int], asyncio.Task[None]] = {}

    async def handle(self, record: ConsumerRecord) -> None:
        await asyncio.sleep(0)  # your work: awaits a service, say
        print(f"{record.partition} {record.offset}\n", end="", flush=True)
        self.handled += 1

    async def consume(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                await self._round()
        finally:
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=GRACE)
            await self._consumer.commit(self._ledger.committable())

    async def _round(self) -> None:
        consumer, ledger = self._consumer, self._ledger
        records = await consumer.poll(timeout=0.1)
        for record in ledger.forget(consumer.lost_partitions()):
            self._tasks[_name(record)].cancel()
        for record in ledger.track(records):
            self._begin(record)
        consumer.commit_async(ledger.committable())
        consumer.delay_revoke(ledger.uncommitted(consumer.to_be_revoked_partitions()))
        if len(self._tasks) > AT_WORK:
            consumer.pause(consumer.assignment())
        else:
            consumer.resume(consumer.paused())
        ledger.check()

    def _begin(self, record: ConsumerRecord) -> None:
        name = _name(record)
        self._tasks[name] = task = asyncio.create_task(self.handle(record))
        self._ledger.watch(record, task)
        task.add_done_callback(lambda _: self._tasks.pop(name))


def _name(record: ConsumerRecord) -> tuple[str, int, int, int]:
    return record.topic, record.partition, record.offset, record.epoch


def service(servers: str, topic: str, group: str) -> FastAPI:
    """The application; an app factory of your own reads these from the environment."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncConsumer(bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([topic])
            app.state.records = records = Records(consumer)
            app.state.consuming = consuming = asyncio.create_task(records.consume())
            try:
                yield
            finally:
                consuming.cancel()
                await asyncio.wait([consuming])

    def handled() -> dict[str, int]:
        records: Records = app.state.records
        return {"handled": records.handled}

    def ready(response: Response) -> dict[str, bool]:
        """For a probe: the loop ends only with an error, and then this service should be started anew."""
        consuming: asyncio.Task[None] = app.state.consuming
        response.status_code = 503 if consuming.done() else 200
        return {"ready": not consuming.done()}

    app = FastAPI(lifespan=lifespan)
    app.add_api_route("/handled", handled)
    app.add_api_route("/ready", ready)
    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises it again once it has shut down
    uvicorn.run(service(given.servers, given.topic, given.group), port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
