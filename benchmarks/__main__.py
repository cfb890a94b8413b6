"""`python -m benchmarks [NAME]`: throughput, groups, processor, processors, decoder, assignors, canned, timeline, spark
or pipeline; or all. `--quick` in place of a name: the rates at a real broker and the client's cost, in two minutes.

Results go to bench-output/.
"""

from __future__ import annotations

import json
import multiprocessing
import platform
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks import (
    assignors,
    canned,
    decoder,
    groups,
    processor,
    processors,
    spark_pipeline,
    spark_source,
    throughput,
    timeline,
)

OUTPUT = Path("bench-output")


def _decoder(options: list[str]) -> object:
    return _apart(decoder.main, options or ["--codec", "none", "lz4", "zstd", "snappy"])


def _assignors(options: list[str]) -> object:
    return _apart(assignors.main, options)


def _apart(work: Callable[[list[str]], object], options: list[str]) -> object:
    """In a new process: it measures the process that it runs in, whose memory nothing else is to have used."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(work, options).result()


BENCHMARKS: dict[str, Callable[[list[str]], object]] = {
    "throughput": throughput.main,
    "groups": groups.main,
    "canned": canned.main,
    "timeline": timeline.main,
    "processor": processor.main,
    "processors": processors.main,
    "spark": spark_source.main,
    "pipeline": spark_pipeline.main,
    "decoder": _decoder,
    "assignors": _assignors,
}
QUICK = {"throughput": ["--quick", "--case", "100 B"], "canned": ["--quick"]}


def main() -> None:
    results: dict[str, object] = {"machine": platform.machine(), "python": platform.python_version()}
    for name, options in _chosen(sys.argv[1:]).items():
        results[name] = BENCHMARKS[name](options)
    OUTPUT.mkdir(exist_ok=True)
    path = OUTPUT / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps(results, indent=2))
    print(f"\nwritten to {path}")


def _chosen(arguments: list[str]) -> dict[str, list[str]]:
    """Which benchmarks, each with its options."""
    if not arguments:
        return {name: [] for name in BENCHMARKS}
    if arguments == ["--quick"]:
        return QUICK
    name, *options = arguments
    if name not in BENCHMARKS:
        raise SystemExit(f"{name!r} is no benchmark: name one of {', '.join(BENCHMARKS)}, or --quick, or none for all")
    return {name: options}


if __name__ == "__main__":
    main()
