"""Calls that come while one is under way are done together by the next: a slow commit carries many ranges."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["Combiner"]

Request = TypeVar("Request")
Response = TypeVar("Response")


class _Place(Generic[Request, Response]):
    """A caller's place in the queue."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.response: Response | BaseException | None = None
        self.done = False


class Combiner(Generic[Request, Response]):
    """work: does some requests at once, and gives a response, or the error to raise, for each. Never runs twice at a
    time.

    What `work` raises, each of its callers raises. Thread-safe.
    """

    def __init__(self, work: Callable[[Sequence[Request]], Sequence[Response | BaseException]]) -> None:
        self._work = work
        self._queue: list[_Place[Request, Response]] = []
        self._queue_lock = threading.Lock()
        self._turn = threading.Lock()

    def __call__(self, request: Request) -> Response:
        place: _Place[Request, Response] = _Place(request)
        with self._queue_lock:
            self._queue.append(place)
        with self._turn:
            # Whoever had the turn before may have done this one with its own.
            if not place.done:
                self._do_all()
        if isinstance(place.response, BaseException):
            raise place.response
        return place.response  # type: ignore[return-value]

    def _do_all(self) -> None:
        with self._queue_lock:
            places, self._queue = self._queue, []
        responses: Sequence[Response | BaseException] = ()
        try:
            responses = self._work([place.request for place in places])
        except BaseException as error:  # noqa: BLE001 - raised to every caller
            responses = [error] * len(places)
        for place, response in zip(places, responses, strict=True):
            place.response, place.done = response, True
