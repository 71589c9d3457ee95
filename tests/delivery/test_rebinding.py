"""A name that changes its address cannot lead a webhook to where it may not go: asked of a real name server, over real sockets.

127.0.0.2 stands for a public address, and is judged to be one, so that nothing leaves this machine. What was found on the way:

- aiohttp asks the name server anew after 10 s at the earliest, whatever the record's own lifetime is. The judgement does not depend on
  it: it is made where a socket is opened, of the very address it is connected to, be that fresh or remembered.
- A kept connection is not judged again when it is used again, and need not be: it goes to the address that was judged when it was
  opened, whatever the name says by now, and only requests for the same scheme, name and port are sent on it. A merchant who moves
  is therefore followed when the old address closes the connection or when it was idle for too long.
- The session, our way out where the fast path is not to be had, keeps no connection: it is judged for every request.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, cast

import pytest
import uvloop
from aiohttp.abc import AbstractResolver, ResolveResult
from dnslib import AAAA, QTYPE, RR, A, DNSRecord  # type: ignore[import-untyped]

from streams.delivery import client, client_fallback
from streams.delivery.address import why_refused
from streams.delivery.client import Client
from streams.delivery.results import Answer, Failure
from tests.sink import Certificate, Sink, serving

NAME, OTHER_NAME = "merchant.example", "other.example"
PUBLIC = "127.0.0.2"
"""Judged as if it were public; all other addresses are judged as always."""
LONG_S = 30.0
TRIES_MAX = 20

REFUSED = [
    "127.0.0.1",
    "169.254.169.254",
    "10.0.0.1",
    "0.0.0.0",
    "::1",
    "::",
    "fd00:ec2::254",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::127.0.0.1",
    "2002:7f00:1::",
]
RECORD = {"A": A, "AAAA": AAAA}

Run = Callable[[Coroutine[Any, Any, None]], None]


class NameServer(asyncio.DatagramProtocol):
    """Answers for any name with the addresses it has now, and lets nobody keep them."""

    def __init__(self) -> None:
        self.addresses: dict[str, list[str]] = {}
        self.asked = 0
        self.port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)  # uvloop's is one in all but its type

    def datagram_received(self, data: bytes, caller: tuple[str | Any, int]) -> None:
        query = DNSRecord.parse(data)
        name, kind = str(query.q.qname).rstrip("."), QTYPE[query.q.qtype]
        reply = query.reply()
        for address in map(ip_address, self.addresses[name]):
            if kind == ("A" if address.version == 4 else "AAAA"):
                reply.add_answer(RR(query.q.qname, query.q.qtype, rdata=RECORD[kind](tuple(address.packed)), ttl=0))
        self.asked += 1
        self._transport.sendto(reply.pack(), caller)


class Question(asyncio.DatagramProtocol):
    """One question to the name server, and its reply."""

    def __init__(self) -> None:
        self.reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, _: tuple[str | Any, int]) -> None:
        self.reply.set_result(data)

    def error_received(self, error: Exception) -> None:
        self.reply.set_exception(error)


class Resolver(AbstractResolver):
    """Asks one name server for both kinds of address, and remembers nothing."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=address, port=port, family=of_kind, proto=0, flags=socket.AI_NUMERICHOST)
            for kind, of_kind in (("A", socket.AF_INET), ("AAAA", socket.AF_INET6))
            for address in await self._ask(host, kind)
        ]

    async def _ask(self, host: str, kind: str) -> list[str]:
        transport, question = await asyncio.get_running_loop().create_datagram_endpoint(Question, remote_addr=self._server)
        try:
            transport.sendto(DNSRecord.question(host, kind).pack())
            reply = DNSRecord.parse(await asyncio.wait_for(question.reply, LONG_S))
        finally:
            transport.close()
        return [str(ip_address(bytes(each.rdata.data))) for each in reply.rr]

    async def close(self) -> None:
        """Nothing is kept open."""


@asynccontextmanager
async def naming() -> AsyncIterator[NameServer]:
    transport, server = await asyncio.get_running_loop().create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 0))
    server.port = transport.get_extra_info("sockname")[1]
    try:
        yield server
    finally:
        transport.close()


@dataclass
class Watched:
    """What was judged, and what was connected to, in order."""

    judged: list[str]
    connected: list[str]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Judge PUBLIC to be public, and note every judgement and every call that connects a TCP socket."""
    seen, connect = Watched([], []), socket.socket.connect

    def judge(address: str, allow_loopback: bool) -> str | None:
        seen.judged.append(address)
        return None if address == PUBLIC else why_refused(address, allow_loopback)

    def note(self: socket.socket, address: Any) -> None:
        if self.type == socket.SOCK_STREAM:
            seen.connected.append(address[0])
        connect(self, address)

    monkeypatch.setattr(client, "why_refused", judge)
    monkeypatch.setattr(socket.socket, "connect", note)
    return seen


@pytest.fixture(params=["asyncio", "uvloop", "session"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a scenario on the fast path with each loop, and through the session."""
    if request.param == "session":
        monkeypatch.setattr(client_fallback, "what_aiohttp_lacks", lambda: ["all"])
    loop_run = asyncio.run if request.param == "asyncio" else uvloop.run
    return lambda scenario: loop_run(asyncio.wait_for(scenario, LONG_S))


def only_on(path: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("run", ["asyncio", "uvloop"] if path == "fast" else ["session"], indirect=True)


class Trap(asyncio.Protocol):
    """Listens where nothing may be sent to, and counts who comes."""

    def __init__(self) -> None:
        self.accepted = 0
        self.addresses: list[tuple[str, int]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.accepted += 1
        transport.close()

    async def has_caught_nothing(self) -> bool:
        """Come oneself, to each address: connections are accepted in order, so that an earlier one would have been counted before."""
        before = self.accepted
        for number, address in enumerate(self.addresses, 1):
            _, writer = await asyncio.open_connection(*address)
            await until(lambda number=number: self.accepted >= before + number)  # type: ignore[misc]
            writer.close()
        return before == 0 and self.accepted == len(self.addresses)


@dataclass
class Scene:
    names: NameServer
    merchant: Sink
    trap: Trap
    posting: Client

    def turn(self, *addresses: str, name: str = NAME) -> None:
        """Let a name have other addresses; those that the client remembers are forgotten, as they would be in ten seconds."""
        self.names.addresses[name] = list(addresses)
        self.posting._connector.clear_dns_cache()

    async def post(self, name: str = NAME) -> Answer | Failure:
        return await self.posting.post(f"https://{name}:{self.merchant.port}/ok", b"webhook-id: evt_1\r\n", b"{}", LONG_S)


@asynccontextmanager
async def scene(*, host: str = PUBLIC, allow_loopback: bool = False, keeps_connections: bool = False) -> AsyncIterator[Scene]:
    """Have a name server, a merchant, a client, and a trap on the merchant's port at the other addresses of this machine."""
    certificate, trap, loop = Certificate([NAME, OTHER_NAME]), Trap(), asyncio.get_running_loop()
    others = [each for each in ("127.0.0.1", "::1") if each != host and can_bind(each, 0)]
    port = port_free_at([host, *others])
    async with AsyncExitStack() as standing:
        names = await standing.enter_async_context(naming())
        merchant = await standing.enter_async_context(serving(host=host, port=port, certificate=certificate))
        for other in others:
            server = await loop.create_server(lambda: trap, other, port)
            standing.callback(server.close)
            trap.addresses.append((other, port))
        posting = await standing.enter_async_context(
            Client(
                allow_loopback=allow_loopback,
                idle_per_endpoint_max=10 if keeps_connections else 0,
                resolver=Resolver(names.port),
                ssl_context=certificate.trusting(),
            )
        )
        yield Scene(names, merchant, trap, posting)


def can_bind(address: str, port: int) -> bool:
    try:
        with socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET):
            return True
    except OSError:
        return False


def port_free_at(addresses: list[str]) -> int:
    for _ in range(TRIES_MAX):
        with socket.create_server((addresses[0], 0)) as first:
            port: int = first.getsockname()[1]
        if all(can_bind(address, port) for address in addresses):
            return port
    raise AssertionError(f"no port is free at all of {addresses}")


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - what it waits for is the transport's doing: nobody sets an event
        await asyncio.sleep(0.001)


def code(result: Answer | Failure) -> int:
    assert isinstance(result, Answer), result
    return result.code


def refused(result: Answer | Failure) -> str:
    assert isinstance(result, Failure), result
    assert (result.stage, result.timed_out, result.ambiguous) == ("address", False, False), result
    return result.error


@pytest.mark.parametrize("address", REFUSED)
def test_a_name_that_turns_to_a_refused_address_is_refused_at_its_next_connection(run: Run, watched: Watched, address: str) -> None:
    async def scenario() -> None:
        async with scene() as on:
            on.turn(PUBLIC)
            assert code(await on.post()) == 200
            on.turn(address)
            assert f"{ip_address(address)} is not a public address" in refused(await on.post())
            assert watched.judged == [PUBLIC, str(ip_address(address))]
            assert watched.connected == [PUBLIC]
            assert await on.trap.has_caught_nothing()

        assert on.merchant.connections == 1

    run(scenario())


def test_every_connection_is_judged_whatever_came_of_the_last(run: Run, watched: Watched) -> None:
    async def scenario() -> None:
        async with scene() as on:
            for _ in range(3):
                on.turn(PUBLIC)
                assert code(await on.post()) == 200
                on.turn("127.0.0.1")
                refused(await on.post())
            assert watched.judged == [PUBLIC, "127.0.0.1"] * 3
            assert watched.connected == [PUBLIC] * 3
            assert await on.trap.has_caught_nothing()

    run(scenario())


def test_a_remembered_address_is_judged_again_for_each_connection(run: Run, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with scene() as on:
            on.turn(PUBLIC)
            for _ in range(3):
                assert code(await on.post()) == 200
            asked = on.names.asked
            assert watched.judged == [PUBLIC] * 3
            monkeypatch.setattr(client, "why_refused", why_refused)
            assert "loopback" in refused(await on.post())
            assert on.names.asked == asked == 2, "the address was not remembered"
            assert watched.connected == [PUBLIC] * 3

    run(scenario())


@pytest.mark.parametrize("bad", ["10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1"])
@pytest.mark.parametrize("good_first", [True, False], ids=["good-first", "good-last"])
def test_of_a_good_and_a_refused_address_only_the_good_one_is_connected_to(run: Run, watched: Watched, bad: str, good_first: bool) -> None:
    async def scenario() -> None:
        async with scene(host="127.0.0.1", allow_loopback=True) as on:
            on.turn(*(("127.0.0.1", bad) if good_first else (bad, "127.0.0.1")))
            # aiohttp begins with another address each time it takes them from its memory.
            assert [code(await on.post()) for _ in range(6)] == [200] * 6

        assert watched.connected == ["127.0.0.1"] * 6
        assert str(ip_address(bad)) in watched.judged
        assert on.merchant.connections == 6

    run(scenario())


def test_where_every_address_is_refused_each_reason_is_told(run: Run, watched: Watched) -> None:
    async def scenario() -> None:
        async with scene() as on:
            on.turn("10.0.0.1", "169.254.169.254", "::1")
            error = refused(await on.post())
            assert watched.connected == []
            assert await on.trap.has_caught_nothing()

        assert all(told in error for told in ("10.0.0.1", "a cloud's metadata service", "::1"))

    run(scenario())


@only_on("fast")
def test_a_kept_connection_stays_at_the_address_that_was_judged_and_the_next_one_is_judged(run: Run, watched: Watched) -> None:
    async def scenario() -> None:
        async with scene(keeps_connections=True) as on:
            on.turn(PUBLIC)
            assert code(await on.post()) == 200
            on.turn("127.0.0.1")
            assert code(await on.post()) == 200
            assert [each.connection for each in on.merchant.requests] == [1, 1]
            assert watched.judged == watched.connected == [PUBLIC]

            await closed_by_merchant(on)
            assert "loopback" in refused(await on.post())
            assert watched.connected == [PUBLIC]
            assert await on.trap.has_caught_nothing()

    run(scenario())


async def closed_by_merchant(on: Scene) -> None:
    """Close its connections at the merchant's end, and wait until the client knows."""
    on.merchant.drop_connections()
    kept = [connection.protocol for connection in on.posting._idle._since]
    await until(lambda: all(protocol is None or not protocol.is_connected() for protocol in kept))


@only_on("fast")
def test_a_kept_connection_serves_no_other_name(run: Run, watched: Watched) -> None:
    async def scenario() -> None:
        async with scene(keeps_connections=True) as on:
            on.turn(PUBLIC)
            assert code(await on.post()) == 200
            on.turn("127.0.0.1", name=OTHER_NAME)
            refused(await on.post(OTHER_NAME))
            on.turn(PUBLIC, name=OTHER_NAME)
            assert code(await on.post(OTHER_NAME)) == 200
            assert code(await on.post()) == 200
            assert [each.connection for each in on.merchant.requests] == [1, 2, 1]
            assert watched.connected == [PUBLIC] * 2
            assert await on.trap.has_caught_nothing()

    run(scenario())


@only_on("session")
def test_the_session_keeps_no_connection_so_it_is_judged_for_every_request(run: Run, watched: Watched) -> None:
    async def scenario() -> None:
        async with scene(keeps_connections=True) as on:
            on.turn(PUBLIC)
            assert [code(await on.post()) for _ in range(2)] == [200, 200]
            assert [each.connection for each in on.merchant.requests] == [1, 2]
            on.turn("127.0.0.1")
            refused(await on.post())
            assert watched.judged == [PUBLIC, PUBLIC, "127.0.0.1"]
            assert await on.trap.has_caught_nothing()

    run(scenario())
