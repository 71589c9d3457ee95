"""A channel behind HTTP: signed requests, and what each kind of answer or failure means for the money.

    POST {url}/payouts                     idempotency_key, amount_minor, amount, currency, beneficiary, metadata
    GET  {url}/payouts/{idempotency_key}

Each answer is JSON: {"status": accepted | pending | success | failed | refused | not_found, "reference", "code", "message", "fee_minor"}.
A request carries `X-Hookline-Key`, `X-Hookline-Timestamp` (seconds), `Idempotency-Key`, for a submission `X-Hookline-Expires` (after
which it must not be taken), and `X-Hookline-Signature`: `sha256=` and the hex HMAC of `{timestamp}.{method}.{path}.{body}`.

An answer is believed only if it is one: what a proxy may have said instead is LOST for a submission, whose money may be on its way.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson
from yarl import URL

from streams.delivery.rules import retry_after_ms
from streams.errors import ConfigurationError
from streams.payouts.channels.port import Answer, Task
from streams.payouts.messages import Outcome
from streams.payouts.money import to_decimal

ANSWER_BYTES_MAX = 65_536
CONNECT_S = 5.0
TEXT_MAX = 500
STATUSES: Mapping[str, Outcome] = {
    "accepted": "ACCEPTED", "pending": "PENDING", "success": "SUCCESS", "failed": "FAILED", "refused": "REFUSED",
}  # fmt: skip
TRY_AGAIN = frozenset({401, 403, 408, 425, 429})
"""Codes by which a channel says that it has not taken a request: not allowed, too early, too many."""


def signature(secret: bytes, timestamp_s: int, method: str, path: str, body: bytes) -> str:
    """What proves that a request is ours and whole."""
    signed = f"{timestamp_s}.{method}.{path}.".encode() + body
    return "sha256=" + hmac.new(secret, signed, hashlib.sha256).hexdigest()


class HttpChannel:
    """One endpoint with our credentials there."""

    def __init__(self, url: str, key_id: str, secret: bytes, session: aiohttp.ClientSession, now_ms: Callable[[], int]) -> None:
        self._base = URL(url.rstrip("/"), encoded=True)
        if self._base.scheme not in ("http", "https") or not self._base.host:
            raise ConfigurationError(f"the channel's endpoint {url[:200]!r} is no http or https address: mend HOOKLINE_CHANNELS")
        self._key_id, self._secret, self._session, self._now_ms = key_id, secret, session, now_ms

    async def submit(self, task: Task, expires_ms: int) -> Answer:
        """Ask it to pay."""
        body = orjson.dumps(
            {
                "idempotency_key": task.idempotency_key,
                "amount_minor": task.amount_minor,
                "amount": to_decimal(task.amount_minor, task.currency),
                "currency": task.currency,
                "beneficiary": task.beneficiary,
                "metadata": task.metadata,
            }
        )
        headers = {"X-Hookline-Expires": str(expires_ms), "Content-Type": "application/json"}
        return await self._ask("POST", "/payouts", body, headers, task)

    async def poll(self, task: Task) -> Answer:
        """Ask how it stands."""
        return await self._ask("GET", f"/payouts/{quote(task.idempotency_key, safe='')}", b"", {}, task)

    async def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str], task: Task) -> Answer:
        url = URL(f"{self._base}{path}", encoded=True)
        timestamp_s = self._now_ms() // 1_000
        signed = {
            **headers,
            "Idempotency-Key": task.idempotency_key,
            "X-Hookline-Key": self._key_id,
            "X-Hookline-Timestamp": str(timestamp_s),
            "X-Hookline-Signature": signature(self._secret, timestamp_s, method, url.raw_path, body),
        }
        limit = aiohttp.ClientTimeout(total=task.timeout_ms / 1_000, sock_connect=CONNECT_S)
        try:
            async with self._session.request(
                method, url, data=body or None, headers=signed, timeout=limit, allow_redirects=False
            ) as response:
                found = await _read(response)
                waits = response.headers.get("retry-after", "")
                return judge(method, response.status, found, retry_after_ms(waits, self._now_ms()) if waits else None)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            return Answer("ERROR", detail=f"no connection: {error}"[:TEXT_MAX])
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Answer("LOST", detail=f"sent, and no answer: {type(error).__name__} {error}"[:TEXT_MAX])


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The answer, as far as one may be long."""
    read = bytearray()
    async for chunk in response.content.iter_chunked(16_384):
        read += chunk
        if len(read) > ANSWER_BYTES_MAX:
            return b""
    return bytes(read)


def judge(method: str, code: int, body: bytes, waits_ms: int | None) -> Answer:
    """What an HTTP answer means. Pure."""
    told = _told(body)
    status, fee = _text(told, "status") or "", told.get("fee_minor")

    def answer(outcome: Outcome, waits_ms: int | None = None) -> Answer:
        usual = None if outcome in ("ACCEPTED", "PENDING", "SUCCESS") else f"http_{code}"
        code_told = _text(told, "code") or usual
        return Answer(outcome, _text(told, "reference"), code_told, _text(told, "message"), fee if type(fee) is int else None, waits_ms)

    if 200 <= code < 300 and status in STATUSES:
        return answer(STATUSES[status])
    if status == "not_found" and code == 404 and method == "GET":
        return answer("NOT_FOUND")
    if status in ("refused", "failed") and code in (400, 402, 409, 422):
        return answer(STATUSES[status])
    return answer("ERROR" if code in TRY_AGAIN else "LOST", waits_ms)


def _told(body: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(told: dict[str, Any], name: str) -> str | None:
    found = told.get(name)
    return found[:TEXT_MAX] if isinstance(found, str) and found else None
