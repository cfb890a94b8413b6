"""`Processor`: a handler and how it may run. What it says is in `definition`, what runs it in `running`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Never, TypeAlias, TypeVar, Unpack, cast, overload

from instride._processing.definition import (
    AnyOptions,
    ArrowOptions,
    BatchOptions,
    Definition,
    OutputBatchOptions,
    OutputOptions,
    ProcessorOptions,
    definition,
)
from instride._processing.kit import ProcessorKit
from instride._processing.outputs import Outputs
from instride._processing.running import RunningProcessor, run_with_signals
from instride._record_reader import RecordReader
from instride._wire.decoder import ConsumerRecord
from instride.config import ConsumerSettings

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Processor"]

K = TypeVar("K")
V = TypeVar("V")
Produced: TypeAlias = "Outputs | Awaitable[Outputs]"
"""What a plain handler, or a coroutine function, returns that has an output topic."""


class Processor(Generic[K, V]):
    """A handler for the records of topics, and how it may run. Immutable; runs as often as wanted, from any thread.

        billing = Processor(bill, topics=["orders"], order="key", concurrency=64,
            retry=Retry(attempts=5, on=(TimeoutError,)), dead_letters="orders.dlq")
        billing.run(bootstrap_servers="localhost:9092", group_id="billing")

    Without a loss, a crash or a missed deadline each record is handled to its end once, by whichever member; with
    them at least once. See docs/processor.md.
    """

    __slots__ = ("_definition",)
    _definition: Definition

    @overload
    def __init__(
        self: Processor[bytes | None, bytes | None],
        handler: Callable[[ConsumerRecord[bytes | None, bytes | None]], object],
        *misplaced: Never,
        topics: Iterable[str],
        **options: Unpack[ProcessorOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Processor[bytes | None, V],
        handler: Callable[[ConsumerRecord[bytes | None, V]], object],
        *misplaced: Never,
        topics: Iterable[str],
        value_deserializer: Callable[..., V],
        **options: Unpack[ProcessorOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Processor[K, bytes | None],
        handler: Callable[[ConsumerRecord[K, bytes | None]], object],
        *misplaced: Never,
        topics: Iterable[str],
        key_deserializer: Callable[..., K],
        **options: Unpack[ProcessorOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        handler: Callable[[ConsumerRecord[K, V]], object],
        *misplaced: Never,
        topics: Iterable[str],
        key_deserializer: Callable[..., K],
        value_deserializer: Callable[..., V],
        **options: Unpack[ProcessorOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Processor[bytes | None, bytes | None],
        handler: Callable[[list[ConsumerRecord[bytes | None, bytes | None]]], object],
        *misplaced: Never,
        topics: Iterable[str],
        **options: Unpack[BatchOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Processor[bytes | None, V],
        handler: Callable[[list[ConsumerRecord[bytes | None, V]]], object],
        *misplaced: Never,
        topics: Iterable[str],
        value_deserializer: Callable[..., V],
        **options: Unpack[BatchOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Processor[K, bytes | None],
        handler: Callable[[list[ConsumerRecord[K, bytes | None]]], object],
        *misplaced: Never,
        topics: Iterable[str],
        key_deserializer: Callable[..., K],
        **options: Unpack[BatchOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        handler: Callable[[list[ConsumerRecord[K, V]]], object],
        *misplaced: Never,
        topics: Iterable[str],
        key_deserializer: Callable[..., K],
        value_deserializer: Callable[..., V],
        **options: Unpack[BatchOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Processor[bytes | None, bytes | None],
        handler: Callable[[ConsumerRecord[bytes | None, bytes | None]], Produced],
        *misplaced: Never,
        topics: Iterable[str],
        **options: Unpack[OutputOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Processor[bytes | None, V],
        handler: Callable[[ConsumerRecord[bytes | None, V]], Produced],
        *misplaced: Never,
        topics: Iterable[str],
        value_deserializer: Callable[..., V],
        **options: Unpack[OutputOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Processor[K, bytes | None],
        handler: Callable[[ConsumerRecord[K, bytes | None]], Produced],
        *misplaced: Never,
        topics: Iterable[str],
        key_deserializer: Callable[..., K],
        **options: Unpack[OutputOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        handler: Callable[[ConsumerRecord[K, V]], Produced],
        *misplaced: Never,
        topics: Iterable[str],
        key_deserializer: Callable[..., K],
        value_deserializer: Callable[..., V],
        **options: Unpack[OutputOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Processor[bytes | None, bytes | None],
        handler: Callable[[list[ConsumerRecord[bytes | None, bytes | None]]], Produced],
        *misplaced: Never,
        topics: Iterable[str],
        **options: Unpack[OutputBatchOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Processor[bytes | None, V],
        handler: Callable[[list[ConsumerRecord[bytes | None, V]]], Produced],
        *misplaced: Never,
        topics: Iterable[str],
        value_deserializer: Callable[..., V],
        **options: Unpack[OutputBatchOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Processor[K, bytes | None],
        handler: Callable[[list[ConsumerRecord[K, bytes | None]]], Produced],
        *misplaced: Never,
        topics: Iterable[str],
        key_deserializer: Callable[..., K],
        **options: Unpack[OutputBatchOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        handler: Callable[[list[ConsumerRecord[K, V]]], Produced],
        *misplaced: Never,
        topics: Iterable[str],
        key_deserializer: Callable[..., K],
        value_deserializer: Callable[..., V],
        **options: Unpack[OutputBatchOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Processor[bytes | None, bytes | None],
        handler: Callable[[pa.Table], object],
        *misplaced: Never,
        topics: Iterable[str],
        **options: Unpack[ArrowOptions],
    ) -> None: ...
    def __init__(
        self,
        handler: Callable[[Any], object],
        *misplaced: Never,
        topics: Iterable[str],
        key_deserializer: Callable[..., Any] | None = None,
        value_deserializer: Callable[..., Any] | None = None,
        **options: Any,
    ) -> None:
        """handler: called with each record, in a thread; a coroutine function on an event loop. Its errors fail it.

        topics: subscribed to. key_deserializer, value_deserializer: called with the bytes (and a context, if they take
        one) where the handler is called; null stays None. What they raise fails the record as a handler's error does.

        Options, all with a default:
        order: "key" (the default): records of one key of a partition one after the other, without a key in no order;
        "partition": those of a partition; "none". concurrency (32): handlers at a time, at most, for all partitions
        together; concurrency_per_partition: of one.
        retry: which failures are tried again, and when; by default none. on_failure: what becomes of a record that is
        not tried again: "stop" (the default: the processor stops, and raises the error), "skip", or "dead-letter" (the
        default where dead_letters is given). dead_letters: their topic. produce: what writes them, and returns, or
        returns a future or an awaitable that ends, once it is acknowledged; by default confluent-kafka, with the
        consumer's settings of the connection.
        breaker: a CircuitBreaker, which pauses while what the handler depends on is away; by default none.
        output: the topic of what the handler returns: an OutputRecord, a list of them, or None. The attempt has ended
        when they are acknowledged.
        store: a DatabaseStore, for coroutine functions an AsyncDatabaseStore: what the handler writes and its offset
        are one transaction of a database; with order="partition", which is then the default. Not with processes.
        lifespan: a function that returns a context manager, for coroutine functions an asynchronous one: entered before
        the first record, left after the last. worker_lifespan: the same for each thread. Handlers see the context
        variables that these set. middleware: functions of a record and of what comes next, which they call (or await);
        the first is the outermost.
        processes: then plain handlers are called in so many processes, not in threads, and concurrency bounds the
        records in them; the handler must be a function of a module.
        timeout: seconds of one attempt; then it fails with TimeoutError. Coroutines are cancelled, processes killed; a
        thread cannot be interrupted: there the attempt fails when its handler ends, and that sees
        current_attempt().cancelled. max_records (10,000), max_bytes (64
        MiB): how much may be queued or at work before partitions are paused. commit_interval (1): seconds between
        commits. drain_timeout (30): seconds that a stop waits for what is at work. on_deadline: when the deadline of a
        hand-over comes, "wait" (the default): for what is at work until its partition is lost; "cancel": give that up a
        second before, commit the rest and hand over. stuck_after (60): a record that is
        at work for so many seconds is named in the log and in `RunningProcessor.health`. max_metadata (4,000):
        characters of a commit's metadata, which remember what is finished out of order; the broker's
        offset.metadata.max.bytes bounds them.

        max_batch: then the handler takes a list of records instead, of one partition, in order, at most so many. It is
        called when there are so many, or when the first has waited for max_wait (1) seconds. concurrency counts calls.
        batch_format: "list" (the default), or "arrow": then it takes a pyarrow.Table with the columns of
        `Consumer.poll_arrow`, keys and values as bytes; there are no deserializers then.

        Raises ConfigError, TypeError or ValueError for a wrong or contradictory value. Does no I/O.
        """
        if misplaced:
            raise TypeError(f"Processor takes its topics and options by name: topics=[{misplaced[0]!r}]")
        reader = RecordReader(key_deserializer, value_deserializer)
        object.__setattr__(self, "_definition", definition(handler, topics, reader, cast("AnyOptions", options)))

    def run(self, **settings: Unpack[ConsumerSettings]) -> None:
        """Run until it is stopped. In the main thread SIGTERM and SIGINT stop it, and a second one cancels.

        settings: a consumer's, see `ConsumerConfig`; group_id is required. A stop finishes what is at work, commits it
        and leaves the group; then this returns. Raises what ended it: ConfigError, a fatal KafkaError, or the error of
        a record that failed for good, with a note that names the record.
        """
        run_with_signals(self.running(**settings))

    def running(self, **settings: Unpack[ConsumerSettings]) -> RunningProcessor:
        """The same as a context, `with` or `async with`, that touches no signal. Starts when it is entered.

        Raises ConfigError for a wrong setting, and for those that a processor decides itself.
        """
        return RunningProcessor(self._definition, settings)

    def testing(self, *, partitions: int = 1) -> ProcessorKit[K, V]:
        """The same without a broker and in virtual time, for your tests: `with billing.testing() as kit`.

        partitions: of each of its topics. Nothing is connected to; dead letters are kept in a list.
        """
        return ProcessorKit(self._definition, partitions)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Processor is immutable: make another one instead of setting {name}")

    def __repr__(self) -> str:
        what = self._definition
        return f"Processor({what.name}, topics={list(what.topics)}, order={what.plan.order!r})"
