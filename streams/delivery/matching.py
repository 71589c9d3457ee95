"""Whether a subscription wants an event: patterns over its type, and filters over its data. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

Scalar = str | int | float | bool | None

PATTERN_CHARS_MAX = 200
PATH_CHARS_MAX = 200
FILTER_VALUES_MAX = 100
VALUE_CHARS_MAX = 1_000
MISSING = object()


class Filter(msgspec.Struct, frozen=True):
    """A condition on the event's data: one of the values is at the path."""

    path: str
    values: tuple[Scalar, ...]


def matches(event_type: str, patterns: Sequence[str]) -> bool:
    """Tell whether one of the patterns is the type itself, `*`, or a prefix of it such as `payin.*`, which takes `payin.a.b` too."""
    return any(pattern in (event_type, "*") or (pattern.endswith(".*") and is_below(event_type, pattern[:-1])) for pattern in patterns)


def is_below(event_type: str, prefix: str) -> bool:
    """Tell whether a type goes on after a prefix that ends in a dot."""
    return event_type.startswith(prefix) and len(event_type) > len(prefix)


def why_pattern_refused(pattern: str) -> str | None:
    """Say why no subscription may have this pattern; None: it may."""
    if len(pattern) > PATTERN_CHARS_MAX:
        return f"an event type pattern has {len(pattern)} characters: give at most {PATTERN_CHARS_MAX}"
    if not pattern.isprintable() or any(character.isspace() for character in pattern):
        return f"the event type pattern {pattern!r} has spaces or control characters: leave them out"
    *parents, last = pattern.split(".")
    if not all(parents) or not last:
        return f"the event type pattern {pattern!r} has an empty part: write it as payin.success, payin.* or *"
    if any("*" in part for part in parents) or ("*" in last and last != "*"):
        return f"the event type pattern {pattern!r} has a * that is not its whole last part: write it as payin.success, payin.* or *"
    return None


def filter_holds(filters: Sequence[Filter], data: object) -> bool:
    """Tell whether all the filters hold for an event's decoded data."""
    return all(holds(each, data) for each in filters)


def holds(condition: Filter, data: object) -> bool:
    """Tell whether one of a filter's values is at its path, or is an item of the list that is there."""
    found = look_up(condition.path, data)
    if isinstance(found, list | tuple):
        return any(same(item, value) for item in found for value in condition.values)
    return any(same(found, value) for value in condition.values)


def look_up(path: str, data: object) -> object:
    """Follow a dotted path through objects; lists on the way are not entered."""
    for name in path.split("."):
        if not isinstance(data, Mapping) or name not in data:
            return MISSING
        data = data[name]
    return data


def same(found: object, value: Scalar) -> bool:
    """Compare as JSON does: 1 is 1.0, and true is not 1 although Python says so."""
    return found == value and isinstance(found, bool) == isinstance(value, bool)


def parse_filter(path: str, values_json: Sequence[str]) -> Filter:
    """Read a filter as a subscription has it, each value as JSON text; raise ValueError with the reason if it is refused."""
    if (why := why_filter_refused(path, values_json)) is not None:
        raise ValueError(why)
    return Filter(path, tuple(msgspec.json.decode(text) for text in values_json))


def why_filter_refused(path: str, values_json: Sequence[str]) -> str | None:
    """Say why no subscription may have this filter; None: it may."""
    if len(path) > PATH_CHARS_MAX:
        return f"a filter's path has {len(path)} characters: give at most {PATH_CHARS_MAX}"
    if not all(path.split(".")):
        return f"the filter path {path!r} has an empty part: write it as payer.country"
    if not 1 <= len(values_json) <= FILTER_VALUES_MAX:
        return f"the filter on {path!r} has {len(values_json)} values: give 1 to {FILTER_VALUES_MAX}"
    return next((f"the filter on {path!r} {why}" for why in map(why_value_refused, values_json) if why), None)


def why_value_refused(text: str) -> str | None:
    """Say why a filter may not compare with this JSON text; None: it may."""
    if len(text) > VALUE_CHARS_MAX:
        return f"has a value of {len(text)} characters: give at most {VALUE_CHARS_MAX}"
    try:
        value = msgspec.json.decode(text)
    except ValueError as error:
        return f'has the value {text!r}, which is not JSON ({error}): a string is written with its quotes, "PKR"'
    except RecursionError:
        value = []
    if isinstance(value, dict | list):
        return f"has the value {text!r}: give a string, a number, true, false or null"
    return None
