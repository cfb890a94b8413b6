"""`Processor`: a handler and how it may run. What it says is in `definition`, what runs it in `running_processor`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Never, TypeAlias, TypeVar, Unpack, cast, overload

from instride import _arguments as arguments
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
from instride._processing.outputs import Outputs
from instride._processing.processor_kit import ProcessorKit
from instride._processing.running_processor import RunningProcessor, run_with_signals
from instride._record_deserializer import RecordDeserializer
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
        """The handler is called with each record: a plain one in a thread, a coroutine function on an event loop.

        An error that it raises fails the record. topics: those to subscribe to. key_deserializer, value_deserializer:
        called with the bytes (and a context, if they take one) where the handler is called; null stays None. What they
        raise fails the record as a handler's error does. All other arguments are options with a default:

        - order (text, "key"): "key": records of one key of a partition one after the other, those without a key in no
          order; "partition": all records of a partition; "none".
        - concurrency (int, 32): the most calls of the handler at a time, for all partitions together.
          concurrency_per_partition (int): the same for one partition.
        - retry (Retry): which failures are tried again, and when; by default none.
        - on_failure (text): what becomes of a record that is not tried again. "stop" is the default: the processor
          stops, and raises the error. "skip". "dead-letter" is the default where dead_letters is given.
        - dead_letters (text): the topic of the dead letters. output (text): the topic of what the handler returns, an
          OutputRecord, a list of them, or None; the attempt has ended when they are acknowledged.
        - produce (function): writes dead letters and outputs. It returns once they are acknowledged, or returns a
          future or an awaitable that ends then. By default confluent-kafka, with the consumer's settings of the
          connection.
        - breaker (CircuitBreaker): pauses the processor while a service of the handler is down; by default none.
        - store (DatabaseStore; for coroutine functions AsyncDatabaseStore): what the handler writes and its offset are
          one transaction of a database. It needs order="partition", which is then the default. Not with processes.
        - lifespan (function): returns a context manager, for coroutine functions an asynchronous one, which is entered
          before the first record and left after the last. worker_lifespan: the same for each thread, or for each of
          processes; not for coroutine functions. Handlers see the context variables that these set.
        - middleware (functions): each gets a record and what comes next, which it calls (or awaits). The first is the
          outermost.
        - processes (int): plain handlers are called in so many processes, not in threads; concurrency bounds the
          records in them. The handler must be a function of a module.
        - timeout (seconds): of one attempt; then it fails with TimeoutError. A coroutine is cancelled, a process is
          killed. A thread cannot be interrupted: the attempt fails when its handler ends, and the handler sees
          current_attempt().cancelled.
        - max_records (int, 10,000), max_bytes (int, 64 MiB): how much may be queued or in progress. A partition is
          paused when its queue takes half of the space that is left.
        - commit_interval (seconds, 1): between commits. commit_records (int, 10,000): so many finished records are
          committed before the interval is over. drain_timeout (seconds, 30): a stop waits so long for what is
          in progress.
        - on_deadline (text, "wait"): what happens when the deadline of a hand-over comes. "wait": the processor waits
          for the records in progress until the partition is lost. "cancel": it abandons them a second before, commits
          the finished ones and hands over.
        - stuck_after (seconds, 60): a record that is in progress for so long is named in the log and in
          `RunningProcessor.health`.
        - max_metadata (characters, 4,000, at most 32,767): the length of a commit's metadata, which remember what is
          finished out of order; the broker's offset.metadata.max.bytes bounds them.
        - max_batch (int): the handler takes a list of records of one partition, in order, at most so many. It is called
          when there are so many, or when the first has waited for max_wait (seconds, 1). concurrency counts calls.
        - batch_format (text, "list"): with "arrow" the handler takes a pyarrow.Table with the columns of
          `Consumer.poll_arrow`, keys and values as bytes; there are no deserializers then.

        Raises ConfigError, TypeError or ValueError for a wrong or contradictory value. Does no I/O; any thread may call
        it.
        """
        if misplaced:
            example = arguments.as_topic(misplaced[0])
            raise TypeError(f"Processor takes its topics and options by name: topics=[{example}]")
        reader = RecordDeserializer(key_deserializer, value_deserializer)
        object.__setattr__(self, "_definition", definition(handler, topics, reader, cast("AnyOptions", options)))

    def run(self, **settings: Unpack[ConsumerSettings]) -> None:
        """Run until it is stopped; blocks. In the main thread SIGTERM and SIGINT stop it, and a second one cancels.

        settings: a consumer's, see `ConsumerConfig`; group_id is required. Any thread may call it. A stop finishes what
        is in progress, commits it and leaves the group; then this returns. Raises what ended it: ConfigError, a fatal
        KafkaError, or the error of a record that failed for good, with a note that names the record. After a stop:
        DrainTimeoutError if records were still in progress after drain_timeout, DeadLettersUnwrittenError if dead
        letters could not be written.
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
