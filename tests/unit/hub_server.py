"""A server on this machine that speaks as much of the hub's API as its client needs for a download."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c0ffee" + "0" * 34
SMALL = 1 << 10
_RESOLVE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/[^/]+/(?P<file>.+)")


@dataclass
class Hub:
    """files: repository -> file name -> content. refusals: path -> (status, the hub's error code).

    drops: how many bytes of a large file each coming answer may carry; then the connection ends.
    stop: a large answer that has reached `drops` waits for `released` instead.
    elsewhere: large files lie on another host, to which the hub redirects. whole: ranges are ignored.
    log: (method, file, range) of every request for a large file. tokens: (host, token) of every request.
    """

    files: Mapping[str, Mapping[str, bytes]]
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    drops: list[int] = field(default_factory=list)
    stop: bool = False
    released: threading.Event = field(default_factory=threading.Event)
    elsewhere: bool = False
    whole: bool = False
    tokens: list[tuple[str, str | None]] = field(default_factory=list)
    log: list[tuple[str, str, str | None]] = field(default_factory=list)
    endpoint: str = ""

    def gets(self) -> list[str | None]:
        """The ranges of the requests for content of large files, in order."""
        return [requested for method, _, requested in self.log if method == "GET"]


@contextmanager
def serve(files: Mapping[str, Mapping[str, bytes]]) -> Iterator[Hub]:
    """Serve until the block ends."""
    hub = Hub(files)
    handler = type("BoundHandler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        hub.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.released.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = self.path.partition("?")[0]
        resolved = _RESOLVE.fullmatch(path)
        repo = resolved["repo"] if resolved else "/".join(path.split("/")[3:5])
        host = str(self.headers["Host"])
        self.hub.tokens.append((host.partition(":")[0], self.headers["Authorization"]))
        refusal = self.hub.refusals.get(path) or self.hub.refusals.get(repo)
        if refusal or repo not in self.hub.files:
            self._refuse(*(refusal or (401, "RepoNotFound")))
        elif resolved:
            self._file(self.hub.files[repo][resolved["file"]], resolved["file"], body=body)
        else:
            self._json(self._tree(repo) if "/tree/" in path else self._info(repo))

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        for name, value in (
            ("X-Error-Code", code),
            ("X-Error-Message", "because\nof it"),
            ("Content-Length", "0"),
        ):
            self.send_header(name, value.replace("\n", " "))
        self.end_headers()

    def _json(self, data: object) -> None:
        text = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _info(self, repo: str) -> dict[str, object]:
        siblings = []
        for name, data in self.hub.files[repo].items():
            entry: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": _sha1(data)}
            if len(data) >= SMALL:
                entry["lfs"] = {"size": len(data), "sha256": _sha256(data), "pointerSize": 134}
            siblings.append(entry)
        return {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": siblings}

    def _tree(self, repo: str) -> list[dict[str, object]]:
        entries = []
        for name, data in self.hub.files[repo].items():
            entry: dict[str, object] = {"type": "file", "path": name, "size": len(data), "oid": _sha1(data)}
            if len(data) >= SMALL:
                entry["lfs"] = {"size": len(data), "oid": _sha256(data), "pointerSize": 134}
            entries.append(entry)
        return entries

    def _file(self, data: bytes, name: str, *, body: bool) -> None:
        if self.hub.elsewhere and len(data) >= SMALL and str(self.headers["Host"]).startswith("127"):
            self._redirect(data)
            return
        requested = None if self.hub.whole else self.headers.get("Range")
        start = int(requested.removeprefix("bytes=").rstrip("-")) if requested else 0
        self.send_response(206 if requested else 200)
        etag = _sha256(data) if len(data) >= SMALL else _sha1(data)
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Content-Length": str(len(data) - start)}
        if requested:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        if len(data) >= SMALL:
            self.hub.log.append((self.command, name, requested))
        if body:
            self._send(data[start:])

    def _redirect(self, data: bytes) -> None:
        self.send_response(302)
        there = f"http://localhost:{self.hub.endpoint.rpartition(':')[2]}{self.path}"
        stated = {"X-Linked-Etag": f'"{_sha256(data)}"', "X-Linked-Size": str(len(data))}
        for key, value in (
            stated | {"Location": there, "X-Repo-Commit": COMMIT, "Content-Length": "0"}
        ).items():
            self.send_header(key, value)
        self.end_headers()

    def _send(self, data: bytes) -> None:
        if len(data) >= SMALL and self.hub.drops:
            self.wfile.write(data[: self.hub.drops.pop(0)])
            if self.hub.stop:
                self.hub.released.wait(60)
            self.close_connection = True
            return
        self.wfile.write(data)


def _sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
