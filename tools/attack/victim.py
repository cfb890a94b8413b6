"""The consumer under attack, in a process of its own: `python -m attack.victim CASE`, a JSON object.

It polls until it has seen what it was told to wait for, or its time is over; then it closes, and prints what it saw as
one line of JSON. What it uses is public, and a user's: `instride.Consumer`, `logging`.
"""

from __future__ import annotations

import json
import logging
import re
import resource
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from instride import Consumer, OAuthToken, TopicPartition
from instride.errors import KafkaError

__all__: list[str] = []


def memory(which: str) -> int:
    """Bytes. VmRSS: now. VmHWM: the most so far."""
    found = re.search(rf"{which}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


class Log(logging.Handler):
    """What was told, at DEBUG: counted, looked at, not kept."""

    def __init__(self, secrets: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self.lines, self.longest, self.unprintable = 0, 0, 0
        self.leaks: list[str] = []
        self.kinds: Counter[str] = Counter()
        self._secrets = secrets

    def emit(self, line: logging.LogRecord) -> None:
        told = line.getMessage()
        self.look(told)
        if line.levelno >= logging.INFO:
            self.lines += 1
            self.longest = max(self.longest, len(told))
            self.kinds[re.sub(r"\d+", "N", told)[:160]] += 1

    def look(self, told: str) -> None:
        self.unprintable += not told.isprintable()
        self.leaks += [told[:200] for secret in self._secrets if secret in told]


class Victim:
    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.log = Log(case["secrets"])
        self.errors: Counter[str] = Counter()
        self.texts: dict[str, str] = {}
        self.untyped: list[str] = []
        self.records: Counter[int] = Counter()
        self.wrong: list[str] = []
        self.latest: dict[int, int] = {}
        self.slowest, self.longest, self.threads, self.polls = 0.0, 0.0, 0, 0

    def run(self) -> dict[str, Any]:
        logging.basicConfig(handlers=[self.log], level=logging.DEBUG)
        settings = dict(self.case["settings"])
        if self.case["token_life"]:
            settings["sasl_oauth_token"] = lambda: OAuthToken(value="t", expires_in=10 ** self.case["token_life"])
        consumer = Consumer(**settings)
        start = memory("VmRSS")
        limit_first = not self.case["limit_later"]
        if limit_first:
            self.limit()
        self.timed(0.2, lambda: self.begin(consumer))
        if not limit_first:
            self.limit()
        self.poll_until_seen(consumer)
        self.timed(self.case["close"], lambda: consumer.close(timeout=self.case["close"]))
        peak = memory("VmHWM")
        names = ("errors", "texts", "untyped", "records", "wrong", "slowest", "longest", "threads", "polls")
        log = {name: getattr(self.log, name) for name in ("lines", "unprintable", "leaks")}
        kinds = self.log.kinds.most_common(5)
        seen = {name: getattr(self, name) for name in names}
        return {**seen, **log, "longest_line": self.log.longest, "kinds": kinds, "memory": max(0, peak - start)}

    def begin(self, consumer: Consumer) -> None:
        if self.case["assign"]:
            consumer.assign([TopicPartition("t", number) for number in range(self.case["assign"])])
        else:
            consumer.subscribe(["t"])

    def limit(self) -> None:
        """Of what is scarce: `setrlimit`'s names and what is left above what is used now."""
        for name, more in self.case["limits"].items():
            used = len(list(Path("/proc/self/fd").iterdir())) if name == "RLIMIT_NOFILE" else 0
            if name == "RLIMIT_AS":
                used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            kind = getattr(resource, name)
            resource.setrlimit(kind, (used + more, resource.getrlimit(kind)[1]))
        if self.case["no_threads"]:
            setattr(threading.Thread, "start", _refused)  # noqa: B010 - to mypy it is final

    def poll_until_seen(self, consumer: Consumer) -> None:
        begun = time.monotonic()
        while (passed := time.monotonic() - begun) < self.case["most_seconds"]:
            if passed >= self.case["seconds"] and self.seen():
                return
            self.timed(0.2, lambda: self.poll(consumer))
            self.threads = max(self.threads, threading.active_count())

    def poll(self, consumer: Consumer) -> None:
        self.polls += 1
        for each in consumer.poll(timeout=0.2):
            self.records[each.partition] += 1
            if self.case["values"] and each.value != b"%d:%d" % (each.partition, each.offset):
                self.wrong.append(f"{each.partition}:{each.offset} has the value {str(each.value)[:99]}")
            if self.case["gapless"] and each.offset != self.latest.get(each.partition, -1) + 1:
                self.wrong.append(f"{each.partition}:{each.offset} follows {self.latest.get(each.partition, -1)}")
            self.latest[each.partition] = each.offset
            _ = each.headers

    def timed(self, timeout: float, call: Any) -> None:
        """What the call's time-out does not explain: by the clock, and by the processor (whatever else runs here)."""
        clock, work = time.monotonic(), time.process_time()
        try:
            call()
        except KafkaError as error:
            name = type(error).__name__
            self.errors[name] += 1
            self.texts.setdefault(name, str(error))
            self.log.look(str(error))
        except BaseException as error:  # noqa: BLE001 - the judge hears of it
            self.untyped.append(f"{type(error).__name__}: {error}"[:300])
        self.longest = max(self.longest, time.monotonic() - clock - timeout)
        self.slowest = max(self.slowest, time.process_time() - work - timeout)

    def seen(self) -> bool:
        enough = all(self.records[number] >= self.case["enough"] for number in self.case["flows"])
        return enough and all(self.errors[name] for name in self.case["errors"])


def _refused(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


if __name__ == "__main__":
    print(json.dumps(Victim(json.loads(sys.argv[1])).run()))
