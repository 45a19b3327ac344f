"""A brake on guesses: who shows wrong tokens waits before another one is looked at.

| wrong so far | from one address the next is looked at |
| ------------ | -------------------------------------- |
| up to 4      | at once                                |
| 5, 6, 7, ... | after 1, 2, 4, 8, 8, ... seconds       |

From all addresses together, however many there are, it is five a second once fifty were wrong. Nobody is
locked out for longer than those seconds after the last guess that was looked at, and nothing waits here: who
is too early is told so. Of a request that comes through a proxy on this machine, the address is what the
proxy says: whoever can speak to the server from here can say many, and meets the brake for all of them.
"""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

FREE = 4
LONGEST_SECONDS = 8.0
FORGOTTEN_SECONDS = 900.0
MOST_ADDRESSES = 4096
"""Of so many addresses the failures are remembered; those that failed last stay."""

AT_ONCE = 50
PER_SECOND = 5.0

_NETWORK_BITS = 64
"""One household or machine has a whole IPv6 network of addresses."""


@dataclass(slots=True)
class _Failures:
    """What is remembered of an address: how often it failed, when last, and until when it has to wait."""

    count: int = 0
    last: float = 0.0
    until: float = 0.0


class Brake:
    """Says how long an address has to wait; for one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without failures; `clock` gives seconds."""
        self._clock = clock
        self._failures: OrderedDict[str, _Failures] = OrderedDict()
        self._left, self._filled = float(AT_ONCE), clock()

    def wait(self, address: str) -> float:
        """Return the seconds until a token from this address is looked at; 0 for now."""
        self._fill()
        known = self._failures.get(_network(address))
        for_itself = known.until - self._clock() if known is not None else 0.0
        for_all = (1.0 - self._left) / PER_SECOND
        return max(for_itself, for_all, 0.0)

    def failed(self, address: str) -> None:
        """Take note of a wrong token."""
        self._fill()
        self._left -= 1.0
        now, network = self._clock(), _network(address)
        known = self._failures.get(network)
        if known is None or now - known.last > FORGOTTEN_SECONDS:
            known = self._failures[network] = _Failures()
        known.count, known.last = known.count + 1, now
        if known.count > FREE:
            known.until = now + min(2.0 ** min(known.count - FREE - 1, 10), LONGEST_SECONDS)
        self._failures.move_to_end(network)
        if len(self._failures) > MOST_ADDRESSES:
            self._failures.popitem(last=False)

    def _fill(self) -> None:
        now = self._clock()
        self._left = min(AT_ONCE, self._left + (now - self._filled) * PER_SECOND)
        self._filled = now


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, _NETWORK_BITS), strict=False))
