"""The S3 server of the tests, judged by another client than the sink's: Arrow's, which is Amazon's own in C++."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from pyarrow import fs
from s3_server import S3Server


@pytest.fixture
def arrow(s3: S3Server) -> fs.S3FileSystem:
    return fs.S3FileSystem(
        access_key="a", secret_key="b", region="us-east-1", scheme="http", endpoint_override=s3.endpoint[7:]
    )


def _created(s3: S3Server, key: str, content: bytes, *, bucket: str = "bucket") -> bool:
    request = Request(f"{s3.endpoint}/{bucket}/{key}", content, {"If-None-Match": "*"}, method="PUT")
    try:
        with urlopen(request, timeout=60):
            return True
    except HTTPError as error:
        error.close()
        if error.code != 412:
            raise
        return False


def test_objects_come_back_whole_and_in_ranges(arrow: fs.S3FileSystem) -> None:
    content = bytes(range(256)) * 100_000
    with arrow.open_output_stream("bucket/a/b (1).x") as stream:
        stream.write(content)
    with arrow.open_input_file("bucket/a/b (1).x") as file:
        assert file.read() == content
        file.seek(1000)
        assert file.read(500) == content[1000:1500]


@pytest.mark.slow
def test_listings_go_on_over_pages(arrow: fs.S3FileSystem) -> None:
    for number in range(20):
        with arrow.open_output_stream(f"bucket/a/{number:02d}/x") as stream:
            stream.write(b"x")
    found = arrow.get_file_info(fs.FileSelector("bucket/a", recursive=True))
    assert sorted(each.path for each in found if each.type is fs.FileType.File) == [
        f"bucket/a/{number:02d}/x" for number in range(20)
    ]
    assert len(arrow.get_file_info(fs.FileSelector("bucket/a"))) == 20
    arrow.delete_file("bucket/a/07/x")
    assert arrow.get_file_info("bucket/a/07/x").type is fs.FileType.NotFound


def test_of_many_creates_at_once_one_wins(s3: S3Server) -> None:
    for number in range(20):
        contents = [f"content {each}".encode() for each in range(8)]
        with ThreadPoolExecutor(8) as pool:
            wins = list(pool.map(lambda content, key=f"k{number}": _created(s3, key, content), contents))
        assert sum(wins) == 1
        assert s3.objects[("bucket", f"k{number}")] == contents[wins.index(True)]


def test_an_unconditional_bucket_takes_both(s3: S3Server) -> None:
    assert [_created(s3, "k", content, bucket="unconditional") for content in (b"a", b"b")] == [True, True]


@pytest.mark.parametrize(
    ("bucket", "status", "there"), [("losing", 500, b"x"), ("losing-before", 500, None), ("forbidden", 403, None)]
)
def test_a_buckets_name_says_what_fails(s3: S3Server, bucket: str, status: int, there: bytes | None) -> None:
    put: Callable[[], Any] = lambda: urlopen(Request(f"{s3.endpoint}/{bucket}/k", b"x", method="PUT"), timeout=60)  # noqa: E731
    with pytest.raises(HTTPError) as caught:
        put()
    caught.value.close()
    assert caught.value.code == status
    assert s3.objects.get((bucket, "k")) == there
