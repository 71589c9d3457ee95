"""Money: integer minor units with their ISO 4217 currency, read from decimals and written as them. Pure."""

import re

from streams.errors import HooklineError

MINOR_MAX = 10**15
"""The largest amount that is taken: sums of a million of them still fit a 64-bit integer."""

_DECIMAL = re.compile(r"(\d{1,16})(?:\.(\d{1,16}))?", re.ASCII)
_BY_EXPONENT = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    2: "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CNY COP CRC CUP CVE CZK "
    "DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP "
    "LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB "
    "SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD UYU UZS VED VES WST XCD YER ZAR "
    "ZMW ZWG",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
EXPONENTS = {currency: exponent for exponent, currencies in _BY_EXPONENT.items() for currency in currencies.split()}
"""How many decimals each currency has."""


class BadAmount(HooklineError):
    """An amount or a currency that is not taken; its message is for whoever asked."""


def exponent_of(currency: str) -> int:
    """How many decimals a currency has."""
    try:
        return EXPONENTS[currency]
    except KeyError:
        raise BadAmount(f"{currency[:20]!r} is no ISO 4217 currency that is paid in: write three capitals, such as PKR") from None


def from_decimal(text: str, currency: str) -> int:
    """Read `1234.50` as minor units; refused where finer than the currency, for nobody could pay the rest."""
    exponent = exponent_of(currency)
    found = _DECIMAL.fullmatch(text)
    if found is None:
        raise BadAmount(f"{text[:40]!r} is no amount: write digits with a point, such as 1234.50, without sign, spaces or commas")
    whole, fraction = found[1], (found[2] or "").rstrip("0")
    if len(fraction) > exponent:
        raise BadAmount(f"{text} is finer than {currency}, which has {exponent} decimals")
    return checked_minor(int(whole + fraction.ljust(exponent, "0")))


def checked_minor(amount_minor: int) -> int:
    """An amount in minor units that can be paid, or a refusal."""
    if not 0 < amount_minor <= MINOR_MAX:
        raise BadAmount(f"an amount of {amount_minor} minor units is not paid: give one from 1 to {MINOR_MAX}")
    return amount_minor


def to_decimal(amount_minor: int, currency: str) -> str:
    """Write minor units as people read them, with all the decimals of their currency."""
    exponent = exponent_of(currency)
    sign, digits = "-" if amount_minor < 0 else "", str(abs(amount_minor)).rjust(exponent + 1, "0")
    return f"{sign}{digits[:-exponent]}.{digits[-exponent:]}" if exponent else sign + digits
