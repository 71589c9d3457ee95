"""The HTTP server of the `view` role: a page with the flow and this worker's shards, health and readiness."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from html import escape

from aiohttp import web

from streams.errors import ConfigurationError
from streams.log.machine import Machine
from streams.settings import Settings
from topology.render import flow_text

MACHINES = web.AppKey("machines", Sequence[Machine])
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="5"><title>Hookline</title>
<style>body{{font:15px/1.5 system-ui;max-width:76rem;margin:2rem auto;padding:0 1rem;color:#1c2430;background:#fbfbfa}}
table{{border-collapse:collapse}}td,th{{padding:.3rem .9rem .3rem 0;text-align:left}}th{{font-weight:600;color:#5b6675}}
pre{{background:#f1f1ee;padding:1rem;overflow-x:auto;font-size:13px}}.ok{{color:#0a7a3d}}.wait{{color:#a15c00}}</style>
<h1>Hookline</h1><p class="{mood}">{state}</p>
<table><tr><th>agent</th><th>shards at work</th><th>being restored</th><th>records in work</th><th>commits</th></tr>{rows}</table>
<h2>The flow</h2><pre>{flow}</pre></html>"""


@asynccontextmanager
async def serving(settings: Settings, machines: Sequence[Machine]) -> AsyncIterator[str]:
    """Serve until left; the address it serves at."""
    application = web.Application()
    application[MACHINES] = machines
    application.add_routes([web.get("/", page), web.get("/health", health), web.get("/ready", ready)])
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.http_host, settings.http_port).start()
    except OSError as error:
        await runner.cleanup()
        raise ConfigurationError(
            f"listening on {settings.http_host}:{settings.http_port}: {error.strerror}. "
            "Set HOOKLINE_HTTP_PORT to another port, or to 0 for a free one"
        ) from error
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}/"
    finally:
        await runner.cleanup()


async def page(request: web.Request) -> web.Response:
    """What runs here, for a person."""
    machines = request.app[MACHINES]
    rows = "".join(
        f"<tr><td>{escape(m.agent.name)}</td><td>{len(m.shards)}</td><td>{len(m.restoring)}</td><td>{m.in_work()}</td><td>{m.commits}</td></tr>"
        for m in machines
    )
    at_work = _is_ready(machines)
    body = PAGE.format(
        mood="ok" if at_work else "wait", state="At work." if at_work else "Waiting for its shards.", rows=rows, flow=escape(flow_text())
    )
    return web.Response(text=body, content_type="text/html")


async def health(request: web.Request) -> web.Response:
    """The process answers."""
    return web.json_response({"status": "ok"})


async def ready(request: web.Request) -> web.Response:
    """503 until every agent has its shards restored."""
    agents = {m.agent.name: {"shards": len(m.shards), "restoring": len(m.restoring), "inWork": m.in_work()} for m in request.app[MACHINES]}
    return web.json_response(
        {"ready": _is_ready(request.app[MACHINES]), "agents": agents}, status=200 if _is_ready(request.app[MACHINES]) else 503
    )


def _is_ready(machines: Sequence[Machine]) -> bool:
    return all(machine.restored.is_set() and not machine.restoring for machine in machines)
