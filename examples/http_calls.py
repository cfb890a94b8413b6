"""Each record is posted to a service, many at a time, in asyncio: retries, a circuit breaker, dead letters.

    pip install httpx2
    python examples/http_calls.py --topic orders --group billing --dead-letters orders.dlq --url http://localhost:8000

The service is away or overloaded: tried again. It refuses a record: a dead letter. Look at the letters, and send their
records again when the service takes them:

    instride dead-letters list orders.dlq --bootstrap-servers localhost:9092
    instride dead-letters replay orders.dlq --from-beginning --bootstrap-servers localhost:9092
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

import httpx2

from instride import CircuitBreaker, ConsumerRecord, DeadLetterRecord, Processor, Retry

client: ContextVar[httpx2.AsyncClient] = ContextVar("client")


class UnavailableError(Exception):
    """The service says that it cannot now."""


async def bill(record: ConsumerRecord[bytes | None, bytes]) -> None:
    response = await client.get().post("", content=record.value)
    if response.status_code >= 500:
        raise UnavailableError(f"status {response.status_code}")
    if response.is_error:
        raise DeadLetterRecord(f"refused with status {response.status_code}")


def processor(topic: str, url: str, dead_letters: str) -> Processor[bytes | None, bytes]:
    @asynccontextmanager
    async def one_client() -> AsyncIterator[None]:
        async with httpx2.AsyncClient(base_url=url, timeout=10.0) as made:
            client.set(made)
            yield

    return Processor(
        bill,
        topics=[topic],
        order="key",
        concurrency=64,
        timeout=30.0,
        value_deserializer=bytes,
        lifespan=one_client,
        retry=Retry(attempts=5, on=(httpx2.TransportError, UnavailableError), backoff=0.1),
        breaker=CircuitBreaker(on=httpx2.TransportError, pause=1.0),
        dead_letters=dead_letters,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--dead-letters", required=True)
    given = parser.parse_args()
    billing = processor(given.topic, given.url, given.dead_letters)
    billing.run(bootstrap_servers=given.servers, group_id=given.group, auto_offset_reset="earliest")


if __name__ == "__main__":
    main()
