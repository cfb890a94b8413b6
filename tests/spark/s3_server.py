"""A small S3 server for tests: objects in memory, conditional creates, uploads of parts, listings; no signatures.

Those that PyPI offers need other versions of the packages here. `test_s3_server.py` tests it, by Arrow's client of S3.

What a bucket's name says of it: "unconditional" ignores conditions, "forbidden" refuses everything, "losing" does the
first PUT of each key and answers with an error, "losing-before" answers so and does not do it. "absent" is not there.
"year-zero" says of each object that it was changed in the year 0.

`S3Server.instead` says of a request, by its method and path, that it gets no answer (HANG), or this status. None: it is
served. It is set while requests may be under way. `S3Server.says` is what the text of an error says besides its code.
"""

from __future__ import annotations

import re
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

__all__ = ["HANG", "S3Server", "options_for", "s3_server"]

HANG: Final = 0

_DATE = "2013-01-01T12:00:00.000Z"
_HTTP_DATE = "Tue, 01 Jan 2013 12:00:00 GMT"


class S3Server(ThreadingHTTPServer):
    """objects: by bucket and key. requests: method and path of each."""

    daemon_threads = True
    request_queue_size = 100

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scheme = "http"
        if tls is not None:
            self.scheme = "https"
            # The handshake is the request's thread's.
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.says = "as the test wants"
        self.lock = threading.Lock()
        self.objects: dict[tuple[str, str], bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.lost: set[tuple[str, str]] = set()
        self.requests: list[tuple[str, str]] = []
        self.instead: Callable[[str, str], int | None] = _as_ever
        self.ended = threading.Event()

    @property
    def endpoint(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def count(self, method: str, part: str = "") -> int:
        """So many requests of a method had this in their path."""
        return sum(made == method and part in path for made, path in self.requests)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that refuses a certificate goes: no traceback of that."""
        if not isinstance(sys.exception(), ssl.SSLError | ConnectionError):
            super().handle_error(request, client_address)


def _as_ever(_method: str, _path: str) -> None:
    return None


@contextmanager
def s3_server(tls: ssl.SSLContext | None = None) -> Iterator[S3Server]:
    with S3Server(tls) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="s3-server")
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()
            thread.join()


def options_for(endpoint: str) -> dict[str, str]:
    """The `storage_options` of a sink there."""
    return {
        "aws_endpoint": endpoint,
        "allow_http": "true",
        "aws_region": "us-east-1",
        "aws_access_key_id": "tester",
        "aws_secret_access_key": "hush-hush",
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Or each small answer waits for the client's acknowledgement.
    disable_nagle_algorithm = True
    wbufsize = -1
    server: S3Server
    texts: ClassVar[dict[int, str]] = {403: "AccessDenied", 412: "PreconditionFailed", 500: "InternalError"}
    texts |= {404: "NoSuchUpload", 501: "NotImplemented", 503: "SlowDown"}

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Nothing."""

    def _serve(self) -> None:
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        body = self._body()
        self.server.requests.append((self.command, self.path))
        status = self.server.instead(self.command, self.path)
        if status == HANG:
            self.server.ended.wait()
            self.close_connection = True
        elif status is not None:
            self._fail(status)
        elif bucket == "absent":
            self._fail(404, "NoSuchBucket")
        elif bucket == "forbidden":
            self._fail(403)
        else:
            with self.server.lock:
                self._do(bucket, key, query, body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _serve  # noqa: N815 - their names there

    def _body(self) -> bytes:
        body = self._chunks() if self.headers.get("Transfer-Encoding") == "chunked" else self._sized()
        if "aws-chunked" not in (self.headers.get("Content-Encoding") or ""):
            return body
        found, left = b"", body
        while left:
            head, _, left = left.partition(b"\r\n")
            size = int(head.partition(b";")[0], 16)
            if size == 0:
                break
            found, left = found + left[:size], left[size + 2 :]
        return found

    def _sized(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _chunks(self) -> bytes:
        found = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _do(self, bucket: str, key: str, query: dict[str, str], body: bytes) -> None:
        place = (bucket, key)
        if self.command == "PUT" and "partNumber" in query:
            self.server.uploads[query["uploadId"]][int(query["partNumber"])] = body
            self._answer(200, b"", ETag=_etag(body))
        elif self.command == "PUT":
            self._put(place, body)
        elif self.command == "POST" and "uploads" in query:
            upload = f"upload-{len(self.server.uploads)}"
            self.server.uploads[upload] = {}
            text = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
            self._answer(200, _xml("InitiateMultipartUploadResult", text))
        elif self.command == "POST" and "uploadId" in query:
            parts = self.server.uploads.pop(query["uploadId"])
            content = b"".join(parts[number] for number in sorted(parts))
            if self._created(place, content):
                text = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><ETag>{escape(_etag(content))}</ETag>"
                self._answer(200, _xml("CompleteMultipartUploadResult", text))
        elif self.command == "POST" and "delete" in query:
            keys = [unescape(name) for name in re.findall(r"<Key>(.*?)</Key>", body.decode())]
            for name in keys:
                self.server.objects.pop((bucket, name), None)
            gone = "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in keys)
            self._answer(200, _xml("DeleteResult", gone))
        elif self.command == "DELETE":
            self.server.uploads.pop(query.get("uploadId", ""), None)
            self.server.objects.pop(place, None)
            self._answer(204, b"")
        elif key:
            self._get(place)
        else:
            self._list(bucket, query)

    def _put(self, place: tuple[str, str], body: bytes) -> None:
        if place[0].startswith("losing") and place not in self.server.lost:
            self.server.lost.add(place)
            if place[0] == "losing":
                self.server.objects.setdefault(place, body)
            self._fail(500)
        elif self._created(place, body):
            self._answer(200, b"", ETag=_etag(body))

    def _created(self, place: tuple[str, str], content: bytes) -> bool:
        conditional = self.headers.get("If-None-Match") == "*" and place[0] != "unconditional"
        if conditional and place in self.server.objects:
            self._fail(412)
            return False
        self.server.objects[place] = content
        return True

    def _get(self, place: tuple[str, str]) -> None:
        content = self.server.objects.get(place)
        if content is None:
            self._fail(404, "NoSuchKey")
            return
        date = "Sat, 01 Jan 0000 12:00:00 GMT" if place[0] == "year-zero" else _HTTP_DATE
        headers = {"ETag": _etag(content), "Last-Modified": date, "Accept-Ranges": "bytes"}
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if span is None:
            self._answer(200, content, **headers)
            return
        start, end = int(span[1]), min(int(span[2] or len(content)), len(content) - 1)
        headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
        self._answer(206, content[start : end + 1], **headers)

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        """In pages of a few keys, so that clients show that they ask for the others."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = max(query.get("start-after", ""), query.get("continuation-token", ""))
        entries: dict[str, str] = {}
        for (where, key), content in sorted(self.server.objects.items()):
            if where != bucket or not key.startswith(prefix):
                continue
            head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            if found:
                common = f"{prefix}{head}{delimiter}"
                entries[common] = f"<CommonPrefixes><Prefix>{escape(common)}</Prefix></CommonPrefixes>"
            else:
                date = _DATE.replace("2013", "0000") if bucket == "year-zero" else _DATE
                text = f"<Key>{escape(key)}</Key><Size>{len(content)}</Size><LastModified>{date}</LastModified>"
                entries[key] = f"<Contents>{text}<ETag>{escape(_etag(content))}</ETag></Contents>"
        left = [name for name in sorted(entries) if name > after]
        page = left[: int(query.get("max-keys", "7"))]
        cut = len(page) < len(left)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if cut else ""
        text = f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
        text += f"<IsTruncated>{str(cut).lower()}</IsTruncated>{token}" + "".join(entries[name] for name in page)
        self._answer(200, _xml("ListBucketResult", text))

    def _fail(self, status: int, code: str = "") -> None:
        text = f"<Error><Code>{code or self.texts[status]}</Code><Message>{escape(self.server.says)}</Message></Error>"
        self._answer(status, text.encode())

    def _answer(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if status != 204:
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()


def _etag(content: bytes) -> str:
    return f'"{md5(content).hexdigest()}"'


def _xml(name: str, text: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?><{name}>{text}</{name}>'.encode()
