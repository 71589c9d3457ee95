"""The limits of delivery: the same bodies to the same merchants through aiohttp's session, with nothing kept, signed or retried.

Run: python -m bench.delivery_bare --bootstrap B --prefix P --loop post --port N --posts N [--authority FILE]
     python -m bench.delivery_bare --bootstrap B --prefix P --loop relay --port N

`post` makes so many as fast as it can, and says how many a second and how much CPU they took. `relay` posts each event that comes,
until it is told to stop.
"""

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import uvloop
from confluent_kafka import Consumer, Message, TopicPartition

from bench.bare import reading
from bench.ground import PARTITIONS
from bench.merchants import MERCHANTS, Loopback, body, trusting
from topology.topics import EVENTS

CONCURRENCY = 64
ANSWER_TIMEOUT_S = 10.0
READ_MAX, READ_S = 500, 0.05
SIGNED = {
    "content-type": "application/json",
    "user-agent": "Hookline/1.0",
    "webhook-timestamp": "1700000000",
    "webhook-signature": "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
}
"""Headers as long as ours."""


class Poster:
    """Posts through a session that is spared what it need not do."""

    def __init__(self, session: aiohttp.ClientSession, port: int, tls: bool) -> None:
        scheme = "https" if tls else "http"
        self._session, self._body = session, body()
        self._urls = [f"{scheme}://m{number}.sink.localhost:{port}/ok/m{number}" for number in range(MERCHANTS)]

    async def post(self, merchant: int, event_id: str) -> None:
        headers = {**SIGNED, "webhook-id": event_id}
        async with self._session.post(self._urls[merchant], data=self._body, headers=headers, allow_redirects=False) as response:
            await response.read()
            if response.status != 200:
                raise RuntimeError(f"posting to {self._urls[merchant]}: it answered {response.status}")


async def post_all(poster: Poster, posts: int) -> tuple[float, float]:
    """Posts a second, a good many at once, and CPU-seconds for 1,000; connections are opened meanwhile, as a worker's are."""
    left = iter(range(posts))

    async def keep_posting(numbers: Iterator[int]) -> None:
        for number in numbers:
            await poster.post(number % MERCHANTS, f"evt_{number:020d}")

    began_s, used_s = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(CONCURRENCY):
            tasks.create_task(keep_posting(left))
    return posts / (time.perf_counter() - began_s), (time.process_time() - used_s) * 1_000 / posts


async def relay(poster: Poster, consumer: Consumer) -> None:
    """Post each event as soon as it is read."""
    loop = asyncio.get_running_loop()

    def read() -> list[Message]:
        first = consumer.poll(READ_S)
        return [] if first is None else [first, *consumer.consume(READ_MAX, 0)]

    async with asyncio.TaskGroup() as tasks:
        while True:
            for message in await loop.run_in_executor(None, read):
                headers = dict(message.headers() or ())
                merchant = int((message.key() or b"")[1:])
                tasks.create_task(poster.post(merchant, headers["ce_id"].decode()))  # type: ignore[union-attr]


async def run(options: argparse.Namespace) -> None:
    connector = aiohttp.TCPConnector(limit=0, resolver=Loopback(), ssl=trusting(options.authority) or True)
    timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(connector=connector, cookie_jar=jar, auto_decompress=False, timeout=timeout) as session:
        poster = Poster(session, options.port, options.authority is not None)
        if options.loop == "post":
            print(*await post_all(poster, options.posts))
            return
        consumer = Consumer({**reading(options), "group.id": options.prefix + "relay", "fetch.wait.max.ms": 50})
        consumer.assign([TopicPartition(options.prefix + EVENTS.name, number, 0) for number in range(PARTITIONS)])
        await relay(poster, consumer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--loop", required=True, choices=("post", "relay"))
    parser.add_argument("--port", required=True, type=int)
    parser.add_argument("--posts", type=int)
    parser.add_argument("--authority", type=Path)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    uvloop.run(run(options))


if __name__ == "__main__":
    main()
