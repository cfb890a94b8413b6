"""Each assignor at 1,000 members and 100,000 partitions, with racks and without: `python -m benchmarks assignors`.

Half of the members own what a first round gave them; the other half joins. CPU seconds of one assignment. Below each
row of ours is Java's on the same input, the best of five in one process: its compilers then know the code. What Java's
garbage collector does beside it is not in its figures.

"other work %": how much of the machine other work took meanwhile. A row with more than 5 % is void; the table says so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.load import ForeignLoad, foreign_cell
from instride._core.assignors.assignor import ClusterView, MemberSubscription
from instride._core.assignors.selection import pick_assignors
from instride.records import TopicPartition

MEMBERS, PARTITIONS, RACKS = 1000, 100_000, 3
NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")
COLUMNS = ("1 topic", "1 topic, racks", "100 topics", "100 topics, racks")


def cluster(topics: int, *, racks: bool) -> ClusterView:
    counts = {f"t{number:03}": PARTITIONS // topics for number in range(topics)}
    where = {
        TopicPartition(topic, number): tuple(sorted({f"r{number % RACKS}", f"r{(number // RACKS) % RACKS}"}))
        for topic, count in counts.items()
        for number in range(count)
    }
    return ClusterView(partitions=counts, racks=where if racks else {})


def member(
    number: int, topics: tuple[str, ...], *, racks: bool, owned: tuple[TopicPartition, ...]
) -> MemberSubscription:
    rack = f"r{number % RACKS}" if racks else None
    return MemberSubscription(
        member_id=f"m{number:04}", topics=topics, rack=rack, owned=owned, generation=1 if owned else -1
    )


def of_java() -> dict[str, list[float]]:
    """Of each assignor the same four figures; none where there is no Java."""
    from instride.testing import find_java, find_kafka

    source = str(Path(__file__).parent / "peers" / "Assignors.java")
    told = map(str, (MEMBERS, PARTITIONS, RACKS))
    command = [str(find_java().path), "-Xmx2g", "-cp", find_kafka().class_path, source, *told]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"Java's are not measured: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return {}
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def of_ours(name: str) -> list[float]:
    (assignor,) = pick_assignors((name,))
    figures = []
    for topics in (1, 100):
        for racks in (False, True):
            view = cluster(topics, racks=racks)
            names = tuple(view.partitions)
            half = [member(each, names, racks=racks, owned=()) for each in range(MEMBERS // 2)]
            before = assignor.assign(view, half)
            group = [member(each, names, racks=racks, owned=before.get(f"m{each:04}", ())) for each in range(MEMBERS)]
            start = time.process_time()
            assignor.assign(view, group)
            figures.append(time.process_time() - start)
    return figures


def main(arguments: list[str]) -> dict[str, dict[str, float]]:
    argparse.ArgumentParser(prog="benchmarks assignors", description=__doc__).parse_args(arguments)
    load = ForeignLoad()
    java, of_javas = of_java(), load.share()
    found: dict[str, dict[str, float]] = {}
    print(f"{'CPU seconds':24}{'1 topic':>10}{'racks':>10}{'100 topics':>12}{'racks':>10}{'other work %':>16}")
    for name in NAMES:
        load = ForeignLoad()
        found[name] = show(name, of_ours(name), load.share())
        if name in java:
            found[f"{name}, Java's"] = show("  Java's", java[name], of_javas)
    return found


def show(name: str, figures: list[float], foreign: float) -> dict[str, float]:
    cells = f"{figures[0]:10.2f}{figures[1]:10.2f}{figures[2]:12.2f}{figures[3]:10.2f}"
    print(f"{name:24}{cells}{foreign_cell(foreign)}", flush=True)
    return {**dict(zip(COLUMNS, figures, strict=True)), "foreign": foreign}


if __name__ == "__main__":
    main(sys.argv[1:])
