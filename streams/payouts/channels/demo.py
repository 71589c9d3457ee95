"""A payment channel to try payouts with: it behaves as it is told, and keeps its own record of what it has paid."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
from aiohttp import web

from streams.payouts.channels.http import signature

Behaviour = Literal["success", "accepted", "failure", "refusal", "slow", "lost answer", "duplicate", "never final", "busy", "gibberish"]
TIMESTAMP_S_APART = 300


@dataclass
class Payment:
    """One key as the channel knows it."""

    key: str
    amount_minor: int
    status: str
    asked: int = 1
    polls: int = 0


@dataclass
class DemoChannel:
    """Answers HTTP as `http.py` describes. `behaves` chooses by the key, so that a test can mix them."""

    secret: bytes = b"demo"
    behaves: Callable[[str], Behaviour] = lambda key: "success"
    slow_s: float = 0.5
    polls_until_final: int = 1
    payments: dict[str, Payment] = field(default_factory=dict)
    requests: int = 0
    forged: int = 0

    def paid(self) -> dict[str, int]:
        """What it has really paid, by key."""
        return {payment.key: payment.amount_minor for payment in self.payments.values() if payment.status == "success"}

    async def take(self, request: web.Request) -> web.StreamResponse:
        """POST /payouts."""
        body = await request.read()
        if not self._is_signed(request, body):
            return web.json_response({"status": "error", "code": "bad_signature"}, status=401)
        if int(request.headers["X-Hookline-Expires"]) < time.time_ns() // 1_000_000:
            return web.json_response({"status": "error", "code": "expired"}, status=425)
        fields: dict[str, Any] = orjson.loads(body)
        key, behaviour = fields["idempotency_key"], self.behaves(fields["idempotency_key"])
        if behaviour == "busy" and key not in self.payments and self.requests % 3:
            return web.json_response({"status": "error"}, status=429, headers={"retry-after": "0"})
        known = self.payments.get(key)
        if known is None:
            known = self.payments[key] = Payment(key, fields["amount_minor"], _first_status(behaviour))
        else:
            known.asked += 1
        return await self._answer(request, known, behaviour)

    async def _answer(self, request: web.Request, payment: Payment, behaviour: Behaviour) -> web.StreamResponse:
        if behaviour == "slow":
            await asyncio.sleep(self.slow_s)
        if behaviour == "lost answer" and payment.asked == 1 and request.transport is not None:
            request.transport.abort()
        if behaviour == "gibberish" and payment.asked == 1:
            return web.Response(text="<html>502</html>", status=502)
        return self._told(payment)

    async def tell(self, request: web.Request) -> web.StreamResponse:
        """GET /payouts/{key}."""
        if not self._is_signed(request, b""):
            return web.json_response({"status": "error", "code": "bad_signature"}, status=401)
        payment = self.payments.get(request.match_info["key"])
        if payment is None:
            return web.json_response({"status": "not_found"}, status=404)
        payment.polls += 1
        if payment.status == "pending" and self.behaves(payment.key) != "never final" and payment.polls >= self.polls_until_final:
            payment.status = "success"
        return self._told(payment)

    def _told(self, payment: Payment) -> web.Response:
        return web.json_response({"status": payment.status, "reference": f"demo-{payment.key}", "code": f"demo_{payment.status}"})

    def _is_signed(self, request: web.Request, body: bytes) -> bool:
        self.requests += 1
        timestamp_s = int(request.headers.get("X-Hookline-Timestamp", "0"))
        expected = signature(self.secret, timestamp_s, request.method, request.url.raw_path, body)
        good = request.headers.get("X-Hookline-Signature") == expected and abs(time.time() - timestamp_s) < TIMESTAMP_S_APART
        self.forged += not good
        return good

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[str]:
        """Serve on this machine; gives the address."""
        app = web.Application()
        app.add_routes([web.post("/payouts", self.take), web.get("/payouts/{key}", self.tell)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def _first_status(behaviour: Behaviour) -> str:
    if behaviour == "failure":
        return "failed"
    if behaviour == "refusal":
        return "refused"
    return "pending" if behaviour in ("accepted", "never final") else "success"
