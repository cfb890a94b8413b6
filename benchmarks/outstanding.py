"""How long a consumer had no fetch outstanding, and how much of that although there was room for one.

Room: of a partition, as the fetcher itself judges it (its law C2). What the application has consumed gives room once
the network thread has heard of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Outstanding:
    """Of the consumer that this process makes next, from its first fetch on. Each turn looks at each partition."""

    def __init__(self) -> None:
        from instride._core.network.fetcher import Fetcher

        self._in_flight = 0
        self._began = self._idle_since = 0.0
        self._room_since: float | None = None
        self._without = self._with_room = 0.0
        Fetcher._send = self._sending(Fetcher._send)  # type: ignore[method-assign]
        Fetcher._on_response = self._responding(Fetcher._on_response)  # type: ignore[method-assign]
        Fetcher.poll = self._looking(Fetcher.poll)  # type: ignore[method-assign]

    def shares(self) -> dict[str, float]:
        took = time.perf_counter() - self._began
        return {"idle": self._without / took, "idle with room": self._with_room / took}

    def _sending(self, work: Callable[..., None]) -> Callable[..., None]:
        def send(fetcher: object, *arguments: object) -> None:
            at = time.perf_counter()
            self._began = self._began or at
            if not self._in_flight and self._idle_since:
                self._without += at - self._idle_since
                self._with_room += at - (at if self._room_since is None else self._room_since)
            self._in_flight, self._room_since = self._in_flight + 1, None
            work(fetcher, *arguments)

        return send

    def _responding(self, work: Callable[..., None]) -> Callable[..., None]:
        def respond(fetcher: object, *arguments: object, **named: object) -> None:
            at = time.perf_counter()
            work(fetcher, *arguments, **named)
            self._in_flight -= 1
            self._idle_since = at
            self._look(fetcher, at)

        return respond

    def _looking(self, work: Callable[..., float]) -> Callable[..., float]:
        def poll(fetcher: object, now: float) -> float:
            self._look(fetcher, time.perf_counter())
            return work(fetcher, now)

        return poll

    def _look(self, fetcher: object, at: float) -> None:
        if self._in_flight or self._room_since is not None:
            return
        from instride._core.network.fetcher import capacity

        owned = fetcher._owned()  # type: ignore[attr-defined]
        found = capacity(fetcher._context.config, owned)  # type: ignore[attr-defined]
        if any(each.fetchable and found.of(each) for each in owned.values()):
            self._room_since = at
