"""Runs a case, and judges what the consumer said of it: one judge for all.

Laws
1. Errors are ours, typed, one printable line. Nothing else comes out of a call.
2. A call ends in time: what it works beyond its time-out is bounded. The processor's time is measured, not
   the clock's: it is the same on a busy machine.
3. Partitions that nobody lies about flow. What is delivered is what was written, without a gap.
4. Memory stays within the published bound: `fetch_buffer_bytes` + 10 % + 40 MiB above the start, with
   the records that the application has of one poll.
5. Log lines and requests are bounded, whatever the broker repeats. A loop that only tries again does not spin.
6. No secret is told, and no line is broken by what a broker wrote.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from attack.cases import Case
from attack.proxy import Proxy

__all__ = ["Outcome", "Server", "judged", "run", "run_at"]

MIB = 1 << 20
_OVERWORK = 2.0
_LONGEST_TEXT = 2100
_TOOLS = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """broken: which bounds were not held, in words. seen: what the victim printed, with `requests` beside it."""

    case: Case
    broken: tuple[str, ...]
    seen: dict[str, Any]


class Server(Protocol):
    """Where the victim connects to. asked: how often."""

    port: int
    requested: Counter[int]

    def close(self) -> None: ...


def run(case: Case, seed: int = 0, client: str = "instride") -> Outcome:
    broker = case.broker()
    case = replace(case, settings={**broker.settings, **case.settings})
    proxy = Proxy(broker.port, case.damages, seed, share=case.damaged) if case.damages else None
    try:
        return run_at(case, broker if proxy is None else proxy, client)
    finally:
        broker.close()
        if proxy is not None:
            proxy.close()


def run_at(case: Case, server: Server, client: str = "instride") -> Outcome:
    """Of a server that runs already. client: of `attack.peers`."""
    return judged(case, server, _victim(case, server.port, client))


def _victim(case: Case, port: int, client: str) -> dict[str, Any]:
    settings = {
        "bootstrap_servers": f"{case.host}:{port}",
        "auto_offset_reset": "earliest",
        "fetch_buffer_bytes": 64 * MIB,
        "fetch_max_wait": 0.1,
        "request_timeout": 10.0,  # a broker here is late on a busy machine
        **({} if case.assign else {"group_id": "g"}),
        **case.settings,
    }
    told = {name: value for name, value in asdict(case).items() if name not in ("broker", "settings", "known")}
    patience = case.most_seconds * 2 + 30 if client == "instride" else case.most_seconds + 30
    try:
        done = subprocess.run(
            [sys.executable, "-m", "attack.victim", json.dumps(told | {"settings": settings}), client],
            capture_output=True,
            text=True,
            check=False,
            timeout=patience,
            env=os.environ | {"PYTHONPATH": str(_TOOLS), "MALLOC_ARENA_MAX": "2"},
        )
    except subprocess.TimeoutExpired:
        return {"died": f"still at work after {patience:.0f} s"}
    if done.returncode:
        return {"died": f"exit status {done.returncode}: {done.stderr[-500:]}"}
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def judged(case: Case, server: Server, seen: dict[str, Any]) -> Outcome:
    """seen: what the victim printed."""
    if "died" in seen:
        return Outcome(case=case, broken=(seen["died"],), seen=seen)
    seen["requests"] = sum(server.requested.values())
    bound = float(case.settings.get("fetch_buffer_bytes", 64 * MIB) * 1.1 + 40 * MIB)
    most_lines = 60 + seen["polls"] // 2
    bounds = [
        (not seen["untyped"], f"an error that is not ours: {seen['untyped'][:2]}"),
        (all(seen["errors"].get(name) for name in case.errors), f"{case.errors} not raised, but {seen['errors']}"),
        (case.any_error or set(seen["errors"]) <= {*case.errors, *case.may_raise}, f"raised {seen['texts']}"),
        (seen["slowest"] < case.overwork, f"a call worked for {seen['slowest']:.1f} s beyond its time-out"),
        (not seen["wrong"], f"not what was written: {seen['wrong'][:3]}"),
        (_flow(case, seen), f"stands still: {seen['records']} of {case.flows}"),
        (seen["memory"] <= bound, f"{seen['memory'] / MIB:.0f} MiB above the start"),
        (seen["lines"] <= most_lines, f"{seen['lines']} log lines in {seen['polls']} polls: {seen['kinds'][:2]}"),
        (seen["longest_line"] <= _LONGEST_TEXT, f"a log line of {seen['longest_line']} characters"),
        (all(len(each) <= _LONGEST_TEXT for each in seen["texts"].values()), "an unbounded text of an error"),
        (not seen["unprintable"], f"{seen['unprintable']} texts that cannot be printed"),
        (seen["told"], f"nobody says {case.told!r}"),
        (not seen["leaks"], f"a secret was told: {seen['leaks'][:2]}"),
        (
            seen["requests"] <= case.requests + 40 * seen["polls"],
            f"{seen['requests']} requests in {seen['polls']} polls",
        ),
        (seen["threads"] <= 24, f"{seen['threads']} threads"),
        (
            sum(seen["errors"].values()) <= 30 + 12 * seen["took"],
            f"{sum(seen['errors'].values())} errors in {seen['took']:.0f} s",
        ),
    ]
    return Outcome(case=case, broken=tuple(words for good, words in bounds if not good), seen=seen)


def _flow(case: Case, seen: dict[str, Any]) -> bool:
    return all(seen["records"].get(str(number), 0) >= case.enough for number in case.flows)
