"""The source: every flight of 2013, read by two ways that agree."""

import json
from importlib import metadata

import pyarrow as pa
import pytest

from demo.flights import FLIGHTS, SCHEMA, Flight, find_csv, flights, parse, partition_of, source_table
from instride.errors import ConfigError


@pytest.fixture(scope="module")
def all_flights() -> list[Flight]:
    return list(flights())


@pytest.mark.slow
def test_there_are_336776_flights_numbered_from_0(all_flights: list[Flight]) -> None:
    assert [flight.row for flight in all_flights] == list(range(FLIGHTS))


def test_the_2512_flights_without_a_tail_number_have_carrier_and_number_as_key(
    all_flights: list[Flight],
) -> None:
    nameless = [flight for flight in all_flights if json.loads(flight.value)["tailnum"] is None]
    assert len(nameless) == 2512
    assert nameless[-1].key == b"9E3525"
    assert all(flight.key for flight in all_flights)


def test_a_record_holds_typed_columns_and_its_row_number(all_flights: list[Flight]) -> None:
    value = json.loads(all_flights[1].value)
    assert value["row"] == 1
    assert value["dep_time"] == 533
    assert value["tailnum"] == all_flights[1].key.decode() == "N24211"
    assert list(value) == SCHEMA.names


def test_parsed_records_are_the_source(all_flights: list[Flight]) -> None:
    assert parse(flight.value for flight in all_flights).equals(source_table())


def test_nothing_parses_to_an_empty_table_of_the_same_columns() -> None:
    assert parse([]).equals(SCHEMA.empty_table())


def test_a_value_that_is_no_flight_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        parse([b'{"row":1,"wings":2}'])


def test_a_limit_stops_early() -> None:
    assert [flight.row for flight in flights(3)] == [0, 1, 2]


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(ConfigError, match=r'pip install "instride\[demo\]"'):
        find_csv()


def test_the_flights_use_all_of_12_partitions(all_flights: list[Flight]) -> None:
    assert {partition_of(flight.key) for flight in all_flights} == set(range(12))
