"""What a sandbox may reach: network modes, the spelling of `allowed_hosts`, and what two restrictions come to together.

Guarantees: two restrictions together never allow what one of them does not; whatever allows the same by the same
entries is equal. Names and addresses are told apart by their spelling alone: nothing is looked up.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from pydantic_core import PydanticCustomError

from taskfold.contract import values

MAX_HOSTS = 256
"""Of one list. As names of 253 bytes they still fit, thrice, into the annotations of one pod (256 KiB)."""
MAX_NAME = 253


class NetworkMode(StrEnum):
    PUBLIC = "public"
    NO_NETWORK = "no-network"
    ALLOWLIST = "allowlist"


@dataclass(frozen=True)
class Network:
    """What a sandbox may reach: `of` makes one.

    `hosts`: of an allowlist, at least one, sorted, in their normal form, none that another one of them covers.
    """

    mode: NetworkMode
    hosts: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Host names, with `*.` in front for all names below one, at any depth, and not that one itself."""
        return tuple(host for host in self.hosts if not is_address(host))

    @property
    def addresses(self) -> tuple[str, ...]:
        """IP addresses and CIDR blocks."""
        return tuple(host for host in self.hosts if is_address(host))

    @property
    def restricted(self) -> bool:
        return self.mode is not NetworkMode.PUBLIC


PUBLIC = Network(NetworkMode.PUBLIC)
NO_NETWORK = Network(NetworkMode.NO_NETWORK)


def of(mode: NetworkMode | None, hosts: Iterable[str] | None) -> Network:
    """What a table says; None: nothing, which is public. An allowlist that names nobody is no network (C47).

    `hosts`: as `allowed_host` gives them.
    """
    if mode is NetworkMode.ALLOWLIST and hosts:
        distinct = set(hosts)
        return Network(mode, tuple(sorted(host for host in distinct if distinct.isdisjoint(_wider(host)))))
    return PUBLIC if mode in (None, NetworkMode.PUBLIC) else NO_NETWORK


def stricter(one: Network, other: Network) -> Network:
    """What both allow."""
    if NetworkMode.NO_NETWORK in (one.mode, other.mode):
        return NO_NETWORK
    if not one.restricted or not other.restricted:
        return other if not one.restricted else one
    pairs = ((one.hosts, set(other.hosts)), (other.hosts, set(one.hosts)))
    return of(
        NetworkMode.ALLOWLIST,
        [host for hosts, wide in pairs for host in hosts if host in wide or not wide.isdisjoint(_wider(host))],
    )


def is_address(host: str) -> bool:
    """Whether this entry is an address or a block, and no name."""
    return _block(host) is not None


def allows(wanted: Network, host: str) -> bool:
    """Whether this one host, an address or a name without "*." in its normal form, is allowed."""
    if wanted.mode is not NetworkMode.ALLOWLIST:
        return not wanted.restricted
    return host in wanted.hosts or not set(wanted.hosts).isdisjoint(_wider(host))


def _wider(host: str) -> Iterator[str]:
    """Every other entry that allows all that this one does: any two entries lie in each other, or have nothing in
    common."""
    block = _block(host)
    if block is None:
        labels = host.removeprefix("*.").split(".")
        yield from (f"*.{'.'.join(labels[start:])}" for start in range(1, len(labels)))
    else:
        yield from (_spelled(block.supernet(new_prefix=length)) for length in range(block.prefixlen))


Block = ipaddress.IPv4Network | ipaddress.IPv6Network
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_WRITE = 'Write a host name, "*." and a host name, an IP address or a CIDR block.'
_ALONE = "Write the host alone: an entry allows it, whatever is asked of it."


def allowed_host(entry: str) -> str:
    """One entry in its normal form, or what is wrong with it and what to write instead.

    Lower case, without white space around it and without a trailing dot; an address in its shortest spelling, a block
    of one address as that address.
    """
    host = entry.strip().lower().removesuffix(".")
    if not entry.strip().isascii():
        raise values.rule("is not written in ASCII", "Write a name of other letters as DNS does: xn--...")
    name = host.removeprefix("*.")
    block = _block(name)
    if block is not None:
        if name != host:
            raise values.rule("has a wildcard in front of an address", "Write a CIDR block for many addresses.")
        return _spelled(block)
    wrong = _wrong(host, name)
    if wrong is not None:
        raise wrong
    return host


def allowed_hosts(entries: tuple[str, ...]) -> tuple[str, ...]:
    """A list that is not too long."""
    if len(entries) > MAX_HOSTS:
        raise values.rule(f"has more than {MAX_HOSTS} entries", 'Allow a whole domain with "*." or a CIDR block.')
    return entries


def _wrong(host: str, name: str) -> PydanticCustomError | None:
    """What is wrong with an entry that is no address; None: it is a name. `name`: without "*." in front."""
    if not host:
        return values.rule("is empty", _WRITE)
    if "://" in host:
        return values.rule("is a URL", _ALONE)
    if set("[]") & set(host):
        return values.rule("has brackets", "Write an IPv6 address without them, and no port.")
    if "%" in host:
        return values.rule("has a zone, which means something on one machine only", "Write the address without it.")
    if "/" in host:
        return _slashed(name)
    if "*" in name:
        return values.rule('has a "*" that is not "*." at its beginning', "Only whole labels in front may be open.")
    if host.count(":") > 1:
        return values.rule("is not an IPv6 address", _WRITE)
    if ":" in host:
        return values.rule("has a port", _ALONE)
    if "_" in host:
        return values.rule("has an underscore, which no host name has", _WRITE)
    if len(name) > MAX_NAME or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        return values.rule("is not a host", _WRITE)
    return None


def _slashed(name: str) -> PydanticCustomError:
    address, _, length = name.partition("/")
    if _block(address) is None:
        return values.rule("has a path", _ALONE)
    try:
        block = ipaddress.ip_network(name, strict=False)
    except ValueError:
        return values.rule("is not a CIDR block", 'Write one like "192.0.2.0/24".')
    if not length.isdecimal():
        return values.rule("is a block with a mask", f'Write "{block}".')
    return values.rule("has bits set behind its prefix", f'Write "{block}", or the address alone.')


def _block(text: str) -> Block | None:
    """The addresses that this entry stands for; None: it is none, or a name."""
    address, slash, length = text.partition("/")
    if "%" in address or (slash and not length.isdecimal()):
        return None
    try:
        return ipaddress.ip_network(text, strict=True)
    except ValueError:
        return None


def _spelled(block: Block) -> str:
    return str(block.network_address if block.prefixlen == block.max_prefixlen else block)


def check_policy(mode: NetworkMode | None, hosts: tuple[str, ...] | None, *, tolerate_empty: bool) -> None:
    """`allowed_hosts` says something only in the mode "allowlist"; an empty list is harmless."""
    if hosts is None or mode is NetworkMode.ALLOWLIST or (tolerate_empty and not hosts):
        return
    remedy = 'Set network_mode = "allowlist" beside it, or remove it.'
    raise values.rule('needs network_mode = "allowlist"', remedy, "allowed_hosts")
