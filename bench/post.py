"""The bare limit of delivery: how many signed POSTs a second one process makes, when there is nothing else to do for them.

Run: python -m bench.post

It needs no broker. The merchants are a sink in a process of its own; the limit beside each figure is what aiohttp's session makes.
"""

import asyncio
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import aiohttp
import uvloop

from bench.ground import BenchmarkError, Ground
from bench.merchants import Loopback
from bench.registry import Measured, median_of
from bench.report import rounded
from streams.delivery.client import Client
from streams.delivery.payload import LATEST, body_of
from streams.delivery.profiles import PROFILES
from streams.delivery.results import Answer
from streams.delivery.sealing import new_secret
from streams.delivery.signing import Signer, signing_secret
from tests.sink import started

CONCURRENCY = 64
ENDPOINTS = 8
WARM_S, WATCH_S = 0.3, 1.0
ANSWER_TIMEOUT_S = 10.0

STANDARD = PROFILES["standard"]
BODY = body_of("evt_000000000001", "payin.success", 1_700_000_000_000, b'{"amount":"1250.00","note":"%b"}' % (b"n" * 300), LATEST, None)

Post = Callable[[int], Awaitable[int]]
"""Posts to the endpoint of this number, and gives the code of its answer."""


class Sinks(NamedTuple):
    """Where to post to: names of their own, so that each endpoint has its own connections."""

    urls: list[str]
    trusting: ssl.SSLContext | None


def signer() -> Signer:
    secret = signing_secret("s", "hmac-sha256", new_secret("hmac-sha256", bytes(32)), STANDARD.signature)
    return Signer(STANDARD, "sub_1", [secret], {})


def signed(by: Signer) -> bytes:
    return by.headers("evt_000000000001", "payin.success", 1, int(time.time()), BODY, None)


@asynccontextmanager
async def by_client(sinks: Sinks) -> AsyncIterator[Post]:
    """Post as the delivery agent does."""
    by = signer()
    async with Client(allow_loopback=True, resolver=Loopback(), ssl_context=sinks.trusting) as client:

        async def post(number: int) -> int:
            result = await client.post(sinks.urls[number], signed(by), BODY, ANSWER_TIMEOUT_S)
            if not isinstance(result, Answer):
                raise BenchmarkError(f"posting to {sinks.urls[number]}: {result.error}")
            return result.code

        yield post


@asynccontextmanager
async def by_session(sinks: Sinks) -> AsyncIterator[Post]:
    """Post through a session that is spared what it need not do: it signs each time, but takes headers that are parsed already."""
    by = signer()
    headers = by.visible_headers(signed(by))
    connector = aiohttp.TCPConnector(limit=0, resolver=Loopback(), ssl=sinks.trusting or True)
    timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(connector=connector, cookie_jar=jar, auto_decompress=False, timeout=timeout) as session:

        async def post(number: int) -> int:
            signed(by)
            async with session.post(sinks.urls[number], data=BODY, headers=headers, allow_redirects=False) as response:
                await response.read()
                return response.status

        yield post


WAYS = {"client": by_client, "session": by_session}


async def pace(way: str, sinks: Sinks) -> float:
    """Keep so many requests under way, and count the answers of a second, once every connection is open."""
    done, stopping = 0, False

    async def keep_posting(post: Post, number: int) -> None:
        nonlocal done
        while not stopping:
            if (code := await post(number)) != 200:
                raise BenchmarkError(f"posting to {sinks.urls[number]}: it answered {code}")
            done += 1

    async with WAYS[way](sinks) as post, asyncio.TaskGroup() as tasks:
        for number in range(CONCURRENCY):
            tasks.create_task(keep_posting(post, number % ENDPOINTS))
        await asyncio.sleep(WARM_S)
        before, began_s = done, time.perf_counter()
        await asyncio.sleep(WATCH_S)
        per_s = (done - before) / (time.perf_counter() - began_s)
        stopping = True
    return per_s


def posts_per_s(way: str, tls: bool, folder: Path) -> float:
    """Measure one way, `client` or `session`, against a sink that is there for nothing else."""
    authority = folder / "authority.pem"
    with started(*(["--authority", str(authority)] if tls else [])) as sink:
        scheme = "https" if tls else "http"
        urls = [f"{scheme}://m{number}.sink.localhost:{sink.port}/ok" for number in range(ENDPOINTS)]
        return uvloop.run(pace(way, Sinks(urls, ssl.create_default_context(cafile=str(authority)) if tls else None)))


def beside_session(ground: Ground, tls: bool) -> Measured:
    def once(_: int) -> Measured:
        return Measured(posts_per_s("client", tls, ground.folder), posts_per_s("session", tls, ground.folder))

    return median_of(ground, once, ",.0f")


def bare_post_per_s(ground: Ground) -> Measured:
    """Measure our client over plain HTTP, beside a session."""
    return beside_session(ground, tls=False)


def bare_post_tls_per_s(ground: Ground) -> Measured:
    """Measure our client over TLS, beside a session."""
    return beside_session(ground, tls=True)


def client_ratio_to_session(ground: Ground) -> Measured:
    """Measure how many times as many our client makes; a pair is measured in the same few seconds, so that noise falls on both."""

    def once(_: int) -> Measured:
        return Measured(posts_per_s("client", False, ground.folder) / posts_per_s("session", False, ground.folder), 1.0)

    return median_of(ground, once, ".2f")


FIGURES: dict[str, Callable[[Ground], Measured]] = {
    "bare_post_per_s": bare_post_per_s,
    "bare_post_tls_per_s": bare_post_tls_per_s,
    "client_ratio_to_session": client_ratio_to_session,
}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="hookline-bench-") as name:
        ground = Ground("", Path(name), "", partial(print, file=sys.stderr, flush=True))
        for figure, run in FIGURES.items():
            ground.tell(figure)
            measured = run(ground)
            print(f"{figure}: {rounded(measured.value):,} beside {rounded(measured.limit):,}", flush=True)


if __name__ == "__main__":
    main()
