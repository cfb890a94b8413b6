"""A member of our own in a process of its own, so that it can be killed and suspended. See `peer_help`."""

import json
import logging
import os
import sys

from instride import Consumer

logging.basicConfig(level=logging.INFO)


def main(servers: str, group: str, topic: str, name: str, settings: str) -> None:
    consumer = Consumer(
        bootstrap_servers=servers,
        group_id=group,
        client_id=name,
        auto_offset_reset="earliest",
        heartbeat_interval=int(os.environ.get("PEER_HEARTBEAT_MS", "100")) / 1000,
        **json.loads(settings),
    )
    consumer.subscribe([topic])
    for command in sys.stdin:
        records = []
        match command.split():
            case ["poll"]:
                records = list(consumer.poll(timeout=0.02))
            case ["poll-and-go-on"]:
                records = list(consumer.poll(timeout=0.05))
                if records:
                    consumer.commit_async()
            case ["poll-and-commit"]:
                records = list(consumer.poll(timeout=0.02))
                if records:
                    consumer.commit()
            case ["poll-and-hold"]:
                records = list(consumer.poll(timeout=0.02))
                if requested := consumer.to_be_revoked_partitions():
                    print("delayed:", sorted(requested), consumer.delay_revoke(requested), file=sys.stderr, flush=True)
            case ["close"]:
                consumer.close()
                return
        seen = ",".join(f"{each.partition}:{each.offset}" for each in records)
        owned = ",".join(str(each.partition) for each in sorted(consumer.assignment()))
        lost = ",".join(str(each.partition) for each in sorted(consumer.lost_partitions()))
        print(f"{seen}|{owned}|{lost}", flush=True)


main(*sys.argv[1:])
