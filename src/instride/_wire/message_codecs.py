"""From requests and responses to bytes and back: messages by Kafka's schemas, what a codec is, a section for each API,
then the table of all.

Laws of messages, as plain dicts, by the schemas that kio has generated from Kafka's own
E1. Reading never uses kio's reader: a plan of our own readers is built once for each class, from its fields.
E2. A field that a version does not have is simply absent from the dict; the codec gives the default.
E3. Writing takes the superset of all versions' fields and leaves out what the version does not have. Whether
    leaving it out is right was decided before, when the version was chosen.
E4. Error codes are numbers, times are milliseconds.
E5. Of a dict there may be a million, each of some hundred bytes for ten that came: where that may be, the codec makes
    what it needs of each (`Made`), so that there is one at a time.
E6. What is made of a message takes twice its `most_bytes` at most, whatever it is; and it has as many elements at most
    as the request allows (`most_elements`). So neither the memory nor the work of a response depends on its broker.

Laws of codecs
1. A codec is stateless: request and version give bytes; bytes, version and request give the response.
2. It speaks every version of its range. What a request says and some version cannot is left out there,
   unless that would change the meaning: then `needs` excludes the version.
3. A partition that was requested and is not in the response has the error UNKNOWN_SERVER_ERROR, never a
   value that could be taken for a response. What the request did not name is ignored.
4. Every class of `api.Request` has exactly one codec.
5. The version chosen is the highest that broker and codec share and that can say what the request says.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib import metadata
from itertools import groupby
from types import MappingProxyType, NoneType
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, get_args, get_origin
from uuid import UUID

from instride._wire import api
from instride._wire.api import (
    NO_TOPIC_ID,
    ApiVersions,
    ApiVersionsResponse,
    Broker,
    CommittedOffset,
    DescribeGroup,
    DescribeGroupResponse,
    EpochEnd,
    Fetch,
    FindCoordinator,
    FindCoordinatorResponse,
    GroupMember,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    ListedOffset,
    ListOffsets,
    ListOffsetsResponse,
    Metadata,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResponse,
    OffsetToCommit,
    Partition,
    SyncGroup,
    SyncGroupResponse,
)
from instride._wire.fetch_codec import FETCH_VERSIONS, decode_fetch, encode_fetch
from instride._wire.reader import Reader, written_count, written_text
from instride._wire.sasl.messages import (
    SaslAuthenticate,
    SaslAuthenticateResponse,
    SaslHandshake,
    SaslHandshakeResponse,
)
from instride.errors import ConfigError, ProtocolError, TransportError, UnsupportedVersionError

__all__ = [
    "Fields",
    "load_schemas",
    "milliseconds",
    "read_request",
    "read_response",
    "write_request",
    "ANY_VERSION",
    "LARGE_BYTES",
    "SMALL_BYTES",
    "UNKNOWN_SERVER_ERROR",
    "Codec",
    "Needs",
    "all_topics_have_ids",
    "by_topic",
    "choose_version",
    "codec_of",
    "load_messages",
    "many_bytes",
    "message_codec",
    "software_version",
    "topic_keys",
    "topic_name",
]

# -- messages by their schemas

Fields: TypeAlias = dict[str, Any]
Read: TypeAlias = Callable[[Reader], Any]
Made: TypeAlias = Mapping[str, Callable[[Fields, Reader], Any]]
"""What becomes of each element of the array of this name, as soon as it is read; None: it is left out.

What is made takes `_MADE_BYTES` at most, besides its texts and byte strings. The numbers of an array are given to the
reader's memory by whoever keeps them.
"""

_MAX_INT32: Final = 2**31 - 1
_NO_TAGS: Final = b"\0"

# What Python needs for what is made of an element, for a dict of one, and for each of its fields: rather too much.
_MADE_BYTES: Final = 256
_DICT_BYTES: Final = 240
_FIELD_BYTES: Final = 48
_NUMBER_BYTES: Final = 40
# A replication factor is an INT16.
_MOST_NUMBERS: Final = 32767


class _Kio(NamedTuple):
    """What we use of kio. Importing it takes longer than all of instride: it is left to the first consumer."""

    request_schema: Callable[[int, int], type]
    response_schema: Callable[[int, int], type]
    writer: Callable[[Any], Callable[[Any, Any], None]]
    error: type[Exception]


@cache
def _kio() -> _Kio:
    from kio.index import load_request_schema, load_response_schema  # noqa: PLC0415
    from kio.serial import entity_writer  # noqa: PLC0415
    from kio.serial.errors import SerialError  # noqa: PLC0415

    return _Kio(
        request_schema=load_request_schema,
        response_schema=load_response_schema,
        writer=entity_writer,
        error=SerialError,
    )


def load_schemas(api_key: int, versions: Iterable[int]) -> None:
    """Import what the messages of these versions are made of."""
    for version in versions:
        _schemas(api_key, version)


@cache
def _schemas(api_key: int, version: int) -> tuple[type, type]:
    """Of a request and of its response: both, so that nothing is imported when that comes. Raises TransportError."""
    kio = _kio()
    try:
        return kio.request_schema(api_key, version), kio.response_schema(api_key, version)
    except (OSError, ImportError, MemoryError) as error:  # files or memory are used up: it may pass
        raise TransportError(f"what a message is made of cannot be imported: {error}") from error


# kafka type -> (reader, the fewest bytes it takes), for plain fields.
# How `struct` calls them.
_LETTERS: Final[Mapping[Read, str]] = {
    Reader.boolean: "?",
    Reader.int8: "b",
    Reader.int16: "h",
    Reader.uint16: "H",
    Reader.int32: "i",
    Reader.uint32: "I",
    Reader.int64: "q",
    Reader.float64: "d",
}

_FIXED: Final[Mapping[str, tuple[Read, int]]] = {
    "bool": (Reader.boolean, 1),
    "int8": (Reader.int8, 1),
    "int16": (Reader.int16, 2),
    "uint16": (Reader.uint16, 2),
    "int32": (Reader.int32, 4),
    "uint32": (Reader.uint32, 4),
    "int64": (Reader.int64, 8),
    "float64": (Reader.float64, 8),
    "uuid": (Reader.uuid, 16),
    "error_code": (Reader.int16, 2),
    "timedelta_i32": (Reader.int32, 4),
    "timedelta_i64": (Reader.int64, 8),
    "datetime_i64": (Reader.int64, 8),
}
# (kafka type, flexible, nullable) -> the same, for what has a length.
_SIZED: Final[Mapping[tuple[str, bool, bool], tuple[Read, int]]] = {
    ("string", False, False): (Reader.string, 2),
    ("string", False, True): (Reader.nullable_string, 2),
    ("string", True, False): (Reader.compact_string, 1),
    ("string", True, True): (Reader.compact_nullable_string, 1),
    ("bytes", False, False): (Reader.bytes_, 4),
    ("bytes", False, True): (Reader.nullable_bytes, 4),
    ("bytes", True, False): (Reader.compact_bytes, 1),
    ("bytes", True, True): (Reader.compact_nullable_bytes, 1),
}


def milliseconds(seconds: float) -> int:
    """What the wire says for a time in seconds: whole milliseconds that fit an INT32."""
    return round(min(max(seconds, 0.0) * 1000.0, _MAX_INT32))


class Bounds(NamedTuple):
    """Of what is made of a message (law E6). memory: bytes."""

    memory: int
    elements: int


_NO_BOUNDS: Final = Bounds(1 << 62, 1 << 62)


def read_response(
    body: bytes | bytearray | memoryview,
    api_key: int,
    version: int,
    made: Made = MappingProxyType({}),
    bounds: Bounds = _NO_BOUNDS,
) -> Fields:
    """The fields of a response's body. Raises ProtocolError where the bytes do not hold one."""
    return _read(_schemas(api_key, version)[1], _Entities(body, made, bounds))


def read_request(body: bytes | bytearray | memoryview, api_key: int, version: int) -> Fields:
    """The fields of a request's body: what a simulated broker reads."""
    return _read(_schemas(api_key, version)[0], _Entities(body, {}, _NO_BOUNDS))


def write_request(api_key: int, version: int, fields: Fields) -> bytes:
    """The body of a request; fields that the version does not have are left out.

    Times are in milliseconds. Raises ConfigError where a value does not fit its field, TransportError where the system
    has no files or memory left.
    """
    kio = _kio()
    schema: Any = _schemas(api_key, version)[0]
    buffer = io.BytesIO()
    try:
        kio.writer(schema)(buffer, _entity(schema, fields))
    except (kio.error, struct.error, ValueError, OverflowError) as error:
        message = f"a value does not fit into {schema.__name__} version {version}: {error}"
        raise ConfigError(message) from error
    return buffer.getvalue()


# What a schema says of a field


class _Shape(NamedTuple):
    """inner: the type of the value, or of an array's elements. nullable: that value or array may be null."""

    inner: Any
    is_array: bool
    nullable: bool

    @property
    def is_entity(self) -> bool:
        return dataclasses.is_dataclass(self.inner)


def _shape(field: dataclasses.Field[Any]) -> _Shape:
    kind: Any = field.type
    options = get_args(kind)
    nullable = NoneType in options
    if nullable:
        (kind,) = (option for option in options if option is not NoneType)
    is_array = get_origin(kind) is tuple
    return _Shape(get_args(kind)[0] if is_array else kind, is_array, nullable)


# Reading


class _Entities(Reader):
    """A reader that knows what is made of the elements of arrays."""

    __slots__ = ("made",)

    def __init__(self, data: bytes | bytearray | memoryview, made: Made, bounds: Bounds) -> None:
        super().__init__(data, memory=bounds.memory, elements=bounds.elements)
        self.made = made


_TOO_MUCH: Final = {
    "MetadataResponse": "; in a cluster of so many topics and partitions subscribe to topics by their names, "
    "and use no pattern and no list_topics (no setting lifts this bound)"
}


def _read(schema: Any, reader: _Entities) -> Fields:
    read, _ = _plan(schema)
    try:
        fields: Fields = read(reader)
    except ProtocolError as error:
        too_much = reader.memory < 0 or reader.elements < 0
        hint = _TOO_MUCH.get(schema.__name__, "") if too_much else ""
        raise ProtocolError(f"{schema.__name__} version {schema.__version__}: {error}{hint}") from None
    return fields


@functools.cache
def _plan(schema: Any) -> tuple[Read, int]:
    """The reader of an entity, and the fewest bytes that one takes."""
    plain: list[tuple[str, Read]] = []
    tagged: dict[int, Read] = {}
    names: dict[int, str] = {}
    flexible = bool(schema.__flexible__)
    smallest = 1 if flexible else 0
    for field in dataclasses.fields(schema):
        tag: int | None = field.metadata.get("tag")
        read, least = _field_plan(field, flexible=flexible)
        if tag is None:
            plain.append((field.name, read))
            smallest += least
        else:
            tagged[tag], names[tag] = read, field.name
    reader = _entity_reader(tuple(plain), tagged, names) if flexible else _legacy_entity_reader(tuple(plain))
    # Never 0, with which an array's count would be bounded by nothing (`Reader.array_count`).
    return reader, max(smallest, 1)


@dataclass(frozen=True, slots=True)
class _Run:
    """Fields that stand one behind the other. layout: of numbers, which are read at once; None: each is read alone."""

    names: tuple[str, ...]
    reads: tuple[Read, ...]
    layout: struct.Struct | None


def _runs(plan: tuple[tuple[str, Read], ...]) -> Iterator[_Run]:
    for are_numbers, part in groupby(plan, lambda field: field[1] in _LETTERS):
        names, reads = zip(*part, strict=True)
        layout = struct.Struct(">" + "".join(_LETTERS[read] for read in reads)) if are_numbers else None
        yield _Run(names, reads, layout)


def _legacy_entity_reader(plan: tuple[tuple[str, Read], ...]) -> Read:
    runs = tuple(_runs(plan))
    if len(runs) == 1 and runs[0].layout is not None:
        return _row_reader(runs[0], runs[0].layout)

    def read_entity(reader: Reader) -> Fields:
        fields: Fields = {}
        for run in runs:
            # Where too few bytes are left, one by one: so the error names the field that is cut off.
            if run.layout is not None and run.layout.size <= reader.remaining:
                fields.update(zip(run.names, reader.row(run.layout), strict=True))
            else:
                _read_one_by_one(run, reader, fields)
        return fields

    return read_entity


def _row_reader(run: _Run, layout: struct.Struct) -> Read:
    """Of an entity that has nothing but numbers: there may be thousands of them."""
    names, size = run.names, layout.size

    def read_entity(reader: Reader) -> Fields:
        if size <= reader.remaining:
            return dict(zip(names, reader.row(layout), strict=True))
        fields: Fields = {}
        _read_one_by_one(run, reader, fields)
        return fields

    return read_entity


def _read_one_by_one(run: _Run, reader: Reader, fields: Fields) -> None:
    """Where one cannot be read, the error names it."""
    name = ""
    try:
        for name, read in zip(run.names, run.reads, strict=True):
            fields[name] = read(reader)
    except ProtocolError as error:
        raise ProtocolError(f"{name}: {error}") from None


def _entity_reader(plan: tuple[tuple[str, Read], ...], tagged: dict[int, Read], names: dict[int, str]) -> Read:
    read_plain = _legacy_entity_reader(plan)

    def read_entity(reader: Reader) -> Fields:
        fields: Fields = read_plain(reader)
        if reader.next_is(_NO_TAGS):  # as nearly always
            return fields
        for tag, value in reader.tagged_fields(tagged).items():
            fields[names[tag]] = value
        return fields

    return read_entity


def _field_plan(field: dataclasses.Field[Any], *, flexible: bool) -> tuple[Read, int]:
    shape = _shape(field)
    # A tagged field is null by being absent.
    nullable = shape.nullable and "tag" not in field.metadata
    if shape.is_entity:
        read, smallest = _plan(shape.inner)
    else:
        # In an array, null is the array's, never its elements'.
        read, smallest = _primitive(
            field.metadata["kafka_type"], flexible=flexible, nullable=nullable and not shape.is_array
        )
    if shape.is_array:
        read_array: Callable[[Any, int], Any]
        if shape.is_entity:
            read_array = _entities_reader(
                field.name, read, _DICT_BYTES + _FIELD_BYTES * len(dataclasses.fields(shape.inner))
            )
        elif read is Reader.int32:
            read_array = _read_numbers
        else:
            read_array = _values_reader(read)
        return _array_reader(read_array, smallest, flexible=flexible, nullable=nullable), 1 if flexible else 4
    if shape.is_entity and nullable:
        return _nullable_reader(read), 1
    return read, smallest


def _primitive(kafka_type: str, *, flexible: bool, nullable: bool) -> tuple[Read, int]:
    if kafka_type in _FIXED:
        return _FIXED[kafka_type]
    return _SIZED["bytes" if kafka_type == "records" else kafka_type, flexible, nullable]


def _array_reader(read_elements: Callable[[Any, int], Any], smallest: int, *, flexible: bool, nullable: bool) -> Read:
    count_of = Reader.compact_array_count if flexible else Reader.array_count

    def read_array(reader: Reader) -> Any:
        count = count_of(reader, smallest)
        if count is not None:
            return read_elements(reader, count)
        if nullable:
            return None
        raise ProtocolError(f"an array before byte {reader.position} is null and must not be")

    return read_array


def _read_numbers(reader: Reader, count: int) -> tuple[int, ...]:
    if count > _MOST_NUMBERS:
        raise ProtocolError(f"an array before byte {reader.position} has {count} numbers")
    return reader.int32s(count)


def _values_reader(read: Read) -> Callable[[Reader, int], list[Any]]:
    def read_values(reader: Reader, count: int) -> list[Any]:
        reader.spend(_NUMBER_BYTES * reader.claim(count))
        return [read(reader) for _ in range(count)]

    return read_values


def _entities_reader(name: str, read: Read, nbytes: int) -> Callable[[_Entities, int], list[Any]]:
    """name: of the array. nbytes: of an element as a dict."""

    def read_entities(reader: _Entities, count: int) -> list[Any]:
        make = reader.made.get(name)
        reader.claim(count)
        if make is None:
            reader.spend(nbytes * count)
            return [read(reader) for _ in range(count)]
        kept = []
        for _ in range(count):
            memory = reader.memory
            each = make(read(reader), reader)
            if each is None:
                # Its texts and dicts are garbage already: only what is kept counts.
                reader.memory = memory
            else:
                reader.spend(_MADE_BYTES)
                kept.append(each)
        return kept

    return read_entities


def _nullable_reader(read: Read) -> Read:
    """A struct that may be null begins with a byte that says so (KIP-893)."""

    def read_nullable(reader: Reader) -> Any:
        return None if reader.int8() < 0 else read(reader)

    return read_nullable


# Writing


def _entity(schema: Any, values: Fields) -> Any:
    return schema(**{name: make(values[name]) for name, make in _makers(schema) if name in values})


@functools.cache
def _makers(schema: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """For each field of the class: from a plain value to what its constructor takes."""
    return tuple((field.name, _maker(field)) for field in dataclasses.fields(schema))


def _maker(field: dataclasses.Field[Any]) -> Callable[[Any], Any]:
    shape = _shape(field)
    if shape.is_entity and shape.is_array:
        return lambda items: None if items is None else tuple(_entity(shape.inner, item) for item in items)
    if shape.is_entity:
        return lambda values: None if values is None else _entity(shape.inner, values)
    if str(field.metadata["kafka_type"]).startswith("timedelta"):
        return lambda value: timedelta(milliseconds=value)
    return _unchanged


def _unchanged(value: Any) -> Any:
    return value


# -- what the codec of one API is made of

R = TypeVar("R")
A = TypeVar("A")

UNKNOWN_SERVER_ERROR: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The versions that can say what one request says. because: why, for the error message."""

    lowest: int = 0
    highest: int = 32767
    because: str = ""


ANY_VERSION: Final = Needs()


def _any_version(_: object) -> Needs:
    return ANY_VERSION


SMALL_BYTES: Final = 1 << 20
"""Of a response that names no partitions and no members."""
LARGE_BYTES: Final = 16 << 20
"""Of one that does: some hundred thousand of them."""


_FEW: Final = 1000
_MOST_MEMBERS: Final = 50_000
_MOST_DESCRIBED: Final = 200_000


def _few_bytes(_: object) -> int:
    return SMALL_BYTES


def _few_elements(_: object) -> int:
    return _FEW


def _members(_: object) -> int:
    """Of a group."""
    return _MOST_MEMBERS


def _as_they_are(_: object) -> Made:
    return {}


def _first(name: str, key: str, wanted: str) -> Made:
    """Of the array of this name the first that this key says to be wanted."""
    found: list[Fields] = []

    def make(fields: Fields, _: Reader) -> Fields | None:
        if found or fields[key] != wanted:
            return None
        found.append(fields)
        return fields

    return {name: make}


def _ours(found: list[Fields], name: str, group_id: str) -> Fields:
    """`_first`'s."""
    if found:
        return found[0]
    raise ProtocolError(f"the {name} response does not speak of the group {group_id!r}")


def _twice(partitions: Sized) -> int:
    """The most elements of a response that names these partitions, and their topics."""
    return _FEW + 2 * len(partitions)


def many_bytes(_: object) -> int:
    return LARGE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec(Generic[R, A]):
    """One API.

    lowest, highest: the versions we speak. flexible_from: the first with compact types and tagged headers.
    encode: a request's body. decode: the response in a body (raises ProtocolError, nothing else).
    needs: the versions that a request's content allows.
    most_bytes: of a response to this request, whatever the broker claims; what is made of it takes twice as many.
    """

    name: str
    api_key: int
    lowest: int
    highest: int
    flexible_from: int
    encode: Callable[[R, int], bytes]
    decode: Callable[[memoryview, int, R], A]
    needs: Callable[[R], Needs] = _any_version
    most_bytes: Callable[[R], int] = _few_bytes


def message_codec(
    *,
    name: str,
    api_key: int,
    versions: tuple[int, int],
    flexible_from: int,
    response: Callable[[Fields, R], A],
    fields: Callable[[R, int], Fields] | None = None,
    encode: Callable[[R, int], bytes] | None = None,
    needs: Callable[[R], Needs] = _any_version,
    most_bytes: Callable[[R], int] = _few_bytes,
    made: Callable[[R], Made] = _as_they_are,
    most_elements: Callable[[R], int] = _few_elements,
) -> Codec[R, A]:
    """The codec of an API whose messages are read and written by their schema.

    fields: the request's fields of all versions; encode: in their place, what writes its body out by hand.
    response: from the fields that a response has.
    made: of each element of its arrays. most_elements: of all its arrays together.
    """

    def by_schema(request: R, version: int) -> bytes:
        assert fields is not None, f"{name} has neither fields nor encode"
        return write_request(api_key, version, fields(request, version))

    def decode(body: memoryview, version: int, request: R) -> A:
        bounds = Bounds(2 * most_bytes(request), most_elements(request))
        return response(read_response(body, api_key, version, made(request), bounds), request)

    return Codec(
        name=name,
        api_key=api_key,
        lowest=versions[0],
        highest=versions[1],
        flexible_from=flexible_from,
        encode=by_schema if encode is None else encode,
        decode=decode,
        needs=needs,
        most_bytes=most_bytes,
    )


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Each topic's partitions, in the order given."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def topic_keys(name: str, ids: Mapping[str, UUID]) -> Fields:
    """What names a topic: its name for older versions, its id for newer ones."""
    return {"name": name, "topic_id": ids.get(name, NO_TOPIC_ID)}


def topic_name(topic: Fields, names: Mapping[UUID, str]) -> str | None:
    """The name of a response's topic, or None where it has an id that was not requested."""
    if "name" in topic:
        name: str | None = topic["name"]
        return name
    return names.get(topic["topic_id"])


def all_topics_have_ids(partitions: Iterable[Partition], ids: Mapping[str, UUID]) -> bool:
    return all(ids.get(topic, NO_TOPIC_ID) != NO_TOPIC_ID for topic in {topic for topic, _ in partitions})


# -- ApiVersions (key 18): which requests in which versions a broker speaks, and who is asking (KIP-511).


@functools.cache
def software_version() -> str:
    """Our version in the letters that brokers take: digits, letters, and ``-`` and ``.`` inside."""
    try:
        version = metadata.version("instride")
    except metadata.PackageNotFoundError:  # a source tree that was not installed
        return "unknown"
    return re.sub(r"[^a-zA-Z0-9.]", "-", version).strip("-.") or "unknown"


def _api_versions_fields(_request: ApiVersions, _version: int) -> Fields:
    return {"client_software_name": "instride", "client_software_version": software_version()}


def _api_versions_response(fields: Fields, _request: ApiVersions) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error=fields["error_code"],
        versions={key["api_key"]: (key["min_version"], key["max_version"]) for key in fields["api_keys"]},
    )


API_VERSIONS = message_codec(
    name="ApiVersions",
    api_key=18,
    versions=(0, 4),
    flexible_from=3,
    fields=_api_versions_fields,
    response=_api_versions_response,
)


# -- SaslHandshake (key 17): which mechanism. Version 0, after which bare bytes follow, is not spoken.


def _sasl_handshake_fields(request: SaslHandshake, _version: int) -> Fields:
    return {"mechanism": request.mechanism}


def _sasl_handshake_response(fields: Fields, _request: SaslHandshake) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error=fields["error_code"], mechanisms=tuple(fields["mechanisms"]))


SASL_HANDSHAKE = message_codec(
    name="SaslHandshake",
    api_key=17,
    versions=(1, 1),
    # Kafka's schema has no flexible version of it.
    flexible_from=99,
    fields=_sasl_handshake_fields,
    response=_sasl_handshake_response,
)


# -- SaslAuthenticate (key 36): one message of a mechanism each way.


def _sasl_authenticate_fields(request: SaslAuthenticate, _version: int) -> Fields:
    return {"auth_bytes": request.auth_bytes}


def _sasl_authenticate_response(fields: Fields, _request: SaslAuthenticate) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error=fields["error_code"],
        error_message=fields["error_message"] or "",
        auth_bytes=bytes(fields["auth_bytes"]),
        session_lifetime=max(0, fields.get("session_lifetime", 0)) / 1000.0,
    )


SASL_AUTHENTICATE = message_codec(
    name="SaslAuthenticate",
    api_key=36,
    versions=(0, 2),
    flexible_from=2,
    fields=_sasl_authenticate_fields,
    response=_sasl_authenticate_response,
)


# -- Metadata (key 3): brokers, and topics with their partitions and leaders.


def _metadata_needs(request: Metadata) -> Needs:
    # Before version 4 a broker creates what is requested; before version 1 an empty list means all.
    if request.allow_auto_topic_creation:
        return Needs(lowest=1)
    return Needs(lowest=4, because="older versions would create the topics that are requested")


def _metadata_fields(request: Metadata, _version: int) -> Fields:
    topics = request.topics
    return {
        "topics": None if topics is None else [{"name": name, "topic_id": NO_TOPIC_ID} for name in topics],
        "allow_auto_topic_creation": request.allow_auto_topic_creation,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def _metadata_response(fields: Fields, _request: Metadata) -> MetadataResponse:
    return MetadataResponse(
        brokers=tuple(fields["brokers"]),
        topics=tuple(fields["topics"]),
        cluster_id=fields.get("cluster_id"),
        controller_id=fields["controller_id"],
        error=fields.get("error_code", 0),
    )


def _metadata_made(request: Metadata) -> Made:
    """Topics and partitions as they come. A topic that the request does not name is left out."""
    names = None if request.topics is None else frozenset(request.topics)
    # Where thousands have the same replicas they share them.
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}

    def topic(fields: Fields, _: Reader) -> MetadataTopic | None:
        # It has no name only if it was requested by id, which we do not do.
        named = fields["name"] is not None and (names is None or fields["name"] in names)
        return _metadata_topic(fields) if named else None

    def replicas(nodes: tuple[int, ...], reader: Reader) -> tuple[int, ...]:
        if nodes not in shared:
            reader.spend(_DICT_BYTES + _NUMBER_BYTES * len(nodes))
            shared[nodes] = nodes
        return shared[nodes]

    def partition(fields: Fields, reader: Reader) -> MetadataPartition:
        return MetadataPartition(
            partition=fields["partition_index"],
            error=fields["error_code"],
            leader=fields["leader_id"],
            leader_epoch=fields.get("leader_epoch", -1),
            replicas=replicas(fields["replica_nodes"], reader),
            in_sync_replicas=replicas(fields["isr_nodes"], reader),
            offline_replicas=replicas(fields.get("offline_replicas", ()), reader),
        )

    return {"brokers": lambda fields, _: _metadata_broker(fields), "topics": topic, "partitions": partition}


def _most_described(_: Metadata) -> int:
    return _MOST_DESCRIBED


def _metadata_broker(fields: Fields) -> Broker:
    return Broker(node_id=fields["node_id"], host=fields["host"], port=fields["port"], rack=fields["rack"])


def _metadata_topic(fields: Fields) -> MetadataTopic:
    return MetadataTopic(
        name=fields["name"],
        error=fields["error_code"],
        topic_id=fields.get("topic_id", NO_TOPIC_ID),
        is_internal=fields["is_internal"],
        partitions=tuple(fields["partitions"]),
    )


METADATA = message_codec(
    most_bytes=many_bytes,
    name="Metadata",
    api_key=3,
    versions=(1, 13),
    flexible_from=9,
    fields=_metadata_fields,
    response=_metadata_response,
    needs=_metadata_needs,
    made=_metadata_made,
    most_elements=_most_described,
)


# -- FindCoordinator (key 10): the broker that keeps a group. Version 4 and later ask for several at once.


_FIND_COORDINATOR_KEY_TYPE_GROUP: Final = 0


def _find_coordinator_fields(request: FindCoordinator, _version: int) -> Fields:
    return {
        "key": request.group_id,
        "coordinator_keys": (request.group_id,),
        "key_type": _FIND_COORDINATOR_KEY_TYPE_GROUP,
    }


def _find_coordinator_response(fields: Fields, request: FindCoordinator) -> FindCoordinatorResponse:
    found = _ours(fields["coordinators"], "FindCoordinator", request.group_id) if "coordinators" in fields else fields
    return FindCoordinatorResponse(
        error=found["error_code"],
        error_message=found.get("error_message"),
        node_id=found["node_id"],
        host=found["host"],
        port=found["port"],
    )


FIND_COORDINATOR = message_codec(
    name="FindCoordinator",
    api_key=10,
    versions=(0, 6),
    flexible_from=3,
    fields=_find_coordinator_fields,
    response=_find_coordinator_response,
    made=lambda request: _first("coordinators", "key", request.group_id),
)


# -- JoinGroup (key 11): enter a group, or its next generation.


# Brokers refuse longer ones (KIP-800).
_JOIN_GROUP_MAX_REASON: Final = 255


def _join_group_needs(request: JoinGroup) -> Needs:
    if request.group_instance_id is None:
        return ANY_VERSION
    # KIP-345. In an older one it would be a dynamic member, and leave another ghost with every restart.
    return Needs(lowest=5, because="group_instance_id is set (static membership)")


def _join_group_fields(request: JoinGroup, _version: int) -> Fields:
    return {
        "group_id": request.group_id,
        "session_timeout": milliseconds(request.session_timeout),
        "rebalance_timeout": milliseconds(request.rebalance_timeout),
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "protocol_type": request.protocol_type,
        "protocols": [{"name": each.name, "metadata": each.metadata} for each in request.protocols],
        "reason": None if request.reason is None else request.reason[:_JOIN_GROUP_MAX_REASON],
    }


def _join_group_response(fields: Fields, _request: JoinGroup) -> JoinGroupResponse:
    return JoinGroupResponse(
        error=fields["error_code"],
        generation=fields["generation_id"],
        protocol_type=fields.get("protocol_type"),
        protocol=fields["protocol_name"],
        leader=fields["leader"],
        # KIP-814: a static leader that came back, and must not assign anew.
        skip_assignment=fields.get("skip_assignment", False),
        member_id=fields["member_id"],
        members=tuple(fields["members"]),
    )


def _join_group_member(fields: Fields, _: Reader) -> GroupMember:
    return GroupMember(
        member_id=fields["member_id"],
        metadata=fields["metadata"],
        group_instance_id=fields.get("group_instance_id"),
    )


JOIN_GROUP = message_codec(
    most_bytes=many_bytes,
    name="JoinGroup",
    api_key=11,
    versions=(0, 9),
    flexible_from=6,
    fields=_join_group_fields,
    response=_join_group_response,
    needs=_join_group_needs,
    made=lambda _: {"members": _join_group_member},
    most_elements=_members,
)


# -- SyncGroup (key 14): hand in the assignment as the leader, take one's own as a member.


def _sync_group_needs(request: SyncGroup) -> Needs:
    if request.group_instance_id is None:
        return ANY_VERSION
    return Needs(lowest=3, because="group_instance_id is set (static membership)")


def _sync_group_fields(request: SyncGroup, _version: int) -> Fields:
    return {
        "group_id": request.group_id,
        "generation_id": request.generation,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "protocol_type": request.protocol_type,
        "protocol_name": request.protocol,
        "assignments": [
            {"member_id": member_id, "assignment": assignment}
            for member_id, assignment in sorted(request.assignments.items())
        ],
    }


def _sync_group_response(fields: Fields, _request: SyncGroup) -> SyncGroupResponse:
    return SyncGroupResponse(error=fields["error_code"], assignment=fields["assignment"])


SYNC_GROUP = message_codec(
    most_bytes=many_bytes,
    name="SyncGroup",
    api_key=14,
    versions=(0, 5),
    flexible_from=4,
    fields=_sync_group_fields,
    response=_sync_group_response,
    needs=_sync_group_needs,
)


# -- Heartbeat (key 12): this member lives.


def _heartbeat_needs(request: Heartbeat) -> Needs:
    if request.group_instance_id is None:
        return ANY_VERSION
    return Needs(lowest=3, because="group_instance_id is set (static membership)")


def _heartbeat_fields(request: Heartbeat, _version: int) -> Fields:
    return {
        "group_id": request.group_id,
        "generation_id": request.generation,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
    }


def _heartbeat_response(fields: Fields, _request: Heartbeat) -> HeartbeatResponse:
    return HeartbeatResponse(error=fields["error_code"], throttle_time=fields.get("throttle_time", 0) / 1000)


HEARTBEAT = message_codec(
    name="Heartbeat",
    api_key=12,
    versions=(0, 4),
    flexible_from=4,
    fields=_heartbeat_fields,
    response=_heartbeat_response,
    needs=_heartbeat_needs,
)


# -- LeaveGroup (key 13): give up one's membership. Version 3 and later take several members at once.


_LEAVE_GROUP_MAX_REASON: Final = 255


def _leave_group_needs(request: LeaveGroup) -> Needs:
    if request.group_instance_id is None:
        return ANY_VERSION
    return Needs(lowest=3, because="group_instance_id is set (static membership)")


def _leave_group_fields(request: LeaveGroup, _version: int) -> Fields:
    member = {
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "reason": None if request.reason is None else request.reason[:_LEAVE_GROUP_MAX_REASON],
    }
    return {"group_id": request.group_id, "member_id": request.member_id, "members": [member]}


def _leave_group_response(fields: Fields, _request: LeaveGroup) -> LeaveGroupResponse:
    # We name one member, so any code in the list is ours.
    codes = [fields["error_code"], *(member["error_code"] for member in fields.get("members", ()))]
    return LeaveGroupResponse(error=next((code for code in codes if code), 0))


LEAVE_GROUP = message_codec(
    name="LeaveGroup",
    api_key=13,
    versions=(0, 5),
    flexible_from=4,
    fields=_leave_group_fields,
    response=_leave_group_response,
    needs=_leave_group_needs,
)


# -- DescribeGroups (key 15): what a group is. We ask for one.


def _describe_groups_fields(request: DescribeGroup, _version: int) -> Fields:
    return {"groups": (request.group_id,), "include_authorized_operations": False}


def _describe_groups_response(fields: Fields, request: DescribeGroup) -> DescribeGroupResponse:
    group = _ours(fields["groups"], "DescribeGroups", request.group_id)
    return DescribeGroupResponse(
        error=group["error_code"],
        protocol_type=group["protocol_type"],
        protocol=group["protocol_data"],
        clients=tuple(group["members"]),
    )


def _describe_groups_made(request: DescribeGroup) -> Made:
    return {**_first("groups", "group_id", request.group_id), "members": lambda fields, _: fields["client_id"]}


DESCRIBE_GROUPS = message_codec(
    most_bytes=many_bytes,
    name="DescribeGroups",
    api_key=15,
    versions=(0, 6),
    flexible_from=5,
    fields=_describe_groups_fields,
    response=_describe_groups_response,
    made=_describe_groups_made,
    most_elements=_members,
)


# -- OffsetCommit (key 8): store a group's offsets. Version 10 and later name topics by id.


_OFFSET_COMMIT_BROKERS_RETENTION: Final = -1


def _offset_commit_needs(request: OffsetCommit) -> Needs:
    static = request.group_instance_id is not None
    named = not all_topics_have_ids(request.offsets, request.topic_ids)
    reasons = ["group_instance_id is set (static membership)"] if static else []
    reasons += ["some topic ids are unknown"] if named else []
    return Needs(lowest=7 if static else 0, highest=9 if named else 32767, because=", ".join(reasons))


def _offset_commit_fields(request: OffsetCommit, _version: int) -> Fields:
    return {
        "group_id": request.group_id,
        "generation_id_or_member_epoch": request.generation,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "retention_time": _OFFSET_COMMIT_BROKERS_RETENTION,
        "topics": [
            topic_keys(topic, request.topic_ids)
            | {"partitions": [_committed_partition(number, request.offsets[topic, number]) for number in partitions]}
            for topic, partitions in by_topic(request.offsets).items()
        ],
    }


def _committed_partition(number: int, commit: OffsetToCommit) -> Fields:
    return {
        "partition_index": number,
        "committed_offset": commit.offset,
        "committed_leader_epoch": commit.leader_epoch,
        "committed_metadata": commit.metadata,
    }


def _offset_commit_response(fields: Fields, request: OffsetCommit) -> OffsetCommitResponse:
    errors = dict.fromkeys(request.offsets, UNKNOWN_SERVER_ERROR)
    names = {topic_id: name for name, topic_id in request.topic_ids.items()}
    for topic in fields["topics"]:
        name = topic_name(topic, names)
        for partition, error in topic["partitions"]:
            if name is not None and (name, partition) in errors:
                errors[name, partition] = error
    return OffsetCommitResponse(errors=errors)


OFFSET_COMMIT = message_codec(
    most_bytes=many_bytes,
    name="OffsetCommit",
    api_key=8,
    # Version 0 writes to ZooKeeper, version 1 wants a timestamp of each partition.
    versions=(2, 10),
    flexible_from=8,
    fields=_offset_commit_fields,
    response=_offset_commit_response,
    needs=_offset_commit_needs,
    made=lambda _: {"partitions": lambda fields, _: (fields["partition_index"], fields["error_code"])},
    most_elements=lambda request: _twice(request.offsets),
)


# -- OffsetFetch (key 9): a group's committed offsets. Version 8 and later ask for several groups, 10 by id.
# `require_stable` is left out before version 7: such brokers cannot wait for transactions (KIP-447).


def _offset_fetch_needs(request: OffsetFetch) -> Needs:
    if all_topics_have_ids(request.partitions, request.topic_ids):
        return ANY_VERSION
    return Needs(highest=9, because="some topic ids are unknown")


def _offset_fetch_fields(request: OffsetFetch, _version: int) -> Fields:
    topics = [
        topic_keys(topic, request.topic_ids) | {"partition_indexes": tuple(partitions)}
        for topic, partitions in by_topic(request.partitions).items()
    ]
    # The member id and epoch of version 9 are for the protocol of KIP-848.
    group = {"group_id": request.group_id, "member_id": None, "member_epoch": -1, "topics": topics}
    return group | {"groups": [group], "require_stable": request.require_stable}


def _offset_fetch_response(fields: Fields, request: OffsetFetch) -> OffsetFetchResponse:
    group = _ours(fields["groups"], "OffsetFetch", request.group_id) if "groups" in fields else fields
    offsets = dict.fromkeys(request.partitions, CommittedOffset(error=UNKNOWN_SERVER_ERROR))
    names = {topic_id: name for name, topic_id in request.topic_ids.items()}
    for topic in group["topics"]:
        name = topic_name(topic, names)
        for partition, committed in topic["partitions"]:
            if name is not None and (name, partition) in offsets:
                offsets[name, partition] = committed
    # Version 1 has no code of the group: it says the same of each partition.
    return OffsetFetchResponse(error=group.get("error_code", 0), offsets=offsets)


def _offset_fetch_committed(fields: Fields, _: Reader) -> tuple[int, CommittedOffset]:
    return fields["partition_index"], CommittedOffset(
        offset=fields["committed_offset"],
        leader_epoch=fields.get("committed_leader_epoch", -1),
        metadata=fields["metadata"] or "",
        error=fields["error_code"],
    )


def _offset_fetch_made(request: OffsetFetch) -> Made:
    return {**_first("groups", "group_id", request.group_id), "partitions": _offset_fetch_committed}


OFFSET_FETCH = message_codec(
    most_bytes=many_bytes,
    name="OffsetFetch",
    api_key=9,
    # Version 0 reads from ZooKeeper, where no group of ours has anything.
    versions=(1, 10),
    flexible_from=6,
    fields=_offset_fetch_fields,
    response=_offset_fetch_response,
    needs=_offset_fetch_needs,
    made=_offset_fetch_made,
    most_elements=lambda request: _twice(request.partitions),
)


# -- ListOffsets (key 2): the offset at a time, or at either end of a partition.


_LIST_OFFSETS: Final = 2
_LIST_OFFSETS_CONSUMER: Final = b"\xff\xff\xff\xff"  # where followers write their replica id
_LIST_OFFSETS_ISOLATION_FROM: Final = 2
_LIST_OFFSETS_EPOCH_FROM: Final = 4
_LIST_OFFSETS_COMPACT_FROM: Final = 6
_LIST_OFFSETS_TIMEOUT_FROM: Final = 10
# How long a broker may look in remote storage (version 10 and later): as long as a request of ours lives.
_LIST_OFFSETS_REMOTE_TIMEOUT_MS: Final = 30_000
# "Timestamps" that came later: of the greatest time, first local, last tiered, first not tiered yet.
_LIST_OFFSETS_LOWEST_FOR: Final[Mapping[int, int]] = {-3: 7, -4: 8, -5: 9, -6: 11}


def _list_offsets_needs(request: ListOffsets) -> Needs:
    lowest = max((_LIST_OFFSETS_LOWEST_FOR.get(at, 1) for at in request.timestamps.values()), default=1)
    if lowest > 1:
        return Needs(lowest=lowest, because="a special timestamp")
    if request.read_committed:
        return Needs(lowest=2, because="isolation level read_committed")
    return Needs(lowest=1)


_LIST_OFFSETS_ROW_1: Final = struct.Struct(">iq")
_LIST_OFFSETS_ROW_4: Final = struct.Struct(">iiq")


def _list_offsets_encode(request: ListOffsets, version: int) -> bytes:
    """Written out by hand: a `RangeConsumer` of a thousand partitions sends a thousand of them ten times a second.

    Raises ConfigError where a value does not fit its field, TransportError where files or memory are used up.
    """
    _schemas(_LIST_OFFSETS, version)  # so that nothing is imported when the response comes
    try:
        return _list_offsets_written(request, version)
    except (struct.error, ValueError) as error:
        raise ConfigError(f"a value does not fit into ListOffsets version {version}: {error}") from error


def _list_offsets_written(request: ListOffsets, version: int) -> bytes:
    compact, epochs, timestamps = version >= _LIST_OFFSETS_COMPACT_FROM, request.leader_epochs, request.timestamps
    tags = _NO_TAGS if compact else b""
    topics: dict[str, list[bytes]] = {}
    for place, timestamp in timestamps.items():
        topic, number = place
        if version >= _LIST_OFFSETS_EPOCH_FROM:
            row = _LIST_OFFSETS_ROW_4.pack(number, epochs.get(place, -1), timestamp)
        else:
            row = _LIST_OFFSETS_ROW_1.pack(number, timestamp)
        topics.setdefault(topic, []).append(row + tags)
    out = bytearray(_LIST_OFFSETS_CONSUMER)
    if version >= _LIST_OFFSETS_ISOLATION_FROM:
        out += b"\1" if request.read_committed else b"\0"
    out += written_count(len(topics), compact=compact)
    for topic, rows in topics.items():
        out += written_text(topic, compact=compact) + written_count(len(rows), compact=compact)
        out += b"".join(rows) + tags
    if version >= _LIST_OFFSETS_TIMEOUT_FROM:
        out += _LIST_OFFSETS_REMOTE_TIMEOUT_MS.to_bytes(4, "big")
    return bytes(out + tags)


def _list_offsets_response(fields: Fields, request: ListOffsets) -> ListOffsetsResponse:
    offsets = dict.fromkeys(request.timestamps, ListedOffset(error=UNKNOWN_SERVER_ERROR))
    for topic in fields["topics"]:
        for partition, listed in topic["partitions"]:
            if (topic["name"], partition) in offsets:
                offsets[topic["name"], partition] = listed
    return ListOffsetsResponse(offsets=offsets)


def _list_offsets_listed(fields: Fields, _: Reader) -> tuple[int, ListedOffset]:
    return fields["partition_index"], ListedOffset(
        error=fields["error_code"],
        offset=fields["offset"],
        timestamp=fields["timestamp"],
        leader_epoch=fields.get("leader_epoch", -1),
    )


LIST_OFFSETS = message_codec(
    most_bytes=many_bytes,
    name="ListOffsets",
    api_key=_LIST_OFFSETS,
    # Version 0 responds with a list of the log's segments, in place of one offset.
    versions=(1, 11),
    flexible_from=_LIST_OFFSETS_COMPACT_FROM,
    encode=_list_offsets_encode,
    response=_list_offsets_response,
    needs=_list_offsets_needs,
    made=lambda _: {"partitions": _list_offsets_listed},
    most_elements=lambda request: _twice(request.timestamps),
)


# -- OffsetForLeaderEpoch (key 23): where a leader's epoch ends in the log, to find out whether it was cut (KIP-320).
# From version 3 on it needs the right to describe the topic only; older ones are for brokers among each other.


_OFFSET_FOR_LEADER_EPOCH_CONSUMER: Final = -1


def _offset_for_leader_epoch_fields(request: OffsetForLeaderEpoch, _version: int) -> Fields:
    return {
        "replica_id": _OFFSET_FOR_LEADER_EPOCH_CONSUMER,
        "topics": [
            {
                "topic": topic,
                "partitions": [_epoch_partition(request, topic, number) for number in partitions],
            }
            for topic, partitions in by_topic(request.epochs).items()
        ],
    }


def _epoch_partition(request: OffsetForLeaderEpoch, topic: str, number: int) -> Fields:
    return {
        "partition": number,
        "current_leader_epoch": request.leader_epochs.get((topic, number), -1),
        "leader_epoch": request.epochs[topic, number],
    }


def _offset_for_leader_epoch_response(fields: Fields, request: OffsetForLeaderEpoch) -> OffsetForLeaderEpochResponse:
    ends = dict.fromkeys(request.epochs, EpochEnd(error=UNKNOWN_SERVER_ERROR))
    for topic in fields["topics"]:
        for partition, end in topic["partitions"]:
            if (topic["topic"], partition) in ends:
                ends[topic["topic"], partition] = end
    return OffsetForLeaderEpochResponse(ends=ends)


def _epoch_end(fields: Fields, _: Reader) -> tuple[int, EpochEnd]:
    return fields["partition"], EpochEnd(
        error=fields["error_code"], leader_epoch=fields["leader_epoch"], end_offset=fields["end_offset"]
    )


OFFSET_FOR_LEADER_EPOCH = message_codec(
    most_bytes=many_bytes,
    name="OffsetForLeaderEpoch",
    api_key=23,
    versions=(3, 4),
    flexible_from=4,
    fields=_offset_for_leader_epoch_fields,
    response=_offset_for_leader_epoch_response,
    made=lambda _: {"partitions": _epoch_end},
    most_elements=lambda request: _twice(request.epochs),
)


# -- Fetch (key 1): the hot path. Its messages have a codec of their own, `_wire.fetch_codec`.


_FETCH_LAST_WITH_NAMES: Final = 12


def _fetch_needs(request: Fetch) -> Needs:
    wanted = (*request.partitions, *request.forgotten)
    # A request has one version: a single topic without an id makes all go by name.
    if request.named or any(each.topic_id.int == NO_TOPIC_ID.int for each in wanted):
        return Needs(highest=_FETCH_LAST_WITH_NAMES, because="some topic ids are unknown")
    return ANY_VERSION


def _fetch_most_bytes(request: Fetch) -> int:
    """What was requested, or one larger batch (a broker gives that whole, KIP-74), and all that is not records."""
    most = max(request.max_bytes, request.max_decompressed_bytes) + LARGE_BYTES
    return min(most, request.most_bytes) if request.most_bytes else most


FETCH = Codec(
    name="Fetch",
    api_key=1,
    lowest=FETCH_VERSIONS[0],
    highest=FETCH_VERSIONS[1],
    flexible_from=12,
    encode=encode_fetch,
    decode=decode_fetch,
    needs=_fetch_needs,
    most_bytes=_fetch_most_bytes,
)


# -- the table

CODECS: Final[dict[type[api.Request], Codec[Any, Any]]] = {
    api.ApiVersions: API_VERSIONS,
    api.Metadata: METADATA,
    api.FindCoordinator: FIND_COORDINATOR,
    api.JoinGroup: JOIN_GROUP,
    api.SyncGroup: SYNC_GROUP,
    api.Heartbeat: HEARTBEAT,
    api.LeaveGroup: LEAVE_GROUP,
    api.DescribeGroup: DESCRIBE_GROUPS,
    api.OffsetCommit: OFFSET_COMMIT,
    api.OffsetFetch: OFFSET_FETCH,
    api.ListOffsets: LIST_OFFSETS,
    api.Fetch: FETCH,
    api.OffsetForLeaderEpoch: OFFSET_FOR_LEADER_EPOCH,
    SaslHandshake: SASL_HANDSHAKE,
    SaslAuthenticate: SASL_AUTHENTICATE,
}


def codec_of(kind: type[api.Request]) -> Codec[Any, Any]:
    """The codec of a request class."""
    return CODECS[kind]


def load_messages() -> None:
    """Import what messages are made of: of the first two on a connection every version, of others the newest.

    It takes tenths of a second where no bytecode is cached, once in a process: not within a call's timeout. And later
    the system may have no files left.
    """
    software_version()
    for codec in CODECS.values():
        if codec is not FETCH:  # it is written by hand
            lowest = codec.lowest if codec in (API_VERSIONS, METADATA) else codec.highest
            load_schemas(codec.api_key, range(lowest, codec.highest + 1))


def choose_version(request: api.Request, broker_range: tuple[int, int] | None) -> int:
    """The version in which to send `request` to a broker that speaks `broker_range` of its API.

    broker_range: (lowest, highest), or None where the broker does not have the API.
    Raises UnsupportedVersionError where no version will do.
    """
    codec = codec_of(type(request))
    if broker_range is None:
        raise UnsupportedVersionError(f"the broker does not know the request {codec.name}")
    needs = codec.needs(request)
    lowest = max(codec.lowest, broker_range[0], needs.lowest)
    highest = min(codec.highest, broker_range[1], needs.highest)
    if lowest <= highest:
        return highest
    raise UnsupportedVersionError(_no_common_version(codec, broker_range, needs))


def _no_common_version(codec: Codec[Any, Any], broker_range: tuple[int, int], needs: Needs) -> str:
    text = (
        f"no common version of {codec.name}: the broker speaks {broker_range[0]} to {broker_range[1]},"
        f" instride {codec.lowest} to {codec.highest}"
    )
    if not needs.because:
        return text
    lowest, highest = max(codec.lowest, needs.lowest), min(codec.highest, needs.highest)
    return f"{text}, of which this request can use {lowest} to {highest} ({needs.because})"
