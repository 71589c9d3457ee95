"""Posts a webhook through aiohttp's session: slower, and only where the installed aiohttp lacks what the fast path leans on."""

import asyncio
import importlib
import inspect
from collections.abc import AsyncIterator
from time import monotonic
from types import SimpleNamespace
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from streams.delivery.client import ANSWER_BYTES_MAX, answered, connect_timeout, not_answered, not_connected, trying
from streams.delivery.results import KEPT_BYTES_MAX, Result

# What the fast path uses of aiohttp below its documented surface.
_LEANS_ON: tuple[tuple[str, str, str], ...] = (
    ("aiohttp.connector:TCPConnector.connect", "parameters", "req traces timeout"),
    ("aiohttp.client_reqrep:ClientRequest.__init__", "parameters", "method url loop"),
    ("aiohttp.client_proto:ResponseHandler.set_response_params", "parameters", "read_until_eof auto_decompress read_bufsize"),
    ("aiohttp.client_proto:ResponseHandler", "names", "read should_close is_connected set_exception writing_paused _parser"),
    ("aiohttp.connector:Connection", "names", "protocol transport close"),
    ("aiohttp.streams:StreamReader", "names", "read_nowait readany is_eof at_eof set_exception"),
    ("aiohttp.http_parser:HttpResponseParser", "names", "feed_eof"),
    ("aiohttp.http_parser:RawResponseMessage", "names", "code headers"),
)

_ADDED_BY_AIOHTTP = ("accept", "accept-encoding", "content-type", "user-agent")


def what_aiohttp_lacks() -> list[str]:
    """Name what the fast path leans on and the installed aiohttp does not have."""
    return [f"{place}: {name}" for place, kind, names in _LEANS_ON for name in names.split() if not _has(place, kind, name)]


def _has(place: str, kind: str, name: str) -> bool:
    module, _, path = place.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return False
    return name in inspect.signature(found).parameters if kind == "parameters" else hasattr(found, name)


class _Progress:
    """How far one request has come."""

    def __init__(self, limit: asyncio.Timeout, answer_timeout_s: float) -> None:
        self.limit = limit
        self.answer_timeout_s = answer_timeout_s
        self.connected = self.sent = False

    def connect(self) -> None:
        """From here on, the time to answer runs."""
        self.connected = True
        self.limit.reschedule(asyncio.get_running_loop().time() + self.answer_timeout_s)

    async def pieces(self, body: bytes) -> AsyncIterator[bytes]:
        """Control comes back behind the yield when aiohttp has written the body."""
        yield body
        self.sent = True


class SessionClient:
    """Takes a connector that opens a connection for each request, for a session's pool may hand out one with unread bytes."""

    def __init__(self, connector: aiohttp.TCPConnector) -> None:
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(_connected)
        self._session = aiohttp.ClientSession(
            connector=connector,
            connector_owner=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            read_bufsize=ANSWER_BYTES_MAX,
            skip_auto_headers=_ADDED_BY_AIOHTTP,
            trace_configs=[trace],
        )

    async def close(self) -> None:
        """Close the session; the connector is its owner's to close."""
        await self._session.close()

    async def post(self, url: URL, headers: bytes, body: bytes, answer_timeout_s: float, connect_timeout_s: float) -> Result:
        """Post once and say what came of it."""
        started, kept = monotonic(), bytearray()
        response: aiohttp.ClientResponse | None = None
        progress = _Progress(asyncio.timeout(None), answer_timeout_s)
        with trying() as tried:
            try:
                async with progress.limit:
                    response = await self._session.post(
                        url,
                        data=progress.pieces(body),
                        headers=_as_headers(headers, len(body)),
                        allow_redirects=False,
                        timeout=connect_timeout(connect_timeout_s),
                        trace_request_ctx=progress,
                    )
                    await _read(response, kept)
            except Exception as error:  # noqa: BLE001 - whatever it is, the attempt has failed, or its answer is cut short
                if response is None and not progress.connected:
                    return not_connected(error, tried, url, connect_timeout_s, started)
                if response is None:
                    return not_answered(error, progress.sent, answer_timeout_s, started)
            finally:
                if response is not None:
                    response.close()
        assert response is not None
        return answered(response.status, response.headers, bytes(kept), started)


async def _connected(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: aiohttp.TraceConnectionCreateEndParams) -> None:
    context.trace_request_ctx.connect()


async def _read(response: aiohttp.ClientResponse, kept: bytearray) -> None:
    count = 0
    while count < ANSWER_BYTES_MAX and (piece := await response.content.readany()):
        count += len(piece)
        if len(kept) < KEPT_BYTES_MAX:
            kept += piece


def _as_headers(lines: bytes, length: int) -> CIMultiDict[str]:
    pairs = (line.partition(":") for line in lines.decode("latin-1").split("\r\n") if line)
    return CIMultiDict([*((name, value.strip()) for name, _, value in pairs), ("content-length", str(length))])
