"""Messages as plain dicts, read and written by the schemas that kio has generated from Kafka's own.

Laws
1. Reading never uses kio's reader: a plan of our own readers is built once for each class, from its fields.
2. A field that a version does not have is simply absent from the dict; the codec gives the default.
3. Writing takes the superset of all versions' fields and leaves out what the version does not have. Whether
   leaving it out is right was decided before, when the version was chosen.
4. Error codes are numbers, times are milliseconds.
5. Of a dict there may be a million, each of some hundred bytes for ten that came: where that may be, the codec makes
   what it needs of each (`Made`), so that there is one at a time.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import cache
from types import MappingProxyType, NoneType
from typing import Any, Final, NamedTuple, TypeAlias, get_args, get_origin

from instride._wire.reader import Reader
from instride.errors import ConfigError, ProtocolError, TransportError

__all__ = ["Fields", "Made", "load_schemas", "milliseconds", "read_request", "read_response", "write_request"]

Fields: TypeAlias = dict[str, Any]
Read: TypeAlias = Callable[[Reader], Any]
Made: TypeAlias = Mapping[str, Callable[[Fields], Any]]
"""What becomes of each element of the array of this name, as soon as it is read; None: it is left out."""

_MAX_INT32: Final = 2**31 - 1


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


def read_response(
    body: bytes | bytearray | memoryview, api_key: int, version: int, made: Made = MappingProxyType({})
) -> Fields:
    """The fields of a response's body. Raises ProtocolError where the bytes do not hold one."""
    return _read(_schemas(api_key, version)[1], body, made)


def read_request(body: bytes | bytearray | memoryview, api_key: int, version: int) -> Fields:
    """The fields of a request's body: what a simulated broker reads."""
    return _read(_schemas(api_key, version)[0], body, {})


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

    def __init__(self, data: bytes | bytearray | memoryview, made: Made) -> None:
        super().__init__(data)
        self.made = made


def _read(schema: Any, body: bytes | bytearray | memoryview, made: Made) -> Fields:
    read, _ = _plan(schema)
    try:
        fields: Fields = read(_Entities(body, made))
    except ProtocolError as error:
        raise ProtocolError(f"{schema.__name__} version {schema.__version__}: {error}") from None
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
    return reader, max(smallest, 1)


def _legacy_entity_reader(plan: tuple[tuple[str, Read], ...]) -> Read:
    def read_entity(reader: Reader) -> Fields:
        fields: Fields = {}
        name = ""
        try:
            for name, read in plan:
                fields[name] = read(reader)
        except ProtocolError as error:
            raise ProtocolError(f"{name}: {error}") from None
        return fields

    return read_entity


def _entity_reader(plan: tuple[tuple[str, Read], ...], tagged: dict[int, Read], names: dict[int, str]) -> Read:
    read_plain = _legacy_entity_reader(plan)

    def read_entity(reader: Reader) -> Fields:
        fields: Fields = read_plain(reader)
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
        name = field.name if shape.is_entity else ""
        return _array_reader(name, read, smallest, flexible=flexible, nullable=nullable), 1 if flexible else 4
    if shape.is_entity and nullable:
        return _nullable_reader(read), 1
    return read, smallest


def _primitive(kafka_type: str, *, flexible: bool, nullable: bool) -> tuple[Read, int]:
    if kafka_type in _FIXED:
        return _FIXED[kafka_type]
    return _SIZED["bytes" if kafka_type == "records" else kafka_type, flexible, nullable]


def _array_reader(name: str, read: Read, smallest: int, *, flexible: bool, nullable: bool) -> Read:
    """name: of an array of entities; "" of any other."""
    count_of = Reader.compact_array_count if flexible else Reader.array_count

    def read_array(reader: Reader) -> Any:
        count = count_of(reader, smallest)
        if count is None:
            if nullable:
                return None
            raise ProtocolError(f"an array before byte {reader.position} is null and must not be")
        if read is Reader.int32:
            return reader.int32s(count)
        made = reader.made.get(name) if name and isinstance(reader, _Entities) else None
        if made is None:
            return [read(reader) for _ in range(count)]
        return [each for _ in range(count) if (each := made(read(reader))) is not None]

    return read_array


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
