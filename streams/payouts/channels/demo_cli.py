"""`hookline payouts demo-channel`: a payment channel on this machine, to try payouts with."""

import asyncio
import json
import signal
from typing import Annotated, get_args

import typer

from streams.errors import ConfigurationError
from streams.payouts.channels.demo import Behaviour, DemoChannel

BEHAVIOURS: tuple[Behaviour, ...] = get_args(Behaviour)


def demo_channel(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Where it listens on this machine; 0 takes a free one.")] = 9998,
    channel: Annotated[str, typer.Option(help="Which channel it is to be, for the settings that it prints.")] = "mobile_wallet",
    behave: Annotated[str, typer.Option(help=f"How it answers: {', '.join(BEHAVIOURS)}.")] = "success",
) -> None:
    """Run a channel that pays nobody, until Ctrl-C. Prints the setting that `hookline run` takes to reach it.

    A payout whose id begins with a behaviour is answered so, spaces being dashes: never-final-1 never ends, failure-1 fails.
    """
    if behave not in BEHAVIOURS:
        raise ConfigurationError(f"{behave[:40]!r} is no behaviour of the demo channel: choose from {', '.join(BEHAVIOURS)}")
    try:
        asyncio.run(_serve(port, channel, next(each for each in BEHAVIOURS if each == behave)))
    except OSError as error:
        raise ConfigurationError(f"listening on port {port}: {error.strerror}. Give another with --port, or 0 for a free one") from None


def behaviour_of(key: str, otherwise: Behaviour) -> Behaviour:
    """How a payout is answered, by its key at the channel: merchant and id. Pure."""
    payout_id = key.rpartition("/")[2]
    return next((each for each in BEHAVIOURS if payout_id.startswith(f"{each.replace(' ', '-')}-")), otherwise)


async def _serve(port: int, channel: str, otherwise: Behaviour) -> None:
    demo = DemoChannel(behaves=lambda key: behaviour_of(key, otherwise))
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with demo.serving(port) as url:
        setting = {channel: {"url": url, "key_id": "demo", "secret": demo.secret.decode()}}
        typer.echo(f"HOOKLINE_CHANNELS='{json.dumps(setting)}'")
        await ended.wait()
