"""The consumer under attack, in a process of its own: `python -m attack.victim CASE CLIENT`, a JSON object.

It polls until it has seen what it was told to wait for, or its time is over; then it closes, and prints what it saw as
one line of JSON. What it uses is public, and a user's: `instride.Consumer`, `logging`. CLIENT: of `attack.peers`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import resource
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from attack.peers import CLIENTS, Client

__all__: list[str] = []


def memory(which: str) -> int:
    """Bytes. VmRSS: now. VmHWM: the most so far."""
    found = re.search(rf"{which}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def begin_weighing() -> None:
    """The most so far is what is there now."""
    Path("/proc/self/clear_refs").write_text("5")


class Log(logging.Handler):
    """What was told, at DEBUG: counted, looked at, not kept."""

    def __init__(self, secrets: list[str], wanted: str = "") -> None:
        """wanted: what somebody must say."""
        super().__init__(logging.DEBUG)
        self.told = not wanted
        self._wanted = wanted
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
        self.told |= self._wanted in told
        self.leaks += [told[:200] for secret in self._secrets if secret in told]


class Victim:
    def __init__(self, case: dict[str, Any], client: str) -> None:
        self.case, self.client = case, client
        self.expected: tuple[type[BaseException], ...] = ()
        self.log = Log(case["secrets"], case["told"])
        self.errors: Counter[str] = Counter()
        self.texts: dict[str, str] = {}
        self.untyped: list[str] = []
        self.records: Counter[int] = Counter()
        self.wrong: list[str] = []
        self.latest: dict[int, int] = {}
        self.slowest, self.threads, self.polls, self.took = 0.0, 0, 0, 0.0
        self.work = 0.0
        self.good = case["good_after"] == 0.0

    def run(self) -> dict[str, Any]:
        logging.basicConfig(handlers=[self.log], level=logging.DEBUG)
        if "ATTACK_LOG" in os.environ:  # to look at one case
            logging.getLogger().addHandler(told := logging.FileHandler(os.environ["ATTACK_LOG"]))
            told.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        if self.case["addresses"]:
            many_addresses(self.case["addresses"])
        consumer = CLIENTS[self.client](self.case)
        self.expected = consumer.errors
        begin_weighing()
        start = memory("VmRSS")
        limit_first = not self.case["limit_later"]
        if limit_first:
            self.limit()
        self.timed(0.2, consumer.begin)
        if not limit_first:
            self.limit()
        begun, work = time.monotonic(), time.process_time()
        self.poll_until_seen(consumer)
        self.took = time.monotonic() - begun
        self.timed(self.case["close"], consumer.close)
        most = memory("VmHWM")
        self.work = time.process_time() - work
        names = (
            "errors",
            "texts",
            "untyped",
            "records",
            "wrong",
            "slowest",
            "threads",
            "polls",
            "took",
            "work",
        )
        log = {name: getattr(self.log, name) for name in ("lines", "unprintable", "leaks", "told")}
        kinds = self.log.kinds.most_common(5)
        seen = {name: getattr(self, name) for name in names}
        return {**seen, **log, "memory": max(0, most - start), "longest_line": self.log.longest, "kinds": kinds}

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

    def poll_until_seen(self, consumer: Client) -> None:
        begun = time.monotonic()
        while (passed := time.monotonic() - begun) < self.case["most_seconds"]:
            if not self.good and passed >= self.case["good_after"] + 1.0:
                self.good = True
                self.begin_again(consumer)
            if self.good and passed >= self.case["seconds"] and self.seen():
                return
            if not self.good and self.seen() and self.case["assign"]:
                self.begin_again(consumer)
            self.timed(0.2, lambda: self.poll(consumer))
            self.threads = max(self.threads, threading.active_count())

    def begin_again(self, consumer: Client) -> None:
        """From the beginning of what is assigned now."""
        self.records.clear()
        self.latest.clear()
        self.timed(0.2, consumer.begin_again)

    def poll(self, consumer: Client) -> None:
        self.polls += 1
        mended = self.case["good_after"] > 0 and self.good
        for partition, offset, value in consumer.poll(0.2):
            if self.case["written"] and not self.case["assign"] and offset == 0:
                self.records[partition] = 0  # a member that was lost begins again
                self.latest.pop(partition, None)
            self.records[partition] += 1
            if (self.case["values"] or mended) and value != b"%d:%d" % (partition, offset):
                self.wrong.append(f"{partition}:{offset} has the value {str(value)[:99]}")
            if self.case["written"] and not self.was_written(value):
                self.wrong.append(f"nobody wrote {str(value)[:99]}")
            if (self.case["gapless"] or mended) and offset != self.latest.get(partition, -1) + 1:
                self.wrong.append(f"{partition}:{offset} follows {self.latest.get(partition, -1)}")
            self.latest[partition] = offset
            if value is not None and len(value) > 1e6:
                time.sleep(self.case["works"])

    def was_written(self, value: bytes | None) -> bool:
        found = re.fullmatch(rb"(\d+):(\d+)", value or b"")
        return found is not None and int(found[1]) in self.case["flows"] and int(found[2]) < self.case["written"]

    def timed(self, timeout: float, call: Any) -> None:
        """What the call's time-out does not explain, by the processor's clock: whatever else runs here."""
        work = time.process_time()
        try:
            call()
        except self.expected as error:
            name = type(error).__name__
            self.errors[name] += 1
            self.texts.setdefault(name, str(error))
            self.log.look(str(error))
        except BaseException as error:  # noqa: BLE001 - the judge hears of it
            self.untyped.append(f"{type(error).__name__}: {error}"[:300])
        self.slowest = max(self.slowest, time.process_time() - work - timeout)

    def seen(self) -> bool:
        enough = all(self.records[number] >= self.case["enough"] for number in self.case["flows"])
        return enough and self.log.told and all(self.errors[name] for name in self.case["errors"])


def many_addresses(count: int) -> None:
    """What a DNS server may say: each name has so many addresses, of which all but the last refuse connections."""
    real = socket.getaddrinfo

    def found(host: str, port: int, **asked: Any) -> list[Any]:
        if asked.get("flags"):  # a literal, or nothing
            return real(host, port, **asked)
        wrong = (f"127.1.{number // 250}.{1 + number % 250}" for number in range(count - 1))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in (*wrong, "127.0.0.1")]

    socket.getaddrinfo = found  # type: ignore[assignment]


def _refused(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


if __name__ == "__main__":
    print(json.dumps(Victim(json.loads(sys.argv[1]), sys.argv[2]).run()))
