"""What comes of a POST, over real sockets: on the fast path with both event loops, and through the session."""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp.http_parser
import pytest
import trustme
import uvloop

from streams.delivery import client_fallback
from streams.delivery.client import ANSWER_BYTES_MAX, HEADER_CHARACTERS_MAX, HEADERS_MAX, INFORMATIONAL_MAX, Client
from streams.delivery.results import KEPT_BYTES_MAX, Answer, Failure

HEADERS = b"content-type: application/json\r\nwebhook-id: evt_1\r\n"
BODY = b'{"id":"evt_1"}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
UNTAKEABLE = b"x" * 32_000_000
"""More than the buffers of both sockets hold, so that it cannot be sent unless somebody reads."""
LONG_S = 60.0
"""For what must end for another reason than time."""

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Test = Callable[[], Coroutine[Any, Any, None]]
FAST = {"asyncio": asyncio.run, "uvloop": uvloop.run}


def on_fast_path(test: Test) -> Callable[..., None]:
    def tested(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        run(asyncio.wait_for(test(), 30))

    parametrized: Callable[..., None] = pytest.mark.parametrize("run", FAST.values(), ids=FAST.keys())(tested)
    return parametrized


def on_each_path(test: Test) -> Callable[..., None]:
    def tested(run: Callable[[Coroutine[Any, Any, None]], None], lacks: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        if lacks:
            monkeypatch.setattr(client_fallback, "what_aiohttp_lacks", lambda: lacks)
        run(asyncio.wait_for(test(), 30))

    paths = [(asyncio.run, []), (uvloop.run, []), (uvloop.run, ["all"])]
    parametrized: Callable[..., None] = pytest.mark.parametrize(("run", "lacks"), paths, ids=["asyncio", "uvloop", "session"])(tested)
    return parametrized


@dataclass
class Sink:
    """A merchant's server, and what it saw."""

    port: int = 0
    scheme: str = "http"
    connections: int = 0
    open: int = 0
    requests: list[tuple[bytes, bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}/hook?a=b"

    async def request(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        self.requests.append((head, body))
        return body


@contextlib.asynccontextmanager
async def serving(make: Callable[[Sink], Handler], tls: ssl.SSLContext | None = None) -> AsyncIterator[Sink]:
    sink, tasks = Sink(scheme="https" if tls else "http"), set[asyncio.Task[None]]()
    handler = make(sink)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        sink.connections, sink.open = sink.connections + 1, sink.open + 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await handler(reader, writer)
        finally:
            sink.open -= 1
            writer.close()

    # The limit keeps the server from reading ahead, which a test of a server that does not read depends on.
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls, limit=4_096)
    sink.port = server.sockets[0].getsockname()[1]
    try:
        yield sink
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(*answers: bytes, close: bool = False) -> Callable[[Sink], Handler]:
    """Answer the nth request, over all connections, with the nth answer, and the rest with the last."""

    def make(sink: Sink) -> Handler:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                await sink.request(reader)
                writer.write(answers[min(len(sink.requests), len(answers)) - 1])
                await writer.drain()
                if close:
                    return

        return handler

    return make


def client(**changes: Any) -> Client:
    return Client(**{"allow_loopback": True, **changes})


async def post(to: Client, sink: Sink, body: bytes = BODY, answer_timeout_s: float = LONG_S) -> Answer | Failure:
    return await to.post(sink.url, HEADERS, body, answer_timeout_s)


async def post_to(make: Callable[[Sink], Handler], body: bytes = BODY, answer_timeout_s: float = LONG_S) -> Answer | Failure:
    async with serving(make) as sink, client() as posting:
        return await post(posting, sink, body, answer_timeout_s)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - what it waits for is another process's or the transport's doing: nobody sets an event
        await asyncio.sleep(0.005)


def failed(result: Answer | Failure) -> tuple[str, bool, bool]:
    """Stage, timed out, ambiguous."""
    assert isinstance(result, Failure), result
    assert result.error
    return result.stage, result.timed_out, result.ambiguous


def code(result: Answer | Failure) -> int:
    assert isinstance(result, Answer), result
    return result.code


def reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@on_each_path
async def test_an_answer_is_told_with_its_code_headers_and_body() -> None:
    result = await post_to(answering(b"HTTP/1.1 201 Created\r\nX-Trace: T1\r\nContent-Length: 4\r\n\r\nfine"))

    assert isinstance(result, Answer)
    assert (result.code, result.body, result.headers) == (201, b"fine", {"x-trace": "T1", "content-length": "4"})


@on_each_path
async def test_the_merchant_gets_exactly_the_request_that_was_given() -> None:
    async with serving(answering(OK)) as sink, client() as posting:
        await post(posting, sink)

    head, body = sink.requests[0]
    line, *fields = head.lower().strip().split(b"\r\n")
    assert (line, body) == (b"post /hook?a=b http/1.1", BODY)
    assert {*fields} - {b"connection: close"} == {
        b"host: localhost:%d" % sink.port,
        b"content-type: application/json",
        b"webhook-id: evt_1",
        b"content-length: %d" % len(BODY),
    }


@on_each_path
async def test_every_code_is_an_answer_and_no_redirect_is_followed() -> None:
    codes = [200, 204, 301, 302, 304, 307, 308, 400, 404, 410, 429, 500, 503]
    moved = b"HTTP/1.1 %d X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(*(moved % each for each in codes))) as sink, client() as posting:
        assert [code(await post(posting, sink)) for _ in codes] == codes

    assert len(sink.requests) == len(codes)


@on_each_path
async def test_of_a_long_body_the_first_part_is_kept() -> None:
    result = await post_to(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"0123456789" * 500))

    assert isinstance(result, Answer)
    assert result.body == (b"0123456789" * 500)[:KEPT_BYTES_MAX]


@on_each_path
async def test_an_endless_body_is_read_up_to_the_bound_and_its_connection_closed() -> None:
    sent = 0

    def make(sink: Sink) -> Handler:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await sink.request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
            while True:
                writer.write(b"y" * 10_000)
                await writer.drain()
                sent += 10_000

        return handler

    async with serving(make) as sink, client() as posting:
        result = await post(posting, sink)
        await until(lambda: sink.open == 0)

    assert isinstance(result, Answer)
    assert (result.code, len(result.body)) == (200, KEPT_BYTES_MAX)
    assert sent < 1_000_000_000


@on_each_path
async def test_a_body_of_just_the_bound_is_an_answer() -> None:
    body = b"z" * ANSWER_BYTES_MAX
    assert code(await post_to(answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)))) == 200


@on_each_path
async def test_a_body_that_drips_is_cut_at_the_time_limit_and_is_still_an_answer() -> None:
    def make(sink: Sink) -> Handler:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await sink.request(reader)
            writer.write(b"HTTP/1.1 202 OK\r\nContent-Length: 1000000\r\n\r\nfirst")
            while True:
                await asyncio.sleep(0.01)
                writer.write(b".")
                await writer.drain()

        return handler

    async with serving(make) as sink, client() as posting:
        result = await post(posting, sink, answer_timeout_s=0.3)
        await until(lambda: sink.open == 0)

    assert isinstance(result, Answer)
    assert result.code == 202
    assert result.body.startswith(b"first")
    assert result.duration_ms >= 290


@on_each_path
async def test_a_body_that_breaks_off_is_still_an_answer() -> None:
    assert code(await post_to(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart", close=True))) == 200


@on_each_path
async def test_no_answer_in_time_is_ambiguous() -> None:
    result = await post_to(answering(b""), answer_timeout_s=0.2)

    assert failed(result) == ("answer", True, True)
    assert 190 <= result.duration_ms < 10_000


@on_each_path
async def test_half_a_header_in_time_is_no_answer() -> None:
    assert failed(await post_to(answering(b"HTTP/1.1 200 OK\r\nX-Half: "), answer_timeout_s=0.2)) == ("answer", True, True)


@on_each_path
async def test_a_refused_connection_fails_at_connect() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with client() as posting:
            result = await post(posting, Sink(port=unused.getsockname()[1]))

    assert failed(result) == ("connect", False, False)
    assert isinstance(result, Failure)
    assert "Connection refused" in result.error


@on_each_path
async def test_a_handshake_that_hangs_is_a_timeout_at_connect() -> None:
    def make(_: Sink) -> Handler:
        async def handler(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            while await reader.read(1_000):
                pass

        return handler

    async with serving(make) as sink, client(connect_timeout_s=LONG_S) as posting:
        result = await posting.post(f"https://localhost:{sink.port}/", HEADERS, BODY, LONG_S, connect_timeout_s=0.2)
        await until(lambda: sink.open == 0)

    assert failed(result) == ("connect", True, False)


def breaking(after: Callable[[Sink, asyncio.StreamReader], Awaitable[object]], with_reset: bool) -> Callable[[Sink], Handler]:
    def make(sink: Sink) -> Handler:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await after(sink, reader)
            if with_reset:
                reset(writer)

        return handler

    return make


@on_each_path
async def test_a_reset_during_the_request_is_a_failure_to_send() -> None:
    result = await post_to(breaking(lambda _, reader: reader.readexactly(10), with_reset=True), UNTAKEABLE)

    assert failed(result) == ("send", False, False)


@on_each_path
async def test_a_request_that_is_not_taken_in_time_is_a_failure_to_send() -> None:
    result = await post_to(breaking(lambda _, __: asyncio.sleep(LONG_S), with_reset=False), UNTAKEABLE, answer_timeout_s=0.3)

    assert failed(result) == ("send", True, False)


@on_each_path
async def test_a_reset_after_the_request_is_ambiguous() -> None:
    assert failed(await post_to(breaking(Sink.request, with_reset=True))) == ("answer", False, True)


@on_each_path
async def test_a_close_after_the_request_is_ambiguous() -> None:
    assert failed(await post_to(breaking(Sink.request, with_reset=False))) == ("answer", False, True)


@on_each_path
async def test_an_answer_before_the_whole_request_is_taken_is_an_answer() -> None:
    def make(_: Sink) -> Handler:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            await asyncio.sleep(LONG_S)

        return handler

    async with serving(make) as sink, client() as posting:
        assert code(await post(posting, sink, UNTAKEABLE)) == 413
        assert len(posting._idle) == 0


AUTHORITY = trustme.CA()


def tls_of(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@on_each_path
async def test_a_trusted_certificate_is_accepted() -> None:
    async with (
        serving(answering(OK), tls_of(AUTHORITY.issue_cert("localhost"))) as sink,
        client(ssl_context=trusting(AUTHORITY)) as posting,
    ):
        assert [code(await post(posting, sink)) for _ in range(3)] == [200, 200, 200]


@on_each_path
async def test_a_certificate_that_is_not_trusted_by_default_fails_at_tls() -> None:
    async with serving(answering(OK), tls_of(AUTHORITY.issue_cert("localhost"))) as sink, client() as posting:
        result = await post(posting, sink)

    assert failed(result) == ("tls", False, False)
    assert sink.requests == []


@pytest.mark.parametrize("name", ["other.example", "*.localhost", "127.0.0.1"])
async def test_a_certificate_for_another_host_fails_at_tls(name: str) -> None:
    async with (
        serving(answering(OK), tls_of(AUTHORITY.issue_cert(name))) as sink,
        client(ssl_context=trusting(AUTHORITY)) as posting,
    ):
        result = await post(posting, sink)

    assert failed(result) == ("tls", False, False)
    assert isinstance(result, Failure)
    assert "mismatch" in result.error.lower()


@on_each_path
async def test_an_expired_certificate_fails_at_tls() -> None:
    expired = AUTHORITY.issue_cert("localhost", not_before=datetime(2019, 1, 1, tzinfo=UTC), not_after=datetime(2020, 1, 1, tzinfo=UTC))
    async with serving(answering(OK), tls_of(expired)) as sink, client(ssl_context=trusting(AUTHORITY)) as posting:
        result = await post(posting, sink)

    assert failed(result) == ("tls", False, False)
    assert isinstance(result, Failure)
    assert "expired" in result.error


@on_each_path
async def test_a_server_without_tls_fails_at_tls() -> None:
    def make(_: Sink) -> Handler:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

        return handler

    async with serving(make) as sink, client() as posting:
        assert failed(await posting.post(f"https://localhost:{sink.port}/", HEADERS, BODY, LONG_S))[0] == "tls"


@on_each_path
async def test_a_close_in_the_handshake_fails_at_tls() -> None:
    async with serving(breaking(lambda _, reader: reader.read(10), with_reset=True)) as sink, client() as posting:
        assert failed(await posting.post(f"https://localhost:{sink.port}/", HEADERS, BODY, LONG_S))[0] == "tls"


@on_fast_path
async def test_requests_one_after_another_share_a_connection() -> None:
    async with serving(answering(OK)) as sink, client() as posting:
        assert [code(await post(posting, sink)) for _ in range(10)] == [200] * 10

    assert (sink.connections, len(sink.requests)) == (1, 10)


@on_fast_path
async def test_requests_over_tls_share_a_connection() -> None:
    tls = tls_of(AUTHORITY.issue_cert("localhost"))
    async with serving(answering(OK), tls) as sink, client(ssl_context=trusting(AUTHORITY)) as posting:
        assert [code(await post(posting, sink)) for _ in range(3)] == [200] * 3

    assert sink.connections == 1


def idle_protocols(posting: Client) -> list[Any]:
    return [connection.protocol for connection in posting._idle._since]


@on_fast_path
async def test_an_idle_connection_that_the_merchant_closed_is_not_a_failed_attempt() -> None:
    async with serving(answering(OK, close=True)) as sink, client() as posting:
        assert code(await post(posting, sink)) == 200
        await until(lambda: not any(protocol.is_connected() for protocol in idle_protocols(posting)))
        assert code(await post(posting, sink)) == 200

    assert (sink.connections, len(sink.requests)) == (2, 2)


class BlockingSink(threading.Thread):
    """A server on a thread, which can close a connection while the event loop stands still and cannot notice."""

    def __init__(self, with_reset: bool) -> None:
        super().__init__(daemon=True)
        self.with_reset = with_reset
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/"
        self.may_close, self.closed = threading.Event(), threading.Event()

    def run(self) -> None:
        with self.listener:
            first, _ = self.listener.accept()
            first.recv(10_000)
            first.sendall(OK)
            self.may_close.wait(30)
            if self.with_reset:
                first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            first.close()
            self.closed.set()
            second, _ = self.listener.accept()
            with second:
                second.recv(10_000)
                second.sendall(OK)
                second.recv(1)


async def post_after_an_unnoticed_close(sink: BlockingSink) -> Answer | Failure:
    sink.start()
    async with client() as posting:
        assert code(await posting.post(sink.url, HEADERS, BODY, LONG_S)) == 200
        sink.may_close.set()
        assert sink.closed.wait(30)
        return await posting.post(sink.url, HEADERS, BODY, LONG_S)


@on_fast_path
async def test_a_request_that_could_not_even_be_written_is_sent_on_a_fresh_connection() -> None:
    assert code(await post_after_an_unnoticed_close(BlockingSink(with_reset=True))) == 200


@on_fast_path
async def test_a_request_that_was_written_to_a_closed_connection_is_ambiguous_and_not_sent_again() -> None:
    assert failed(await post_after_an_unnoticed_close(BlockingSink(with_reset=False))) == ("answer", False, True)


def answering_all_at_once(count: int) -> Callable[[Sink], Handler]:
    """Answer when `count` requests are there, so that as many connections are open."""

    def make(sink: Sink) -> Handler:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                await sink.request(reader)
                await until(lambda: len(sink.requests) >= count)
                writer.write(OK)

        return handler

    return make


@on_fast_path
async def test_idle_connections_are_bounded_per_endpoint() -> None:
    async with serving(answering_all_at_once(6)) as sink, client(idle_per_endpoint_max=2) as posting:
        await asyncio.gather(*(post(posting, sink) for _ in range(6)))
        await until(lambda: sink.open == 2)
        assert len(posting._idle) == 2

    assert sink.connections == 6


@on_fast_path
async def test_idle_connections_are_bounded_in_all_and_the_oldest_makes_room() -> None:
    async with contextlib.AsyncExitStack() as stack:
        sinks = [await stack.enter_async_context(serving(answering(OK))) for _ in range(4)]
        posting = await stack.enter_async_context(client(idle_max=3))
        for sink in sinks:
            await post(posting, sink)
        await until(lambda: [sink.open for sink in sinks] == [0, 1, 1, 1])
        assert len(posting._idle) == 3


@on_fast_path
async def test_no_idle_connection_is_kept_where_none_is_allowed() -> None:
    async with serving(answering(OK)) as sink, client(idle_max=0) as posting:
        assert [code(await post(posting, sink)) for _ in range(3)] == [200] * 3
        await until(lambda: sink.open == 0)

    assert sink.connections == 3


@on_fast_path
async def test_idle_connections_are_closed_when_their_time_is_over() -> None:
    async with serving(answering(OK)) as sink, client(idle_s=0.05) as posting:
        await post(posting, sink)
        await until(lambda: sink.open == 0)
        assert len(posting._idle) == 0


@on_each_path
async def test_leaving_closes_every_connection() -> None:
    async with serving(answering_all_at_once(3)) as sink:
        async with client() as posting:
            await asyncio.gather(*(post(posting, sink) for _ in range(3)))
        await until(lambda: sink.open == 0)


@on_each_path
async def test_many_requests_at_once_each_get_their_own_answer() -> None:
    def make(sink: Sink) -> Handler:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                body = await sink.request(reader)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

        return handler

    async with serving(make) as sink, client() as posting:
        for _ in range(3):
            bodies = [b"body-%d" % i for i in range(50)]
            results = await asyncio.gather(*(post(posting, sink, body) for body in bodies))
            assert [result.body for result in results if isinstance(result, Answer)] == bodies


@on_each_path
async def test_a_chunked_body_is_read_to_its_end() -> None:
    def make(sink: Sink) -> Handler:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                await sink.request(reader)
                for piece in (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"3\r\none\r\n", b"3\r\ntwo\r\n", b"0\r\n\r\n"):
                    writer.write(piece)
                    await asyncio.sleep(0.005)

        return handler

    async with serving(make) as sink, client() as posting:
        for _ in range(2):
            result = await post(posting, sink)
            assert isinstance(result, Answer)
            assert (result.code, result.body) == (200, b"onetwo")


@on_each_path
async def test_informational_answers_are_passed_over() -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    async with serving(answering(early + OK)) as sink, client() as posting:
        for _ in range(2):
            result = await post(posting, sink)
            assert isinstance(result, Answer)
            assert (result.code, result.body) == (200, b"ok")


@on_fast_path
async def test_informational_answers_without_end_are_no_answer() -> None:
    assert failed(await post_to(answering(b"HTTP/1.1 102 Processing\r\n\r\n" * (INFORMATIONAL_MAX + 5)))) == ("answer", False, True)


@on_each_path
async def test_a_switch_of_protocols_is_an_answer_and_ends_the_connection() -> None:
    switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x00\x01"
    async with serving(answering(switch, OK)) as sink, client() as posting:
        assert [code(await post(posting, sink)) for _ in range(2)] == [101, 200]

    assert sink.connections == 2


@on_each_path
async def test_connection_close_and_http_1_0_end_the_connection() -> None:
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    old = b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with serving(answering(closing, old, OK)) as sink, client() as posting:
        assert [code(await post(posting, sink)) for _ in range(3)] == [200] * 3

    assert sink.connections == 3


@on_each_path
async def test_a_body_without_a_length_lasts_until_the_close() -> None:
    result = await post_to(answering(b"HTTP/1.1 200 OK\r\n\r\nall of it", close=True))

    assert isinstance(result, Answer)
    assert result.body == b"all of it"


@on_each_path
async def test_an_answer_that_is_not_http_is_ambiguous() -> None:
    for garbage in (
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x16\x03\x01\x00\x00",
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    ):
        result = await post_to(answering(garbage))
        assert failed(result) == ("answer", False, True)
        assert isinstance(result, Failure)
        assert "not HTTP" in result.error


@on_each_path
async def test_too_many_headers_are_no_answer() -> None:
    assert failed(await post_to(answering(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 10_000 + b"\r\n"))) == ("answer", False, True)


@on_each_path
async def test_bytes_behind_an_answer_do_not_reach_the_next_request() -> None:
    forged = b"HTTP/1.1 500 Forged\r\nContent-Length: 0\r\n\r\n"
    for extra in (forged, forged + forged, forged[:5], forged[:20], forged[:-2]):
        async with serving(answering(OK + extra, OK)) as sink, client() as posting:
            assert [code(await post(posting, sink)) for _ in range(2)] == [200, 200], extra
        assert sink.connections == 2, extra


@on_each_path
async def test_garbage_behind_an_answer_does_not_reach_the_next_request() -> None:
    async with serving(answering(OK + b"garbage", OK)) as sink, client() as posting:
        await post(posting, sink)
        assert code(await post(posting, sink)) == 200

    assert sink.connections == 2


@on_fast_path
async def test_bytes_on_an_idle_connection_do_not_reach_the_next_request() -> None:
    for late in (b"HTTP/1.1 500 Forged\r\nContent-Length: 0\r\n\r\n", b"HTT", b"\r\n", b"x" * 200_000):
        ready = asyncio.Event()

        def make(sink: Sink, late: bytes = late, ready: asyncio.Event = ready) -> Handler:
            async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await sink.request(reader)
                writer.write(OK)
                if len(sink.requests) == 1:
                    await ready.wait()
                    writer.write(late)
                await reader.read()

            return handler

        async with serving(make) as sink, client() as posting:
            assert code(await post(posting, sink)) == 200
            ready.set()
            await until(lambda posting=posting: all(protocol.should_close for protocol in idle_protocols(posting)))  # type: ignore[misc]
            assert code(await post(posting, sink)) == 200
        assert sink.connections == 2


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for lacks in ([], ["all"]):
        monkeypatch.setattr(client_fallback, "what_aiohttp_lacks", lambda lacks=lacks: lacks)
        assert code(asyncio.run(post_to(answering(OK)))) == 200


@on_each_path
async def test_cookies_are_not_sent_back() -> None:
    async with serving(answering(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n")) as sink, client() as posting:
        for _ in range(2):
            await post(posting, sink)

    assert not any(b"cookie" in head.lower() for head, _ in sink.requests)


@on_each_path
async def test_what_is_kept_of_the_headers_is_bounded_and_readable() -> None:
    many = b"".join(b"X-%d: %b\r\n" % (i, b"v" * 1_000) for i in range(40))
    result = await post_to(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Odd: \xff\xe9\r\nX-ODD: second\r\n" + many + b"\r\n"))

    assert isinstance(result, Answer)
    assert len(result.headers) == HEADERS_MAX
    assert max(map(len, result.headers.values())) == HEADER_CHARACTERS_MAX
    assert result.headers["x-odd"] == "\ufffd\ufffd"


@on_each_path
async def test_a_compressed_body_is_left_as_it_is() -> None:
    result = await post_to(answering(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\nnogzip"))

    assert isinstance(result, Answer)
    assert result.body == b"nogzip"


@on_each_path
async def test_a_cancelled_request_ends_its_connection() -> None:
    async with serving(answering(b"")) as sink, client() as posting:
        task = asyncio.create_task(post(posting, sink))
        await until(lambda: len(sink.requests) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: sink.open == 0)
        assert len(posting._idle) == 0


@on_each_path
async def test_a_url_or_address_that_is_refused_fails_at_address_and_nothing_is_connected() -> None:
    async with serving(answering(OK)) as sink, Client(allow_loopback=False) as strict, client() as posting:
        for url in (f"https://127.0.0.1:{sink.port}/", f"https://localhost:{sink.port}/", "http://merchant.example/", "nonsense"):
            assert failed(await strict.post(url, HEADERS, BODY, LONG_S)) == ("address", False, False)
        secret = await posting.post("https://user:secret@localhost/", HEADERS, BODY, LONG_S)
        assert failed(secret) == ("address", False, False)

    assert "secret" not in str(secret)
    assert sink.connections == 0


def test_the_installed_aiohttp_has_all_that_the_fast_path_leans_on() -> None:
    assert client_fallback.what_aiohttp_lacks() == []
    assert aiohttp.http_parser.HttpResponseParser.__module__ == "aiohttp._http_parser", "the parser written in C is not in use"


def test_what_a_new_aiohttp_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("aiohttp.client_proto.ResponseHandler.set_response_params")
    monkeypatch.delattr("aiohttp.streams.StreamReader.at_eof")
    monkeypatch.delattr("aiohttp.connector.Connection")

    assert {place.partition(":")[2] for place in client_fallback.what_aiohttp_lacks()} == {
        "ResponseHandler.set_response_params: read_until_eof",
        "ResponseHandler.set_response_params: auto_decompress",
        "ResponseHandler.set_response_params: read_bufsize",
        "StreamReader: at_eof",
        "Connection: protocol",
        "Connection: transport",
        "Connection: close",
    }


async def test_the_session_is_used_where_something_is_lacking_and_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with client() as posting:
        assert posting._fallback is None
    monkeypatch.setattr(client_fallback, "what_aiohttp_lacks", lambda: ["all"])
    async with client() as posting:
        assert isinstance(posting._fallback, client_fallback.SessionClient)
