"""The picture of a run: `python -m benchmarks.plot docs/benchmarks/throughput.json docs/images/throughput.png`.

The picture says which file it was made of (`is_of`); a test compares that with the file that the page names.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
from pathlib import Path

from benchmarks.load import all_void, not_void

SHOWN = {
    "instride, Arrow, views": "instride, to Arrow, with views",
    "instride, Arrow": "instride, to Arrow",
    "instride, records": "instride, records",
    "instride, records, at defaults": "instride, records, default settings",
    "franz-go": "franz-go (Go)",
    "Java": "Java",
    "confluent-kafka": "confluent-kafka, tuned",
    "confluent-kafka, at defaults": "confluent-kafka, default settings",
    "aiokafka": "aiokafka",
    "kafka-python": "kafka-python",
}

_SOURCE = "Source"


def main(source: str, target: str) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    found = json.loads(Path(source).read_text(encoding="utf-8"))["throughput"]
    cases = [case for case in ("100 B", "1 KB") if case in found]
    shown = {name: label for name, label in SHOWN.items() if all(name in found[case] for case in cases)}
    figure, axes = plt.subplots(1, len(cases), figsize=(10, 3.4), sharey=True, squeeze=False, layout="constrained")
    for axis, case in zip(axes[0], cases, strict=True):
        rates = [_middle(found[case][name]) for name in shown]
        places = range(len(shown))[::-1]
        bars = axis.barh(
            places, rates, color=["#1f6f54" if name.startswith("instride") else "#b8b8b0" for name in shown]
        )
        void = [" (void)" if all_void(found[case][name]) else "" for name in shown]
        labels = [f"{rate:.2f}{remark}" for rate, remark in zip(rates, void, strict=True)]
        axis.bar_label(bars, labels=labels, padding=3, fontsize=8)
        axis.set_yticks(places, shown.values(), fontsize=8)
        axis.set_title(f"records of {case}: millions a second", fontsize=9, loc="left")
        axis.margins(x=0.12)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(target, dpi=130, metadata={_SOURCE: _digest(Path(source))})


def is_of(picture: Path, source: Path) -> bool:
    """Whether it was made of that very file."""
    said = f"tEXt{_SOURCE}\0{_digest(source)}".encode()
    return said in picture.read_bytes()


def _digest(source: Path) -> str:
    return hashlib.sha256(source.read_bytes()).hexdigest()


def _middle(runs: list[dict[str, float]]) -> float:
    return statistics.median(run["rows"] / run["seconds"] / 1e6 for run in not_void(runs))


if __name__ == "__main__":
    main(*sys.argv[1:])
