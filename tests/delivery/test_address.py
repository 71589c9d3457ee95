"""Which addresses and URLs are refused, and which are not."""

import pytest

from streams.delivery.address import URL_CHARACTERS_MAX, why_refused, why_url_refused

REFUSED = [
    ("0.0.0.0", "this network"),
    ("0.255.255.255", "this network"),
    ("10.0.0.1", "private"),
    ("10.255.255.255", "private"),
    ("100.64.0.1", "carrier"),
    ("100.100.100.200", "carrier"),
    ("100.127.255.255", "carrier"),
    ("127.0.0.1", "loopback"),
    ("127.255.255.254", "loopback"),
    ("168.63.129.16", "Azure"),
    ("169.254.0.1", "link-local"),
    ("169.254.169.254", "metadata"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("192.0.0.192", "protocols"),
    ("192.0.2.1", "documentation"),
    ("192.31.196.1", "AS112"),
    ("192.52.193.1", "relay"),
    ("192.88.99.1", "6to4"),
    ("192.168.1.1", "private"),
    ("192.175.48.6", "AS112"),
    ("198.18.0.1", "benchmarks"),
    ("198.19.255.255", "benchmarks"),
    ("198.51.100.7", "documentation"),
    ("203.0.113.7", "documentation"),
    ("224.0.0.1", "multicast"),
    ("239.255.255.250", "multicast"),
    ("240.0.0.1", "reserved"),
    ("255.255.255.255", "broadcast"),
    ("::", "unspecified"),
    ("::1", "loopback"),
    ("::127.0.0.1", "IPv4-compatible"),
    ("::8.8.8.8", "IPv4-compatible"),
    ("::ffff:127.0.0.1", "IPv4-mapped"),
    ("::ffff:8.8.8.8", "IPv4-mapped"),
    ("::ffff:0:7f00:1", "IPv4-translated"),
    ("64:ff9b::7f00:1", "NAT64"),
    ("64:ff9b::808:808", "NAT64"),
    ("64:ff9b:1::1", "NAT64"),
    ("100::1", "discarded"),
    ("100:0:0:1::1", "outside"),
    ("2001::1", "Teredo"),
    ("2001:0:53aa:64c:0:7fff:80ff:fffe", "Teredo"),
    ("2001:2::1", "benchmarks"),
    ("2001:3::1", "relay"),
    ("2001:4:112::1", "AS112"),
    ("2001:10::1", "ORCHID"),
    ("2001:2f::1", "ORCHID"),
    ("2001:1ff::1", "protocols"),
    ("2001:db8::1", "documentation"),
    ("2002:7f00:1::", "6to4"),
    ("2002:808:808::1", "6to4"),
    ("2620:4f:8000::1", "AS112"),
    ("3fff::1", "documentation"),
    ("3fff:fff::1", "documentation"),
    ("4000::1", "outside"),
    ("5f00::1", "outside"),
    ("fc00::1", "private"),
    ("fd00:ec2::254", "metadata"),
    ("fd12:3456::1", "private"),
    ("fe80::1", "link-local"),
    ("fe80::1%eth0", "scope"),
    ("2606:4700::1111%eth0", "scope"),
    ("febf::1", "link-local"),
    ("fec0::1", "site-local"),
    ("ff02::1", "multicast"),
    ("", "not an IP address"),
    ("127.1", "not an IP address"),
    ("0177.0.0.1", "not an IP address"),
    ("2130706433", "not an IP address"),
    ("localhost", "not an IP address"),
    ("８.8.8.8", "not an IP address"),  # noqa: RUF001 - the look-alikes are what is tested
]
PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1"),
    *("168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.1", "192.0.3.1"),
    *("192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "203.0.112.255", "203.0.114.0", "223.255.255.255"),
    *("2000::1", "2001:200::1", "2001:4860:4860::8888", "2001:db9::1", "2003::1", "2606:4700::1111", "2a00:1450::1", "3ffe::1"),
]
LOOPBACK = ["127.0.0.1", "127.1.2.3", "::1"]


@pytest.mark.parametrize(("address", "reason"), REFUSED)
def test_an_address_that_is_not_public_is_refused_with_its_reason(address: str, reason: str) -> None:
    assert reason in (why_refused(address, allow_loopback=False) or "")


@pytest.mark.parametrize("address", PUBLIC)
@pytest.mark.parametrize("allow_loopback", [False, True])
def test_a_public_address_is_allowed(address: str, allow_loopback: bool) -> None:
    assert why_refused(address, allow_loopback) is None


@pytest.mark.parametrize("address", [address for address, _ in REFUSED if address not in LOOPBACK and address != "127.255.255.254"])
def test_allowing_loopback_allows_nothing_else(address: str) -> None:
    assert why_refused(address, allow_loopback=True)


@pytest.mark.parametrize("address", LOOPBACK)
def test_loopback_can_be_allowed(address: str) -> None:
    assert why_refused(address, allow_loopback=True) is None


URLS_REFUSED = [
    ("", "not an https"),
    ("merchant.example", "not an https"),
    ("//merchant.example/", "not an https"),
    ("https:merchant.example", "not an https"),
    ("https:/merchant.example", "not an https"),
    ("ftp://merchant.example/", "not an https"),
    ("file:///etc/passwd", "not an https"),
    ("gopher://merchant.example/", "not an https"),
    ("http://merchant.example/", "use https"),
    ("HTTP://merchant.example/", "use https"),
    ("https://", "no host"),
    ("https:///hook", "no host"),
    ("https://?a=b", "no host"),
    ("https://user@merchant.example/", "user name"),
    ("https://user:secret@merchant.example/", "user name"),
    ("https://@merchant.example/", "user name"),
    ("https://merchant.example@127.0.0.1/", "user name"),
    ("https://merchant.example/#part", "fragment"),
    ("https://merchant.example\\@127.0.0.1/", "user name"),
    ("https://merchant.example/a\\b", "backslash"),
    ("https://merchant.example:0/", "port 0"),
    ("https://merchant.example:65536/", "port 65536"),
    ("https://merchant.example:99999/", "port 99999"),
    ("https://merchant.example:123456/", "not a host"),
    ("https://merchant.example:+443/", "not a host"),
    ("https://merchant.example:/", "not a host"),
    ("https://merchant.example:https/", "not a host"),
    ("https://merchant.example:٤٤٣/", "not a host"),
    ("https://merchant.example:443:443/", "not a host"),
    ("https://:443/", "not a host"),
    (" https://merchant.example/", "whitespace"),
    ("https://merchant.example/ ", "whitespace"),
    ("https://merchant.example/a b", "whitespace"),
    ("https://merchant.example/\r\nx: y", "whitespace"),
    ("https://merchant.example/\x00", "whitespace"),
    ("https://merchant.example/\x7f", "whitespace"),
    ("https://merchant.example/\u2028", "whitespace"),
    ("https://mer\u200bchant.example/", "whitespace"),
    ("https://lo\u00adcalhost/", "whitespace"),
    ("https://" + "a" * URL_CHARACTERS_MAX, "longer"),
    ("https://" + "a" * 64 + ".example/", "neither"),
    ("https://a..example/", "neither"),
    ("https://.example/", "neither"),
    ("https://a!b.example/", "neither"),
    ("https://%6cocalhost/", "neither"),
    ("https://127%2e0%2e0%2e1/", "neither"),
    ("https://127.0.0.1%00.example/", "neither"),
    ("https://1.2.3.4.5/", "neither"),
    ("https://256.256.256.256/", "neither"),
    ("https://4294967296/", "neither"),
    ("https://merchant.0x7f/", "neither"),
    ("https://127.0.0.1/", "loopback"),
    ("https://127.0.0.1./", "loopback"),
    ("https://127.1/", "loopback"),
    ("https://127.0.1/", "loopback"),
    ("https://2130706433/", "loopback"),
    ("https://0x7f000001/", "loopback"),
    ("https://0X7F000001/", "loopback"),
    ("https://0x7f.0.0.1/", "loopback"),
    ("https://0177.0.0.1/", "loopback"),
    ("https://017700000001/", "loopback"),
    ("https://１２７.0.0.1/", "loopback"),  # noqa: RUF001 - the look-alikes are what is tested
    ("https://①②⑦.0.0.1/", "loopback"),
    ("https://127。0。0。1/", "loopback"),
    ("https://0/", "this network"),
    ("https://10.1/", "private"),
    ("https://0xa9fea9fe/", "metadata"),
    ("https://169.254.169.254/latest/meta-data", "metadata"),
    ("https://134744072/", "write 8.8.8.8"),
    ("https://8.8.8.8./", "write 8.8.8.8"),
    ("https://[::1]/", "loopback"),
    ("https://[::]/", "unspecified"),
    ("https://[0:0:0:0:0:0:0:1]/", "loopback"),
    ("https://[::ffff:127.0.0.1]/", "IPv4-mapped"),
    ("https://[::ffff:8.8.8.8]/", "IPv4-mapped"),
    ("https://[64:ff9b::127.0.0.1]/", "NAT64"),
    ("https://[fe80::1%25eth0]/", "scope"),
    ("https://[fd00:ec2::254]/", "metadata"),
    ("https://[::1/", "not a host"),
    ("https://[127.0.0.1]/", "not a host"),
    ("https://[v1.x]/", "not a host"),
    ("https://[:::]/", "not an IP address"),
    ("https://localhost/", "this machine"),
    ("https://LOCALHOST/", "this machine"),
    ("https://localhost./", "this machine"),
    ("https://api.localhost/", "this machine"),
    ("https://ｌｏｃａｌｈｏｓｔ/", "this machine"),  # noqa: RUF001 - the look-alikes are what is tested
    ("https://printer.local/", "local network"),
    ("https://local/", "local network"),
    ("https://metadata.google.internal/", "local network"),
    ("https://metadata.google.internal./", "local network"),
]
URLS_ALLOWED = [
    "https://merchant.example",
    "https://merchant.example/",
    "HTTPS://Merchant.Example/Hook",
    "https://merchant.example./hook",
    "https://merchant.example:8443/hook?token=a%20b&x=/y",
    "https://merchant.example:1/",
    "https://merchant.example:65535/",
    "https://merchant.example/a@b",
    "https://my_shop.merchant-1.example/hook",
    "https://münchen.example/hook/ä",
    "https://xn--mnchen-3ya.example/",
    "https://localhost.example/",
    "https://notlocalhost/",
    "https://internal.example/",
    "https://0x7f.example/",
    "https://8.8.8.8/hook",
    "https://[2606:4700::1111]:8443/hook",
]


@pytest.mark.parametrize(("url", "reason"), URLS_REFUSED)
def test_a_url_that_cannot_be_posted_to_is_refused_with_its_reason(url: str, reason: str) -> None:
    assert reason in (why_url_refused(url, allow_loopback=False) or "")


@pytest.mark.parametrize("url", URLS_ALLOWED)
@pytest.mark.parametrize("allow_loopback", [False, True])
def test_a_public_https_url_is_allowed(url: str, allow_loopback: bool) -> None:
    assert why_url_refused(url, allow_loopback) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080/hook",
        "http://[::1]:8080/hook",
        "http://localhost/",
        "http://api.localhost:9000/",
        "https://localhost/",
        "https://127.9.9.9/",
    ],
)
def test_development_may_post_to_loopback_also_without_tls(url: str) -> None:
    assert why_url_refused(url, allow_loopback=True) is None
    assert why_url_refused(url, allow_loopback=False)


@pytest.mark.parametrize(
    "url",
    [
        "http://merchant.example/",
        "http://8.8.8.8/",
        "http://10.0.0.1/",
        "http://[::ffff:127.0.0.1]/",
        "http://localhost.example/",
        "http://127.1/",
        "https://10.0.0.1/",
        "https://printer.local/",
        "https://metadata.google.internal/",
    ],
)
def test_development_may_post_to_nothing_else(url: str) -> None:
    assert why_url_refused(url, allow_loopback=True)


def test_a_refusal_does_not_repeat_a_password() -> None:
    assert "secret" not in (why_url_refused("https://user:secret@merchant.example/", allow_loopback=False) or "secret")
