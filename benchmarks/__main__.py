"""`python -m benchmarks [NAME]`: throughput, groups, processor, processors, decoder, assignors, canned, timeline, spark
or pipeline; or all.

Results go to bench-output/.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import canned, groups, processor, processors, spark_pipeline, spark_source, throughput, timeline

OUTPUT = Path("bench-output")


def main() -> None:
    chosen, options = sys.argv[1:2], sys.argv[2:]
    results: dict[str, object] = {"machine": platform.machine(), "python": platform.python_version()}
    if not chosen or chosen == ["throughput"]:
        results["throughput"] = throughput.main(options)
    if not chosen or chosen == ["groups"]:
        results["groups"] = groups.main(options)
    if not chosen or chosen == ["canned"]:
        results["canned"] = canned.main(options)
    if not chosen or chosen == ["timeline"]:
        results["timeline"] = timeline.main(options)
    if not chosen or chosen == ["processor"]:
        results["processor"] = processor.main(options)
    if not chosen or chosen == ["processors"]:
        results["processors"] = processors.main(options)
    if not chosen or chosen == ["spark"]:
        results["spark"] = spark_source.main(options)
    if not chosen or chosen == ["pipeline"]:
        results["pipeline"] = spark_pipeline.main(options)
    if not chosen or chosen == ["decoder"]:
        options = options or ["--codec", "none", "lz4", "zstd", "snappy"]
        subprocess.run([sys.executable, "-m", "benchmarks.decoder", *options], check=True)
    if not chosen or chosen == ["assignors"]:
        subprocess.run([sys.executable, "-m", "benchmarks.assignors"], check=True)
    OUTPUT.mkdir(exist_ok=True)
    path = OUTPUT / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps(results, indent=2))
    print(f"\nwritten to {path}")


if __name__ == "__main__":
    main()
