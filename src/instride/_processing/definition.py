"""What a `Processor` says, checked once: a value that everything which runs it reads."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, Required, TypedDict, get_args

from instride import _arguments as arguments
from instride._coroutines import is_asynchronous
from instride._processing.arrow_batches import in_arrow
from instride._processing.async_store import AsyncDatabaseStore
from instride._processing.breaker import CircuitBreaker
from instride._processing.dead_letters import Produce
from instride._processing.engine import EnginePlan, Order, Task
from instride._processing.forks import guarded
from instride._processing.lifespan import Lifespan, Middleware, wrapped
from instride._processing.poll_loop import Pace
from instride._processing.retries import NO_RETRY, AfterFailure, Failures, Retry
from instride._processing.store import DatabaseStore
from instride._record_deserializer import RecordDeserializer
from instride._texts import MOST_BYTES
from instride.errors import ConfigError

__all__ = [
    "AnyOptions",
    "ArrowOptions",
    "BatchOptions",
    "Definition",
    "OutputBatchOptions",
    "OutputOptions",
    "ProcessorOptions",
    "definition",
]


OnDeadline = Literal["wait", "cancel"]
_WINDOW: Final = 64


class ProcessorOptions(TypedDict, total=False):
    """The options of a `Processor` besides its handler, topics and deserializers; explained there."""

    order: Order
    concurrency: int
    concurrency_per_partition: int
    processes: int
    retry: Retry
    on_failure: AfterFailure
    dead_letters: str
    produce: Produce
    store: DatabaseStore[Any] | AsyncDatabaseStore[Any]
    breaker: CircuitBreaker
    lifespan: Lifespan
    worker_lifespan: Lifespan
    middleware: Iterable[Middleware]
    timeout: float
    max_records: int
    max_bytes: int
    commit_interval: float
    commit_records: int
    drain_timeout: float
    on_deadline: OnDeadline
    stuck_after: float
    max_metadata: int


class BatchOptions(ProcessorOptions, total=False):
    """Those of a processor whose handler takes a list of records."""

    max_batch: Required[int]
    max_wait: float


class OutputOptions(ProcessorOptions):
    """Those of a processor whose handler returns what is to be written to its output topic."""

    output: str


class OutputBatchOptions(BatchOptions):
    """Both."""

    output: str


class ArrowOptions(BatchOptions, total=False):
    """Those of a processor whose handler takes an Arrow table."""

    batch_format: Required[Literal["arrow"]]
    output: str


class AnyOptions(ProcessorOptions, total=False):
    """All of them."""

    batch_format: Literal["list", "arrow"]
    max_batch: int
    max_wait: float
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """name: the handler's, for threads and logs. handler: the user's. is_async: whether it is a coroutine
    function. reader: of the deserializers. output: the topic of what it returns.
    processes: 0 for threads, or an event loop."""

    name: str
    handler: Callable[[Any], Any]
    is_async: bool
    topics: tuple[str, ...]
    reader: RecordDeserializer
    plan: EnginePlan
    pace: Pace
    concurrency: int
    processes: int
    dead_letters: str | None
    output: str | None
    produce: Produce | None
    timeout: float | None
    lifespan: Lifespan | None
    worker_lifespan: Lifespan | None
    middleware: Sequence[Middleware]
    store: DatabaseStore[Any] | AsyncDatabaseStore[Any] | None

    def bound(self, group: str) -> Bound:
        """For a run in this group."""
        handler = guarded(self.handler, is_async=self.is_async)
        middleware = [guarded(each, is_async=self.is_async) for each in self.middleware]
        if self.store is None:
            return Bound(wrapped(handler, middleware))
        transactions = self.store.database.transactions(handler, group)
        return Bound(wrapped(transactions, middleware), transactions.pass_over)


@dataclass(frozen=True, slots=True)
class Bound:
    """handler: within its middleware; with a store, in transactions. pass_over: see `Desk`."""

    handler: Callable[[Any], Any]
    pass_over: Callable[[Task], object] = lambda _: None


def definition(
    handler: Any, topics: Any, reader: RecordDeserializer, options: AnyOptions, verb: str = "Processor"
) -> Definition:
    """Raises TypeError, ValueError or ConfigError."""
    if not callable(handler):
        raise TypeError(f"{verb}: the handler must be a function of one record, not {type(handler).__name__}")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise TypeError(f"{verb}: the handler must not yield: nobody would run it; return a list instead")
    _refuse_wrong_parameters(verb, handler)
    unknown = options.keys() - AnyOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"{verb} does not know {sorted(unknown)}; settings of the consumer are given to run or running")
    names, max_batch = _topics(verb, topics), _max_batch(verb, options)
    concurrency = _positive(verb, options, "concurrency", 32)
    is_async = is_asynchronous(handler)
    return Definition(
        name=_named(handler),
        handler=in_arrow(handler, is_async=is_async) if _is_arrow(verb, options, reader) else handler,
        is_async=is_async,
        topics=names,
        reader=reader,
        plan=EnginePlan(
            order=_order(verb, options),
            failures=_failures(verb, options),
            per_partition=_positive(verb, options, "concurrency_per_partition", concurrency),
            max_records=_positive(verb, options, "max_records", 10_000),
            max_bytes=_positive(verb, options, "max_bytes", 64 << 20),
            metadata_limit=_positive(verb, options, "max_metadata", 4_000, most=MOST_BYTES),
            # Twice what is in progress at once, so that handlers go on while the first commit is on its way.
            window=max(_WINDOW, 2 * concurrency, 2 * max_batch),
            max_batch=max_batch,
            max_wait=arguments.seconds(verb, options.get("max_wait", 1.0), name="max_wait"),
            has_store=options.get("store") is not None,
            breaker=_breaker(verb, options),
        ),
        pace=Pace(
            commit_interval=arguments.seconds(verb, options.get("commit_interval", 1.0), name="commit_interval"),
            commit_records=_positive(verb, options, "commit_records", 10_000),
            drain_timeout=arguments.seconds(verb, options.get("drain_timeout", 30.0), name="drain_timeout"),
            stuck_after=arguments.seconds(verb, options.get("stuck_after", 60.0), name="stuck_after"),
            cancels_in_time=_on_deadline(verb, options) == "cancel",
        ),
        concurrency=concurrency,
        processes=_processes(verb, options, concurrency, is_async=is_async),
        dead_letters=_dead_letters(verb, names, options),
        output=_output(verb, names, options),
        produce=_produce(verb, options, is_async=is_async),
        timeout=_timeout(verb, options),
        lifespan=_run_lifespan(verb, options),
        worker_lifespan=_worker_lifespan(verb, options, is_async=is_async),
        middleware=_middleware(verb, options, is_async=is_async),
        store=_store(verb, options, is_async=is_async),
    )


def _named(value: object) -> str:
    """For texts. Not its repr: it may be settings, a URI, or a function that is bound to them."""
    return str(getattr(value, "__qualname__", type(value).__name__))


def _refuse_wrong_parameters(verb: str, handler: Callable[..., Any]) -> None:
    try:
        found = inspect.signature(handler)
    except (TypeError, ValueError):  # of some that are written in C nobody knows
        return
    try:
        found.bind(None)
    except TypeError as error:
        raise TypeError(
            f"{verb}: the handler is called with one argument, the record (or the batch), and takes "
            f"({', '.join(found.parameters)}): {error}; "
            "define it as def handle(record), and bind what else it needs with functools.partial"
        ) from None


def _topics(verb: str, topics: Any) -> tuple[str, ...]:
    if isinstance(topics, str) or not isinstance(topics, Iterable):
        raise TypeError(f'{verb} takes a list of topics, such as topics=["orders"], not {topics!r}')
    found = tuple(arguments.text(verb, "a topic", each) for each in topics)
    if not found:
        raise ConfigError(f"{verb}: topics is empty")
    return found


def _order(verb: str, options: AnyOptions) -> Order:
    order = options.get("order", "key" if options.get("store") is None else "partition")
    if order not in get_args(Order):
        raise ConfigError(f"{verb}: order must be one of {', '.join(get_args(Order))}; it is {order!r}")
    return order


def _on_deadline(verb: str, options: AnyOptions) -> OnDeadline:
    found = options.get("on_deadline", "wait")
    if found not in get_args(OnDeadline):
        raise ConfigError(f"{verb}: on_deadline must be one of {', '.join(get_args(OnDeadline))}; it is {found!r}")
    return found


def _dead_letters(verb: str, topics: tuple[str, ...], options: AnyOptions) -> str | None:
    if options.get("dead_letters") is None:
        return None
    found = arguments.text(verb, "dead_letters", options["dead_letters"])
    if found in topics:
        raise ConfigError(
            f"{verb}: dead_letters is one of its topics: {found}; a record that fails would come for ever. "
            "Name another topic, such as " + f"{found}.dlq"
        )
    return found


def _output(verb: str, topics: tuple[str, ...], options: AnyOptions) -> str | None:
    if options.get("output") is None:
        return None
    found = arguments.text(verb, "output", options["output"])
    if found in topics:
        raise ConfigError(
            f"{verb}: output is one of its topics: {found}; what a handler returns would come to it again, for ever. "
            "Name another topic; an OutputRecord may still name this one, record by record"
        )
    return found


def _failures(verb: str, options: AnyOptions) -> Failures:
    letters = options.get("dead_letters")
    after = options.get("on_failure", "stop" if letters is None else "dead-letter")
    if after not in get_args(AfterFailure):
        raise ConfigError(f"{verb}: on_failure must be one of {', '.join(get_args(AfterFailure))}; it is {after!r}")
    if after == "dead-letter" and letters is None:
        raise ConfigError(f'{verb}: on_failure="dead-letter" needs the name of a topic: dead_letters="orders.dlq"')
    retry = options.get("retry", NO_RETRY)
    if not isinstance(retry, Retry):
        raise TypeError(f"{verb}: retry must be a Retry, such as Retry(attempts=5), not {type(retry).__name__}")
    return Failures(retry=retry, after=after, has_dead_letters=letters is not None)


def _produce(verb: str, options: AnyOptions, *, is_async: bool) -> Produce | None:
    found = options.get("produce")
    if found is None:
        return None
    if options.get("dead_letters") is None and options.get("output") is None:
        raise ConfigError(f"{verb}: produce is for dead_letters=... or output=...; name a topic")
    if not callable(found):
        raise TypeError(f"{verb}: produce must be a function of one record, not {type(found).__name__}")
    if is_asynchronous(found) and not is_async:
        raise ConfigError(f"{verb}: produce of a plain function must be a plain function too: nobody would await it")
    return found


def _max_batch(verb: str, options: AnyOptions) -> int:
    """0: none. A batch may be as large as what is buffered at most, or it would wait for ever."""
    if "max_batch" not in options:
        if "max_wait" in options:
            raise ConfigError(f"{verb}: max_wait is for handlers of batches, which have a max_batch")
        return 0
    most, found = _positive(verb, options, "max_records", 10_000), _positive(verb, options, "max_batch", 1)
    if found > most:
        raise ConfigError(f"{verb}: max_batch ({found}) must not be above max_records ({most})")
    return found


def _is_arrow(verb: str, options: AnyOptions, reader: RecordDeserializer) -> bool:
    found = options.get("batch_format", "list")
    if found not in ("list", "arrow"):
        raise ConfigError(f'{verb}: batch_format must be "list" or "arrow"; it is {found!r}')
    if "batch_format" in options and "max_batch" not in options:
        raise ConfigError(f"{verb}: batch_format is for handlers of batches, which have a max_batch")
    if found == "arrow" and reader:
        raise ConfigError(f"{verb}: an Arrow table has keys and values as bytes: leave the deserializers out")
    return found == "arrow"


def _timeout(verb: str, options: AnyOptions) -> float | None:
    timeout = options.get("timeout")
    found = None if timeout is None else arguments.seconds(verb, timeout, name="timeout")
    if found == 0:
        raise ConfigError(f"{verb}: timeout must be above 0, or each attempt fails; leave it out for none")
    return found


def _processes(verb: str, options: AnyOptions, concurrency: int, *, is_async: bool) -> int:
    if "processes" not in options:
        return 0
    if is_async:
        raise ConfigError(f"{verb}: processes are for plain functions; for coroutines: instride run --workers")
    found = _positive(verb, options, "processes", 1)
    if found > concurrency:
        raise ConfigError(f"{verb}: concurrency ({concurrency}) must not be below processes ({found})")
    return found


def _breaker(verb: str, options: AnyOptions) -> CircuitBreaker | None:
    breaker = options.get("breaker")
    if not isinstance(breaker, CircuitBreaker | None):
        raise TypeError(f"{verb}: breaker must be a CircuitBreaker, such as CircuitBreaker(on=OSError)")
    return breaker


def _lifespan(verb: str, options: AnyOptions, name: Literal["lifespan", "worker_lifespan"]) -> Lifespan | None:
    found = options.get(name)
    if found is not None and not callable(found):
        raise TypeError(f"{verb}: {name} must be a function that returns a context manager, not {type(found).__name__}")
    return found


def _run_lifespan(verb: str, options: AnyOptions) -> Lifespan | None:
    found, store = _lifespan(verb, options, "lifespan"), options.get("store")
    if isinstance(store, AsyncDatabaseStore):
        return store.database.connections if found is None else partial(_both_async, store.database.connections, found)
    return found


def _worker_lifespan(verb: str, options: AnyOptions, *, is_async: bool) -> Lifespan | None:
    found, store = _lifespan(verb, options, "worker_lifespan"), options.get("store")
    if found is not None and is_async:
        raise ConfigError(f"{verb}: worker_lifespan is for threads; coroutines share an event loop, and a lifespan")
    if isinstance(store, DatabaseStore):
        return store.database.thread if found is None else partial(_both, store.database.thread, found)
    return found


@contextmanager
def _both(outer: Callable[[], Any], inner: Callable[[], Any]) -> Iterator[None]:
    with outer(), inner():
        yield


@asynccontextmanager
async def _both_async(outer: Callable[[], Any], inner: Callable[[], Any]) -> AsyncIterator[None]:
    async with outer(), inner():
        yield


def _store(verb: str, options: AnyOptions, *, is_async: bool) -> DatabaseStore[Any] | AsyncDatabaseStore[Any] | None:
    store = options.get("store")
    if store is None:
        return None
    if not isinstance(store, DatabaseStore | AsyncDatabaseStore):
        raise TypeError(
            f"{verb}: store must be a DatabaseStore, such as DatabaseStore(connect), not {type(store).__name__}"
        )
    if is_async != isinstance(store, AsyncDatabaseStore):
        raise ConfigError(f"{verb}: a DatabaseStore is for plain functions, an AsyncDatabaseStore for coroutines")
    if "processes" in options:
        raise ConfigError(f"{verb}: store is for threads and coroutines, not for processes")
    if _order(verb, options) != "partition":
        raise ConfigError(f'{verb}: store needs order="partition": one offset stands for all records before it')
    if options.get("output") is not None:
        raise ConfigError(
            f"{verb}: output cannot be in the transaction of a store; write it to a table of the database"
        )
    return store


def _middleware(verb: str, options: AnyOptions, *, is_async: bool) -> list[Middleware]:
    found = options.get("middleware", ())
    if callable(found) or not isinstance(found, Iterable):
        raise TypeError(f"{verb}: middleware must be a list of functions, not {type(found).__name__}")
    listed = list(found)
    for each in listed:
        if not callable(each):
            raise TypeError(
                f"{verb}: middleware must be functions of a record and what comes next, not {type(each).__name__}"
            )
        if is_asynchronous(each) != is_async:
            kind = "a coroutine function" if is_async else "a plain function"
            raise ConfigError(f"{verb}: middleware of {kind} must be {kind} too, not {_named(each)}")
    return listed


def _positive(verb: str, options: AnyOptions, name: str, default: int, *, most: int | None = None) -> int:
    found = arguments.positive(verb, name, options.get(name, default))
    if most is not None and found > most:
        raise ValueError(f"{verb}: {name} must be {most} or less; it is {found}")
    return found
