"""The merchant's server of the tests does what its paths say, and its journal has all that it answered."""

import asyncio
import hashlib
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.sink import Certificate, Running, Sink, behaviour_of, journal_of, serving, started

LONG_S = 30.0
BODY = b'{"id":"evt_1"}'

Run = Callable[[Coroutine[Any, Any, None]], None]


def request(path: str, body: bytes = BODY, more: str = "") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: sink\r\nWebhook-Id: evt_1\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Caller:
    """One connection that says what it is told, byte for byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, sent: bytes) -> tuple[int, dict[str, str]]:
        self.writer.write(sent)
        return await self.answer()

    async def answer(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(LONG_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            line, *fields = head.strip().split("\r\n")
            headers = dict(each.split(": ") for each in fields)
            await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(line.split(" ")[1]), headers

    async def code(self, path: str) -> int:
        return (await self.ask(request(path)))[0]


@asynccontextmanager
async def calling(sink: Sink, trusting: ssl.SSLContext | None = None) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection("127.0.0.1", sink.port, ssl=trusting)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def until_received(sink: Sink, count: int) -> None:
    async with asyncio.timeout(LONG_S):
        while len(sink.requests) < count:  # noqa: ASYNC110 - it tells nobody that a request came
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/ok", 200),
        ("/ok/merchant-7?a=b", 200),
        ("/status/503", 503),
        ("/status/204", 204),
        ("/status/599/x", 599),
        ("/gone", 410),
        ("/x", 404),
    ],
)
async def test_a_path_says_which_code_is_answered(path: str, code: int) -> None:
    async with serving() as sink, calling(sink) as caller:
        assert [await caller.code(path) for _ in range(2)] == [code, code]

    assert [(each.path, each.code) for each in sink.requests] == [(path, code)] * 2


async def test_retry_after_is_told() -> None:
    async with serving() as sink, calling(sink) as caller:
        code, headers = await caller.ask(request("/retry-after/2"))

    assert (code, headers["retry-after"]) == (429, "2")


async def test_a_slow_path_answers_after_its_time_and_keeps_the_order_of_the_connection() -> None:
    async with serving() as sink, calling(sink) as slow, calling(sink) as other:
        began_s = time.monotonic()
        slow.writer.write(request("/slow/250") + request("/gone"))
        await until_received(sink, 1)
        assert await other.code("/ok") == 200
        assert [each.path for each in sink.requests] == ["/slow/250", "/ok"]
        assert ((await slow.answer())[0], (await slow.answer())[0]) == (200, 410)
        assert time.monotonic() - began_s >= 0.249


async def test_a_hanging_path_never_answers_and_its_request_is_recorded() -> None:
    async with serving() as sink, calling(sink) as hanging, calling(sink) as other:
        hanging.writer.write(request("/hang"))
        await until_received(sink, 1)
        assert await other.code("/ok") == 200
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(hanging.reader.read(1), 0.05)

    assert [each.code for each in sink.requests] == [None, 200]


async def test_a_flaky_path_fails_as_often_as_it_says_and_its_seed_repeats_it() -> None:
    async def codes(seed: int) -> list[int]:
        async with serving(seed=seed) as sink, calling(sink) as caller:
            return [await caller.code("/flaky/30") for _ in range(400)]

    first = await codes(1)
    assert set(first) == {200, 500}
    assert 80 <= first.count(500) <= 160
    assert first == await codes(1)
    assert first != await codes(2)


@pytest.mark.parametrize(("path", "code"), [("/flaky/0", 200), ("/flaky/100", 500)])
async def test_a_flaky_path_at_its_ends_is_certain(path: str, code: int) -> None:
    async with serving() as sink, calling(sink) as caller:
        assert {await caller.code(path) for _ in range(50)} == {code}


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_reset_ends_the_connection_without_an_answer(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as sink, calling(sink) as caller:
            with pytest.raises(ConnectionResetError):
                caller.writer.write(request("/reset"))
                await asyncio.wait_for(caller.reader.read(), LONG_S)
            assert [each.code for each in sink.requests] == [None]

    run(scenario())


async def test_a_request_is_recorded_as_it_came_with_its_connection() -> None:
    before_s = time.monotonic()
    async with serving() as sink, calling(sink) as first, calling(sink) as second:
        for caller in (first, second, first):
            await caller.ask(request("/ok?a=b", b"\x00\xff", "X-Two:  Words here \r\n"))

    assert sink.connections == 2
    assert [each.connection for each in sink.requests] == [1, 2, 1]
    one = sink.requests[0]
    assert (one.path, one.body) == ("/ok?a=b", b"\x00\xff")
    assert one.headers == {"host": "sink", "webhook-id": "evt_1", "x-two": "Words here", "content-length": "2"}
    assert before_s <= one.at_s <= time.monotonic()


async def test_a_request_in_pieces_is_recorded_once_and_half_of_one_never() -> None:
    whole = request("/ok", b"b" * 100_000)
    async with serving() as sink, calling(sink) as caller:
        for begin in range(0, len(whole), 9_999):
            caller.writer.write(whole[begin : begin + 9_999])
            await caller.writer.drain()
        assert (await caller.answer())[0] == 200
        caller.writer.write(whole[:-1])
        caller.writer.close()
        await caller.writer.wait_closed()
        async with calling(sink) as other:
            assert await other.code("/gone") == 410

    assert [(each.path, len(each.body)) for each in sink.requests] == [("/ok", 100_000), ("/gone", len(BODY))]


async def test_a_caller_that_asks_for_it_has_its_connection_closed_behind_the_answer() -> None:
    async with serving() as sink, calling(sink) as caller:
        assert (await caller.ask(request("/ok", more="Connection: close\r\n")))[0] == 200
        assert await asyncio.wait_for(caller.reader.read(), LONG_S) == b""


@pytest.mark.parametrize(
    "sent", [b"nonsense\r\n\r\n", request("/ok", more="Transfer-Encoding: chunked\r\n"), b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"]
)
async def test_what_is_no_request_is_refused_and_not_recorded(sent: bytes) -> None:
    async with serving() as sink, calling(sink) as caller:
        assert (await caller.ask(sent))[0] == 400
        assert await asyncio.wait_for(caller.reader.read(), LONG_S) == b""

    assert sink.requests == []


async def test_a_path_can_be_set_to_behave_otherwise_at_run_time() -> None:
    async with serving() as sink, calling(sink) as caller:
        assert await caller.code("/control/set?path=/x&behave=status/500") == 200
        assert await caller.code("/x?a=b") == 500
        sink.behave("/x", "gone")
        sink.behave("/ok", "status/503")
        assert [await caller.code(path) for path in ("/x", "/ok", "/ok/other")] == [410, 503, 200]

    assert [each.path for each in sink.requests] == ["/x?a=b", "/x", "/ok", "/ok/other"]


@pytest.mark.parametrize("asked", ["set?path=/x&behave=nothing", "set?path=/x", "set", "get?path=/x", "set?path=/x&behave=status/99"])
async def test_a_control_request_that_makes_no_sense_is_refused(asked: str) -> None:
    async with serving() as sink, calling(sink) as caller:
        assert await caller.code(f"/control/{asked}") == 400
        assert await caller.code("/x") == 404


@pytest.mark.parametrize("text", ["", "nothing", "status", "status/x", "status/600", "flaky/101", "slow/-1"])
def test_what_is_no_behaviour_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no behaviour|give"):
        behaviour_of(text)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_it_speaks_tls_under_a_certificate_of_its_own(run: Run) -> None:
    async def scenario() -> None:
        certificate = Certificate()
        async with serving(certificate=certificate) as sink:
            async with calling(sink, certificate.trusting()) as caller:
                assert await caller.code("/ok") == 200
            assert sink.url("/ok") == f"https://127.0.0.1:{sink.port}/ok"
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.open_connection("127.0.0.1", sink.port, ssl=Certificate().trusting())

    run(scenario())


def ask(running: Running, path: str) -> bytes:
    with socket.create_connection(("127.0.0.1", running.port), timeout=LONG_S) as calling:
        calling.sendall(request(path, more="X-Attempt: 1\r\nAuthorization: secret\r\n"))
        return calling.recv(1_000)


def test_as_a_process_its_journal_has_all_that_it_answered_when_it_is_killed(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with started("--journal", str(journal)) as running:
        before_ns = time.time_ns()
        answers = [ask(running, path) for path in ("/ok", "/status/503", "/control/set?path=/x&behave=gone", "/x")]
        running.process.send_signal(signal.SIGKILL)
        running.process.wait(LONG_S)

    assert [int(answer.split(b" ")[1]) for answer in answers] == [200, 503, 200, 410]
    lines = journal_of(journal)
    assert [(line["path"], line["code"]) for line in lines] == [("/ok", 200), ("/status/503", 503), ("/x", 410)]
    assert before_ns <= lines[0].pop("at_ns") <= time.time_ns()
    digest = hashlib.sha256(BODY).hexdigest()
    headers = {"webhook-id": "evt_1", "x-attempt": "1"}
    assert lines[0] == {"path": "/ok", "headers": headers, "sha256": digest, "length": len(BODY), "code": 200}


def test_a_journal_goes_on_where_the_process_before_left_it(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    for path in ("/ok", "/gone"):
        with started("--journal", str(journal)) as running:
            ask(running, path)
        assert running.process.returncode == 0

    assert [line["path"] for line in journal_of(journal)] == ["/ok", "/gone"]


def test_as_a_process_it_speaks_tls_and_says_whom_to_trust(tmp_path: Path) -> None:
    authority = tmp_path / "authority.pem"
    with started("--authority", str(authority)) as running:
        trusting = ssl.create_default_context(cafile=str(authority))
        for name in ("localhost", "m7.sink.localhost"):
            with (
                socket.create_connection(("127.0.0.1", running.port), timeout=LONG_S) as plain,
                trusting.wrap_socket(plain, server_hostname=name) as calling,
            ):
                calling.sendall(request("/ok"))
                assert calling.recv(1_000).startswith(b"HTTP/1.1 200 OK\r\n")
