"""Which addresses and URLs a webhook may be sent to, and why another is refused.

An address is judged twice: in the URL that a person gives, and where the socket is opened, for a name can resolve to another address later.
The list is our own because `ipaddress.is_global` lets NAT64, 6to4, multicast and more pass.
"""

import re
import socket
import unicodedata
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from yarl import URL

URL_CHARACTERS_MAX = 2_048

_Network = IPv4Network | IPv6Network


def _networks(*table: tuple[str, str]) -> tuple[tuple[_Network, str], ...]:
    return tuple((ip_network(network), reason) for network, reason in table)


# The first match names the reason, so a narrow range stands before the wide one that holds it.
_REFUSED_V4 = _networks(
    ("169.254.169.254/32", "a cloud's metadata service"),
    ("168.63.129.16/32", "Azure's metadata service"),
    ("0.0.0.0/8", "this network"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "a carrier's shared range"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved for protocols"),
    ("192.0.2.0/24", "for documentation"),
    ("192.31.196.0/24", "AS112"),
    ("192.52.193.0/24", "a multicast relay"),
    ("192.88.99.0/24", "a 6to4 relay"),
    ("192.168.0.0/16", "private"),
    ("192.175.48.0/24", "AS112"),
    ("198.18.0.0/15", "for benchmarks"),
    ("198.51.100.0/24", "for documentation"),
    ("203.0.113.0/24", "for documentation"),
    ("224.0.0.0/4", "multicast"),
    ("255.255.255.255/32", "broadcast"),
    ("240.0.0.0/4", "reserved"),
)
# A form that carries an IPv4 address is refused whatever that address is: nobody needs it, and gateways differ in what they make of it.
_REFUSED_V6 = _networks(
    ("fd00:ec2::254/128", "a cloud's metadata service"),
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("::ffff:0:0/96", "an IPv4-mapped address"),
    ("::ffff:0:0:0/96", "an IPv4-translated address"),
    ("::/96", "an IPv4-compatible address"),
    ("64:ff9b::/96", "a NAT64 address"),
    ("64:ff9b:1::/48", "a NAT64 address"),
    ("100::/64", "discarded"),
    ("2001::/32", "a Teredo address"),
    ("2001:2::/48", "for benchmarks"),
    ("2001:3::/32", "a multicast relay"),
    ("2001:4:112::/48", "AS112"),
    ("2001:10::/28", "an ORCHID"),
    ("2001:20::/28", "an ORCHID"),
    ("2001::/23", "reserved for protocols"),
    ("2001:db8::/32", "for documentation"),
    ("2002::/16", "a 6to4 address"),
    ("2620:4f:8000::/48", "AS112"),
    ("3fff::/20", "for documentation"),
    ("fc00::/7", "private"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
)
_PUBLIC_V6 = IPv6Network("2000::/3")
_LOCAL_NAMES = (".local", ".internal")
_AUTHORITY = re.compile(r"(?:\[[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(?:%[^\[\]]*)?\]|[^:\[\]]+)(?::(?P<port>[0-9]{1,5}))?")
_NAME = re.compile(r"(?=.{1,253}\.?$)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


def why_refused(address: str, allow_loopback: bool) -> str | None:
    """Say why no socket may be connected to this literal IP address, or None if one may."""
    if "%" in address:
        return f"{address} has a scope, so it is not a public address"
    try:
        judged = ip_address(address)
    except ValueError:
        return f"{address!r} is not an IP address"
    if allow_loopback and _is_loopback(judged):
        return None
    for network, reason in _REFUSED_V4 if judged.version == 4 else _REFUSED_V6:
        if judged in network:
            return f"{address} is not a public address: {reason}"
    if isinstance(judged, IPv6Address) and judged not in _PUBLIC_V6:
        return f"{address} is not a public address: outside 2000::/3"
    return None


def why_url_refused(url: str, allow_loopback: bool) -> str | None:
    """Say why webhooks may not be sent to this URL, or None if they may."""
    if reason := _why_text_refused(url):
        return reason
    try:
        parsed = URL(url)
    except ValueError as error:
        return f"not a URL: {error}"
    if not (host := parsed.raw_host):
        return "has no host"
    if reason := _why_host_refused(host, allow_loopback):
        return reason
    # yarl gives the scheme in lower case.
    if parsed.scheme == "http" and not (allow_loopback and _is_local(host)):
        return "http is not encrypted: use https"
    return None


def _why_text_refused(url: str) -> str | None:
    """Judge the URL as it is written, for parsers differ in what they quietly mend."""
    if len(url) > URL_CHARACTERS_MAX:
        return f"is longer than {URL_CHARACTERS_MAX} characters"
    if any(unicodedata.category(character)[0] in "CZ" for character in url):
        return "has whitespace or control characters"
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.lower() not in {"https", "http"}:
        return "is not an https:// URL"
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        return "has a user name or password"
    if "\\" in url or "#" in url:
        return "has a backslash or a fragment (#)"
    if not authority:
        return "has no host"
    if not (written := _AUTHORITY.fullmatch(authority)):
        return f"{authority!r} is not a host, or a host and a port"
    if (port := written["port"]) and not 1 <= int(port) <= 65_535:
        return f"port {port} is not between 1 and 65535"
    return None


def _why_host_refused(host: str, allow_loopback: bool) -> str | None:
    if ":" in host:
        return why_refused(host, allow_loopback)
    bare = host.rstrip(".")
    if (meant := _as_ipv4(bare)) is not None:
        return why_refused(meant, allow_loopback) or (None if host == meant else f"{host} is {meant} in another notation: write {meant}")
    if not _NAME.fullmatch(host) or _NUMBER.fullmatch(bare.rpartition(".")[2]):
        return f"{host!r} is neither a name nor an address"
    if _is_localhost(bare):
        return None if allow_loopback else f"{host} is this machine"
    if f".{bare}".endswith(_LOCAL_NAMES):
        return f"{host} is a name of a local network"
    return None


def _as_ipv4(host: str) -> str | None:
    """Read a host as getaddrinfo would: 127.1, 2130706433, 0x7f000001 and 0177.0.0.1 are all 127.0.0.1."""
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def _is_local(host: str) -> bool:
    try:
        return _is_loopback(ip_address(host))
    except ValueError:
        return _is_localhost(host.rstrip("."))


def _is_localhost(name: str) -> bool:
    return f".{name}".endswith(".localhost")


def _is_loopback(address: IPv4Address | IPv6Address) -> bool:
    """A mapped ::ffff:127.0.0.1 is none: only the two plain forms are."""
    return address == IPv6Address("::1") or (address.version == 4 and address.is_loopback)
