"""Posts a webhook over aiohttp's connections, below its session: building a session's request would cost more than all the rest.

What is used of aiohttp below its documented surface is listed in `client_fallback.py`; where that is missing, the session is used instead.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Self

import aiohttp
import structlog
from aiohttp.abc import AbstractResolver
from yarl import URL

from streams.delivery.address import why_refused, why_url_refused
from streams.delivery.results import KEPT_BYTES_MAX, Answer, Failure, Result

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import AddrInfoType, Connection
    from aiohttp.http import RawResponseMessage
    from aiohttp.streams import StreamReader

    from streams.delivery.client_fallback import SessionClient

ANSWER_BYTES_MAX = 65_536
HEADERS_MAX = 32
HEADER_CHARACTERS_MAX = 256
INFORMATIONAL_MAX = 16
ENDPOINTS_MAX = 10_000
ERROR_CHARACTERS_MAX = 300

_log = structlog.get_logger()
_tried: ContextVar[dict[str, str | None] | None] = ContextVar("_tried", default=None)
"""The addresses that the connection being opened has come to, each with the reason why it was refused."""


class AddressRefused(OSError):
    """An OSError, so that the next address of the same name is tried."""


class _Endpoint(NamedTuple):
    """What is the same for every request to one URL."""

    origin: str
    is_tls: bool
    head: bytes
    request: aiohttp.ClientRequest


class Client:
    """Posts to any number of endpoints; one per worker, used as an async context manager."""

    def __init__(
        self,
        *,
        allow_loopback: bool,
        connect_timeout_s: float = 5.0,
        idle_max: int = 100,
        idle_per_endpoint_max: int = 10,
        idle_s: float = 90.0,
        resolver: AbstractResolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._allow_loopback = allow_loopback
        self._connect_timeout_s = connect_timeout_s
        self._idle = _Idle(idle_max, idle_per_endpoint_max, idle_s)
        self._resolver = resolver
        self._ssl_context = ssl_context
        self._endpoint = lru_cache(ENDPOINTS_MAX)(self._make_endpoint)
        self._fallback: SessionClient | None = None

    async def __aenter__(self) -> Self:
        from streams.delivery import client_fallback  # It is built from this file's parts, so it cannot be imported before them.

        self._loop = asyncio.get_running_loop()
        # The connector opens connections and keeps none: its own pool has no bounds, and hands out one that has unread bytes on it.
        self._connector = aiohttp.TCPConnector(
            limit=0,
            force_close=True,
            socket_factory=guarded_socket(self._allow_loopback),
            resolver=self._resolver,
            ssl=self._ssl_context or True,
        )
        if missing := client_fallback.what_aiohttp_lacks():
            _log.warning("delivery.client.slow", aiohttp=aiohttp.__version__, missing=missing)
            self._fallback = client_fallback.SessionClient(self._connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._idle.clear()
        if self._fallback is not None:
            await self._fallback.close()
        await self._connector.close()

    async def post(
        self, url: str, headers: bytes, body: bytes, answer_timeout_s: float, connect_timeout_s: float | None = None
    ) -> Answer | Failure:
        """Post once and say what came of it; `headers` are ready lines, without host and content-length."""
        started = monotonic()
        endpoint = self._endpoint(url)
        if isinstance(endpoint, str):
            return Failure("address", endpoint, 0)
        connect_s = connect_timeout_s or self._connect_timeout_s
        if self._fallback is not None:
            return await self._fallback.post(endpoint.request.url, headers, body, answer_timeout_s, connect_s)
        request = b"%b%bcontent-length: %d\r\n\r\n%b" % (endpoint.head, headers, len(body), body)
        result: Result | None = None
        if (connection := self._idle.take(endpoint.origin)) is not None:
            result = await self._exchange(endpoint.origin, connection, request, answer_timeout_s, started)
        if result is None:
            opened = await self._open(endpoint, connect_s, started)
            if isinstance(opened, Failure):
                return opened
            result = await self._exchange(endpoint.origin, opened, request, answer_timeout_s, started)
        return result or Failure("send", "the connection was closed before the request could be written", elapsed_ms(started))

    def _make_endpoint(self, url: str) -> _Endpoint | str:
        """A URL that may not be posted to becomes the reason why."""
        if reason := why_url_refused(url, self._allow_loopback):
            return f"the URL is refused: {reason}"
        parsed = URL(url)
        head = f"POST {parsed.raw_path_qs} HTTP/1.1\r\nhost: {parsed.host_port_subcomponent}\r\n".encode("ascii")
        request = aiohttp.ClientRequest("POST", parsed, loop=self._loop)
        return _Endpoint(str(parsed.origin()), parsed.scheme == "https", head, request)

    async def _open(self, endpoint: _Endpoint, connect_timeout_s: float, started: float) -> "Connection | Failure":
        with trying() as tried:
            try:
                connection = await self._connector.connect(endpoint.request, [], connect_timeout(connect_timeout_s))
            except Exception as error:  # noqa: BLE001 - whatever a resolver, a loop or TLS raises, the attempt has failed and says so
                return not_connected(error, tried, endpoint.request.url, connect_timeout_s, started)
        # Writing is paused as soon as one byte is left over, which is how we know whether the whole request was sent. The TLS layer
        # compares with >= where the plain one has >, and what it has passed on to its socket counts as sent.
        if (transport := connection.transport) is not None:
            transport.set_write_buffer_limits(high=1 if endpoint.is_tls else 0)
        return connection

    async def _exchange(
        self, origin: str, connection: "Connection", request: bytes, answer_timeout_s: float, started: float
    ) -> Result | None:
        """Write the request and read its answer; None if the connection was closed already, so that nothing was sent."""
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None or protocol.should_close or transport.is_closing():
            connection.close()
            return None
        timer = self._loop.call_later(answer_timeout_s, protocol.set_exception, TimeoutError())
        whole = False
        try:
            protocol.set_response_params(read_until_eof=True, auto_decompress=False, read_bufsize=ANSWER_BYTES_MAX)
            transport.write(request)
            if transport.is_closing():
                return None
            message, payload = await protocol.read()
            if message.code < 200:
                message, payload = await _past_informational(protocol, message, payload)
            if payload.is_eof():
                body, whole = payload.read_nowait(), True
            else:
                body, whole = await self._read_rest(payload, timer.when())
            return answered(message.code, message.headers, body, started)
        except Exception as error:  # noqa: BLE001 - likewise: what the parser or the transport raises is the attempt's failure
            return not_answered(error, not protocol.writing_paused, answer_timeout_s, started)
        finally:
            timer.cancel()
            if whole:
                self._idle.put(origin, connection)
            else:
                connection.close()

    async def _read_rest(self, payload: "StreamReader", deadline: float) -> tuple[bytes, bool]:
        """Read what the bounds allow; the answer's code is known, so a body that is cut short does not make it a failure."""
        timer = self._loop.call_at(deadline, payload.set_exception, TimeoutError())
        kept, count = bytearray(), 0
        try:
            while count < ANSWER_BYTES_MAX and (piece := await payload.readany()):
                count += len(piece)
                if len(kept) < KEPT_BYTES_MAX:
                    kept += piece
        except Exception:  # noqa: BLE001 - cut by time, by the merchant or by bad framing: the connection is closed
            return bytes(kept), False
        finally:
            timer.cancel()
        return bytes(kept), payload.at_eof()


class _Idle:
    """Connections that wait for their next request: bounded in all, per origin and in age; the oldest makes room."""

    def __init__(self, count_max: int, per_origin_max: int, age_s: float) -> None:
        self._count_max, self._per_origin_max, self._age_s = count_max, per_origin_max, age_s
        self._by_origin: dict[str, list[Connection]] = {}
        self._since: dict[Connection, tuple[str, float]] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since)

    def take(self, origin: str) -> "Connection | None":
        """Give the one that was used last, for it is the likeliest to be open still."""
        while waiting := self._by_origin.get(origin):
            connection = waiting[-1]
            since = self._since[connection][1]
            self._forget(connection)
            protocol = connection.protocol
            # should_close is also true of one on which bytes came that nobody asked for.
            if protocol is not None and protocol.is_connected() and not protocol.should_close and monotonic() - since < self._age_s:
                return connection
            connection.close()
        return None

    def put(self, origin: str, connection: "Connection") -> None:
        """Keep it, unless something is left on it that the next request would meet."""
        protocol = connection.protocol
        if protocol is None or protocol.writing_paused or protocol.should_close or not _is_quiet(protocol):
            connection.close()
            return
        # Without a parser, bytes that nobody asked for stay where should_close sees them.
        protocol._parser = None
        waiting = self._by_origin.setdefault(origin, [])
        waiting.append(connection)
        self._since[connection] = (origin, monotonic())
        if len(waiting) > self._per_origin_max:
            self._drop(waiting[0])
        if len(self._since) > self._count_max:
            self._drop(next(iter(self._since)))
        if self._sweeper is None and self._since:
            self._sweeper = asyncio.get_running_loop().call_later(self._age_s, self._sweep)

    def clear(self) -> None:
        """Close all of them."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._since):
            self._drop(connection)

    def _sweep(self) -> None:
        """The dictionary is in order of age, so the first that is young enough ends it."""
        self._sweeper = None
        now = monotonic()
        for connection, (_, since) in list(self._since.items()):
            if (left_s := since + self._age_s - now) > 0:
                self._sweeper = asyncio.get_running_loop().call_later(left_s, self._sweep)
                return
            self._drop(connection)

    def _drop(self, connection: "Connection") -> None:
        self._forget(connection)
        connection.close()

    def _forget(self, connection: "Connection") -> None:
        origin, _ = self._since.pop(connection)
        waiting = self._by_origin[origin]
        waiting.remove(connection)
        if not waiting:
            del self._by_origin[origin]


def _is_quiet(protocol: "ResponseHandler") -> bool:
    """Say whether nothing of another answer has come behind the one that was read."""
    try:
        return protocol._parser is not None and protocol._parser.feed_eof() is None
    except Exception:  # noqa: BLE001 - half a status line or half a header: no matter which error, it is not quiet
        return False


async def _past_informational(
    protocol: "ResponseHandler", message: "RawResponseMessage", payload: "StreamReader"
) -> tuple["RawResponseMessage", "StreamReader"]:
    for _ in range(INFORMATIONAL_MAX):
        # 101 ends HTTP on this connection, so it is the answer, although nobody asked for it.
        if message.code >= 200 or message.code == 101:
            return message, payload
        message, payload = await protocol.read()
    raise ValueError(f"more than {INFORMATIONAL_MAX} informational answers")


@contextmanager
def trying() -> Iterator[dict[str, str | None]]:
    """Collect the addresses that a connection comes to; the tasks in which aiohttp races several inherit the dictionary."""
    tried: dict[str, str | None] = {}
    token = _tried.set(tried)
    try:
        yield tried
    finally:
        _tried.reset(token)


def guarded_socket(allow_loopback: bool) -> "Callable[[AddrInfoType], socket.socket]":
    """Make a socket factory that judges each address just before the socket is connected to it."""

    def open_socket(addr_info: "AddrInfoType") -> socket.socket:
        family, kind, protocol, _, address = addr_info
        host = str(address[0])
        reason = why_refused(host, allow_loopback)
        if (tried := _tried.get()) is not None:
            tried[host] = reason
        if reason:
            raise AddressRefused(reason)
        return socket.socket(family, kind, protocol)

    return open_socket


def connect_timeout(seconds: float) -> aiohttp.ClientTimeout:
    """Bound name, connection and TLS together; aiohttp would round longer times up to a whole second."""
    return aiohttp.ClientTimeout(total=None, connect=seconds, ceil_threshold=float("inf"))


def elapsed_ms(started: float) -> int:
    """Milliseconds since `started`."""
    return int((monotonic() - started) * 1_000)


def answered(code: int, headers: Mapping[str, str], body: bytes, started: float) -> Answer:
    """Keep what the bounds allow of an answer; of a header that is there twice, the first."""
    kept: dict[str, str] = {}
    for name, value in headers.items():
        if len(kept) == HEADERS_MAX:
            break
        # aiohttp keeps bytes that are no UTF-8 as surrogates, which no record could be written with.
        readable = value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        kept.setdefault(name.lower(), readable[:HEADER_CHARACTERS_MAX])
    return Answer(code, elapsed_ms(started), kept, body[:KEPT_BYTES_MAX])


def not_connected(error: Exception, tried: Mapping[str, str | None], url: URL, timeout_s: float, started: float) -> Failure:
    """Say why there is no connection: the name, the address, TCP or TLS."""
    cause = error if isinstance(error, TimeoutError) else error.__cause__ or error  # a timeout's own cause is a cancellation
    where = f"{url.raw_host}:{url.port}"
    refused = [reason for reason in tried.values() if reason]
    if refused and len(refused) == len(tried):
        return Failure("address", _line("; ".join(refused)), elapsed_ms(started))
    if isinstance(cause, TimeoutError):
        text = f"no connection to {where} within {timeout_s:g} s" if tried else f"{url.raw_host} did not resolve within {timeout_s:g} s"
        return Failure("connect" if tried else "address", text, elapsed_ms(started), timed_out=True)
    if not tried:
        return Failure("address", _line(f"{url.raw_host} does not resolve: {_told(cause)}"), elapsed_ms(started))
    # A reset of a connection that TCP had opened comes from the handshake; where TCP itself is turned away, it is refused.
    if isinstance(cause, ssl.SSLError | ssl.CertificateError) or (url.scheme == "https" and _is_broken(cause)):
        return Failure("tls", _line(f"no TLS with {where}: {_told(cause)}"), elapsed_ms(started))
    return Failure("connect", _line(f"no connection to {where}: {_told(cause)}"), elapsed_ms(started))


def not_answered(error: Exception, sent: bool, timeout_s: float, started: float) -> Failure:
    """Say why a connection brought no answer; once the whole request was sent, the merchant may have it."""
    timed_out = isinstance(error, TimeoutError)
    if timed_out:
        text = f"{'no answer' if sent else 'the request was not taken'} within {timeout_s:g} s"
    elif isinstance(error, aiohttp.ServerDisconnectedError):
        text = f"the connection was closed {'before an answer came' if sent else 'during the request'}"
    elif isinstance(error, OSError):
        text = f"the connection broke {'before an answer came' if sent else 'during the request'}: {_told(error)}"
    else:
        text = f"the answer is not HTTP: {_told(error)}"
    return Failure("answer" if sent else "send", _line(text), elapsed_ms(started), timed_out=timed_out, ambiguous=sent)


def _is_broken(cause: BaseException) -> bool:
    return isinstance(cause, ConnectionResetError | ConnectionAbortedError | BrokenPipeError)


def _told(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, OSError) and error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return str(getattr(error, "strerror", None) or getattr(error, "message", None) or error) or type(error).__name__


def _line(text: str) -> str:
    return " ".join(text.split())[:ERROR_CHARACTERS_MAX]
