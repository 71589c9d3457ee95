"""A merchant's server whose path says how it behaves, quick enough that it is never what a pipeline test or a benchmark measures.

Run: python -m tests.sink [--port 0] [--journal FILE] [--authority FILE] [--seed N]

It prints `ready <port>`, and ends on SIGTERM. With --authority it speaks TLS, and writes there whom a client is to trust.

    /ok             200                     /slow/250   200 after 250 ms
    /status/503     that code               /hang       never answers
    /retry-after/2  429 with Retry-After    /flaky/30   500 in 30 % of all cases, else 200
    /gone           410                     /reset      resets the connection without an answer

What follows is a name of the test's own (/ok/merchant-7); any other path is 404, until /control/set?path=/x&behave=status/500 sets it.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from http.client import responses
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qs

import orjson
import trustme
import uvloop

ROOT = Path(__file__).parents[1]
NAMES = ("localhost", "*.sink.localhost", "127.0.0.1", "::1")
"""Whom a certificate is for; a wildcard right below localhost would not be accepted."""
STOP_TIMEOUT_S = 15
PATHS_MAX = 10_000


class Behaviour(NamedTuple):
    """What is done with a request. Without a code there is no answer: the connection is reset, or left as it is."""

    code: int | None = 200
    retry_after_s: int | None = None
    delay_s: float = 0.0
    failing_percent: int = 0
    resets: bool = False


@lru_cache(PATHS_MAX)
def behaviour_of(text: str) -> Behaviour:
    """Read a behaviour as a path or a control request names it, or raise ValueError."""
    name, argument, *_ = [*text.strip("/").split("/"), ""]
    if name in _PLAIN:
        return _PLAIN[name]
    if name not in _NUMBERED or not argument.isdecimal():
        raise ValueError(f"{text!r} is no behaviour: choose from {', '.join([*_PLAIN, *(f'{each}/N' for each in _NUMBERED)])}")
    return _numbered(name, int(argument))


_PLAIN = {"ok": Behaviour(), "gone": Behaviour(410), "hang": Behaviour(None), "reset": Behaviour(None, resets=True)}
_NUMBERED = {"status": range(200, 600), "retry-after": range(1_000_000), "slow": range(3_600_001), "flaky": range(101)}


def _numbered(name: str, number: int) -> Behaviour:
    if number not in (allowed := _NUMBERED[name]):
        raise ValueError(f"{name}/{number}: give {allowed.start} to {allowed.stop - 1}")
    match name:
        case "status":
            return Behaviour(number)
        case "retry-after":
            return Behaviour(429, retry_after_s=number)
        case "slow":
            return Behaviour(delay_s=number / 1_000)
        case _:
            return Behaviour(failing_percent=number)


@lru_cache
def answer_of(code: int, retry_after_s: int | None = None, text: str = "") -> bytes:
    """Write an answer; 204 and 304 have no body, so they must not tell its length."""
    length = "" if code in (204, 304) else f"content-length: {len(text)}\r\n"
    retry_after = "" if retry_after_s is None else f"retry-after: {retry_after_s}\r\n"
    return f"HTTP/1.1 {code} {responses.get(code, 'Unnamed')}\r\n{length}{retry_after}\r\n{text}".encode("ascii")


@dataclass(frozen=True, slots=True)
class Received:
    """A request that came whole. Its header names are in lower case; `code` is what it is answered with, None if it is not."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    at_s: float
    connection: int
    code: int | None


class Sink:
    """What has come in, and how each path behaves."""

    def __init__(self, *, seed: int = 1, journal: Path | None = None, keep: bool = True) -> None:
        self.requests: list[Received] = []
        self.connections = 0
        self.port = 0
        self.scheme = "http"
        self.links: set[_Link] = set()
        self._set: dict[str, Behaviour] = {}
        self._chance = random.Random(seed)
        self._keep = keep
        self._journal = None if journal is None else os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"

    def behave(self, path: str, behaviour: str) -> None:
        """Let a path behave otherwise from now on."""
        self._set[path] = behaviour_of(behaviour)

    def take(self, path: str, headers: Mapping[str, str], body: bytes, connection: int) -> Behaviour:
        """Record a request and decide what is done with it.

        The record is made before any answer and before any delay, so it has all that was answered, and what was not answered any more.
        """
        behaviour = self._decide(path.partition("?")[0])
        if self._journal is not None:
            self._write(self._journal, path, headers, body, behaviour.code)
        if self._keep:
            self.requests.append(Received(path, headers, body, time.monotonic(), connection, behaviour.code))
        return behaviour

    def _decide(self, path: str) -> Behaviour:
        if (behaviour := self._set.get(path)) is None:
            try:
                behaviour = behaviour_of(path)
            except ValueError:
                return Behaviour(404)
        if behaviour.failing_percent and self._chance.random() * 100 < behaviour.failing_percent:
            return Behaviour(500)
        return behaviour

    @staticmethod
    def _write(journal: int, path: str, headers: Mapping[str, str], body: bytes, code: int | None) -> None:
        """One write for a line: what the system has taken, a kill of this process does not lose."""
        line = {
            "at_ns": time.time_ns(),
            "path": path,
            "headers": {name: value for name, value in headers.items() if name == "webhook-id" or name.startswith("x-")},
            "sha256": hashlib.sha256(body).hexdigest(),
            "length": len(body),
            "code": code,
        }
        written = orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
        if os.write(journal, written) != len(written):
            raise OSError("the journal took only a part of a line: is the disk full?")

    def control(self, path: str) -> bytes:
        """Do what a request to /control/ asks; it is not recorded."""
        command, _, query = path.partition("?")
        asked = {name: values[-1] for name, values in parse_qs(query).items()}
        try:
            if command != "/control/set":
                raise ValueError(f"there is no {command}: ask for /control/set?path=/x&behave=status/500")
            self.behave(asked["path"], asked["behave"])
        except (KeyError, ValueError) as error:
            return answer_of(400, text=ascii(str(error)))
        return answer_of(200)

    def drop_connections(self) -> None:
        """Close every connection, as a merchant does who restarts."""
        for link in list(self.links):
            link.drop()

    def close(self) -> None:
        self.drop_connections()
        if self._journal is not None:
            os.close(self._journal)


class _Head(NamedTuple):
    path: str
    headers: dict[str, str]
    body_begin: int
    body_end: int


class _Link(asyncio.Protocol):
    """One connection: takes requests one after the other, for an answer may be delayed and the next one must not overtake it."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._head: _Head | None = None
        self._is_busy = False
        self._closes = False
        sink.connections += 1
        self._number = sink.connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its type
        self._sink.links.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._sink.links.discard(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._serve()

    def drop(self) -> None:
        self._transport.abort()

    def _serve(self) -> None:
        try:
            while not self._is_busy and (head := self._whole_request()) is not None:
                body = bytes(self._buffer[head.body_begin : head.body_end])
                del self._buffer[: head.body_end]
                self._head = None
                self._closes = head.headers.get("connection", "").lower() == "close"
                self._perform(head, body)
        except ValueError as error:
            self._closes = True
            self._answer(answer_of(400, text=ascii(str(error))))

    def _whole_request(self) -> _Head | None:
        if self._head is None and (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            self._head = head_of(self._buffer[:end].decode("latin-1"), end + 4)
        return self._head if self._head is not None and len(self._buffer) >= self._head.body_end else None

    def _perform(self, head: _Head, body: bytes) -> None:
        if head.path.startswith("/control/"):
            self._answer(self._sink.control(head.path))
            return
        behaviour = self._sink.take(head.path, head.headers, body, self._number)
        if behaviour.resets:
            self._reset()
        elif behaviour.code is None:
            self._is_busy = True
        elif behaviour.delay_s:
            self._is_busy = True
            self._loop.call_later(behaviour.delay_s, self._answer_late, answer_of(behaviour.code))
        else:
            self._answer(answer_of(behaviour.code, behaviour.retry_after_s))

    def _answer(self, answer: bytes) -> None:
        self._transport.write(answer)
        if self._closes:
            self._is_busy = True
            self._transport.close()

    def _answer_late(self, answer: bytes) -> None:
        if not self._transport.is_closing():
            self._is_busy = False
            self._answer(answer)
            self._serve()

    def _reset(self) -> None:
        self._is_busy = True
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()


def head_of(text: str, body_begin: int) -> _Head:
    """Read the head of a request, or raise ValueError; a body's length must be told beforehand, as our client does."""
    line, *fields = text.split("\r\n")
    try:
        _, path, _ = line.split(" ")
    except ValueError:
        raise ValueError(f"{line!r} is no request") from None
    headers = {name.lower(): value.strip() for name, _, value in [each.partition(":") for each in fields]}
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not length.isdecimal():
        raise ValueError("a request needs a content-length that is a number, and no transfer-encoding")
    return _Head(path, headers, body_begin, body_begin + int(length))


class Certificate:
    """A certificate for a sink, from an authority that nobody knows but who is given it."""

    def __init__(self, names: Sequence[str] = NAMES) -> None:
        authority = trustme.CA()
        self.authority_pem = authority.cert_pem.bytes()
        self.serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(*names).configure_cert(self.serving)

    def trusting(self) -> ssl.SSLContext:
        """Make a client's context that trusts it."""
        return ssl.create_default_context(cadata=self.authority_pem.decode())


@asynccontextmanager
async def serving(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    certificate: Certificate | None = None,
    seed: int = 1,
    journal: Path | None = None,
    keep: bool = True,
) -> AsyncIterator[Sink]:
    """Serve in this process, on the running loop; `keep` has every request in the memory."""
    sink = Sink(seed=seed, journal=journal, keep=keep)
    server = await asyncio.get_running_loop().create_server(
        lambda: _Link(sink), host, port, ssl=certificate.serving if certificate else None, backlog=1_024
    )
    sink.port = server.sockets[0].getsockname()[1]
    sink.scheme = "https" if certificate else "http"
    try:
        yield sink
    finally:
        server.close()
        sink.close()


@dataclass(frozen=True)
class Running:
    """A sink in a process of its own."""

    process: "subprocess.Popen[str]"
    port: int


@contextmanager
def started(*arguments: str) -> Iterator[Running]:
    """Run a sink in a process of its own, so that it shares no GIL with who posts to it; asked to end on leaving."""
    command = [sys.executable, "-m", "tests.sink", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            word, _, port = process.stdout.readline().partition(" ")
            assert word == "ready", f"the sink did not start: it ended with {process.wait()}"
            yield Running(process, int(port))
        finally:
            end(process)


def end(process: "subprocess.Popen[str]") -> None:
    """Ask it to end, and make it end."""
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()


def journal_of(path: Path) -> list[dict[str, Any]]:
    """Read what a sink, living or killed, has recorded."""
    return [json.loads(line) for line in path.read_text().splitlines()]


async def serve(options: argparse.Namespace) -> None:
    certificate = Certificate() if options.authority else None
    if certificate is not None:
        options.authority.write_bytes(certificate.authority_pem)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with serving(port=options.port, certificate=certificate, seed=options.seed, journal=options.journal, keep=False) as sink:
        print(f"ready {sink.port}", flush=True)
        await stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--journal", type=Path, help="where to append a line for each request")
    parser.add_argument("--authority", type=Path, help="speak TLS, and write the certificate of its authority here")
    parser.add_argument("--seed", type=int, default=1, help="of the chance in /flaky")
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
