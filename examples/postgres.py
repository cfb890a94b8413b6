"""Exactly once into PostgreSQL: each batch and its offset are one transaction. Kill it whenever you like.

    pip install 'psycopg[binary]'
    python examples/postgres.py --topic orders --group billing --database postgresql://localhost/billing

Each record is in the table `handled` once, whatever was killed, suspended or handed over meanwhile.
"""

from __future__ import annotations

import argparse

import psycopg

from instride import ConsumerRecord, DatabaseStore, Processor, Retry


def processor(database: str, topic: str) -> Processor[bytes | None, bytes | None]:
    store = DatabaseStore(lambda: psycopg.connect(database))

    def handle(records: list[ConsumerRecord[bytes | None, bytes | None]]) -> None:
        rows = [(record.partition, record.offset, record.value) for record in records]
        with store.connection.cursor() as cursor:
            cursor.executemany("INSERT INTO handled VALUES (%s, %s, %s)", rows)

    return Processor(
        handle,
        topics=[topic],
        store=store,
        max_batch=100,
        max_wait=0.1,
        retry=Retry(attempts=None, on=psycopg.OperationalError),  # the database is away: until it is there again
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--database", required=True)
    parser.add_argument("--instance", help="a name that stays the same when it is started again (static membership)")
    given = parser.parse_args()
    with psycopg.connect(given.database) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS handled (part INTEGER, record BIGINT, value BYTEA)")
    processor(given.database, given.topic).run(
        bootstrap_servers=given.servers,
        group_id=given.group,
        group_instance_id=given.instance,
        auto_offset_reset="earliest",
    )


if __name__ == "__main__":
    main()
