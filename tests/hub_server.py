"""A server on the loopback with the routes of the Hugging Face Hub that are read here, and the troubles of networks.

    /org/name/resolve/REVISION/FILE   small files; weights by a redirect to /cdn/…, which answers ranges
    /api/…                            404

Names of models say what happens: `org/gated`, `org/limited`, `org/cut`. Every request is kept in `requests`.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

COMMIT = "0123456789abcdef0123456789abcdef01234567"
# A revision -> its commit.
COMMITS = {"main": COMMIT, "old": "f" * 40, COMMIT: COMMIT}
TOKEN = "hf_of_the_tests"  # noqa: S105 - of this server alone
# Of models of which these requests fail, the status and the code of the error.
REFUSED = {
    "org/gated": (403, "GatedRepo"),
    "org/private": (401, "RepoNotFound"),
    "org/forbidden": (403, ""),
    "org/limited": (429, ""),
    "org/broken": (503, ""),
}
_RESOLVE = re.compile(r"/(?P<repo>[\w.-]+(?:/[\w.-]+)?)/resolve/(?P<revision>[\w.-]+)/(?P<file>[\w.-]+)")


class Request(NamedTuple):
    method: str
    path: str
    range: str | None
    token: str | None
    sent: int
    """Bytes of the body."""


def safetensors(tensors: dict[str, tuple[str, list[int], int]], pad: int = 0) -> bytes:
    """A file with these tensors, name -> (dtype, shape, bytes); `pad` makes its header longer."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt", "pad": "x" * pad}}
    start = 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, start + size]}
        start += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(start)


class Hub:
    """Files of models, and what was asked for.

    Args:
        models: name -> file -> content, of all revisions.
    """

    def __init__(self, models: dict[str, dict[str, bytes]]) -> None:
        self.models, self.requests = models, list[Request]()
        # What a slow answer waits for.
        self.over = threading.Event()
        self.url = ""

    def asked(self) -> list[tuple[str, str]]:
        """Method and path of all requests but those that huggingface_hub makes of itself."""
        return [(one.method, one.path) for one in self.requests if not one.path.startswith("/api/")]

    @contextmanager
    def serving(self) -> Iterator[Hub]:
        """Inside it, it answers at `url`."""
        server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.over.set()
            server.shutdown()
            server.server_close()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that waits no longer is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_HEAD(self) -> None:
        self._route()

    def do_GET(self) -> None:
        self._route()

    def log_message(self, *_: Any) -> None:
        """Nothing on stderr."""

    def _route(self) -> None:
        found = _RESOLVE.fullmatch(self.path)
        if self.path.startswith("/cdn/"):
            _, _, organisation, name, file = self.path.split("/")
            self._content(self.hub.models[f"{organisation}/{name}"][file])
        elif found is None:
            self._error(404, "")
        elif found["repo"] in REFUSED and self.headers.get("authorization") != f"Bearer {TOKEN}":
            self._error(*REFUSED[found["repo"]])
        elif found["repo"] == "renamed":
            self._answer(307, {"Location": self.path.replace("/renamed/", "/org/small/")})
        elif found["repo"] not in self.hub.models:
            self._error(401, "RepoNotFound")  # as the Hub answers who has no token
        elif found["revision"] not in COMMITS:
            self._error(404, "RevisionNotFound")
        else:
            self._file(*found.groups())

    def _file(self, repo: str, revision: str, file: str) -> None:
        """A file that may be there, with the trouble of its model."""
        content, headers = self.hub.models[repo].get(file), {"X-Repo-Commit": COMMITS[revision]}
        if repo == "org/slow":
            self.hub.over.wait()
        if content is None:
            self._error(404, "EntryNotFound", headers)
            return
        headers["ETag"] = f'"{hashlib.sha1(content, usedforsecurity=False).hexdigest()}"'
        gets = self.command == "GET"
        if file.endswith(".safetensors"):
            linked = {"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(len(content))}
            self._answer(302, {"Location": f"{self.hub.url}/cdn/{repo}/{file}", **linked, **headers})
        elif repo == "org/cut" and gets:  # shorter than the HEAD said
            self._answer(200, headers, content[:20])
        elif repo == "org/closed" and gets:  # shorter than this answer itself says
            self.close_connection = True
            self._answer(200, {**headers, "Content-Length": str(len(content))}, content[:20])
        elif repo == "org/large":
            self._answer(200, {**headers, "Content-Length": str(10**9)})
        else:
            self._content(content, headers)

    def _content(self, content: bytes, headers: dict[str, str] | None = None) -> None:
        """All of it, or the range that is asked for."""
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        if asked is None:
            self._answer(200, headers or {}, content)
            return
        first, last = int(asked[1]), min(int(asked[2]), len(content) - 1)
        more = {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
        self._answer(206, {**(headers or {}), **more}, content[first : last + 1])

    def _error(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        named = {"X-Error-Code": code, "X-Error-Message": code} if code else {}
        more = {"Retry-After": "300"} if status == 429 else {}
        self._answer(status, {**(headers or {}), **named, **more}, b"no\n")

    def _answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        sent = b"" if self.command == "HEAD" else body
        token = (self.headers.get("authorization") or "").removeprefix("Bearer ") or None
        self.hub.requests.append(Request(self.command, self.path, self.headers.get("range"), token, len(sent)))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)
