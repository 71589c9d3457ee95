"""What commands have in common on a terminal: what goes to stdout and what to stderr, JSON, and values that people can read."""

import getpass
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from schemas.instants import to_rfc3339
from streams.errors import ConfigurationError
from streams.logs import configure_logs
from streams.settings import settings

console = Console(highlight=False)
aside = Console(stderr=True, highlight=False, soft_wrap=True)
"""For progress and remarks: stdout is for what was asked."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
RequestedBy = Annotated[str | None, typer.Option("--by", help="Who asks; kept with the request. Unset: your login.")]


def only_warnings_are_logged() -> None:
    """Keep stdout for what was asked."""
    configure_logs("warning", settings().log_format)


def print_json(value: Any, *, indent: bool = True) -> None:
    """Print a value, indented or on one line; bytes as what they are for people."""
    typer.echo(orjson.dumps(plain(value), option=orjson.OPT_INDENT_2 if indent else None).decode())


def plain(value: Any) -> Any:
    """A value without bytes: those that are text as it, others as base64 under that name."""
    if isinstance(value, bytes):
        text = text_of(value)
        return text if text is not None else {"base64": b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(each) for each in value]
    return value


def text_of(value: bytes) -> str | None:
    """The text that bytes are; None: they are none that a terminal could show."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if all(character.isprintable() or character in "\n\r\t" for character in text) else None


def readable(name: str, value: Any) -> str:
    """A field's value for people."""
    if value is None:
        return "-"
    if name.endswith("_ms") and isinstance(value, int) and name != "duration_ms":
        return to_rfc3339(value)
    value = plain(value)
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def who(requested_by: str | None) -> str:
    """Name the person who asks."""
    if requested_by is not None:
        return requested_by
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise ConfigurationError("this process has no login that a request could be kept under: say who asks with --by") from None
