"""How lines are logged: one wide line per thing that happened, readable on a terminal and JSON otherwise."""

import logging
import sys
from typing import Any, Literal

import orjson
import structlog


def configure_logs(level: str, form: Literal["auto", "console", "json"]) -> None:
    """Set up structlog for this process, and let libraries' warnings through in the same form."""
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=not console, key="at"),
    ]
    ending: list[Any] = (
        [structlog.dev.ConsoleRenderer(timestamp_key="at", pad_event_to=24)]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_json)]
    )
    numeric = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(numeric),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending], foreign_pre_chain=shared
        )
    )
    logging.basicConfig(level=max(numeric, logging.WARNING), handlers=[handler], force=True)


def _json(line: Any, **_: Any) -> str:
    return orjson.dumps(line, default=str).decode()
