"""Network modes of task.toml, and the spelling of `allowed_hosts`."""

from __future__ import annotations

import ipaddress
import re
from enum import StrEnum

from taskfold.contract import values


class NetworkMode(StrEnum):
    PUBLIC = "public"
    NO_NETWORK = "no-network"
    ALLOWLIST = "allowlist"


_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_WRITE = 'Write a host name, "*." and a host name, an IP address or a CIDR block.'


def allowed_host(entry: str) -> str:
    """One entry in its normal form: lower case, without white space around it and without a trailing dot."""
    host = entry.strip().lower().removesuffix(".")
    name = host.removeprefix("*.")
    if _is_address(name):
        if name != host:
            raise values.rule("has a wildcard in front of an address", _WRITE)
    elif len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise values.rule("is not a host", _WRITE)
    return host


def _is_address(text: str) -> bool:
    if "%" in text:  # zone ids mean something on one machine only
        return False
    try:
        ipaddress.ip_network(text, strict=True)
    except ValueError:
        return False
    return True


def check_policy(mode: NetworkMode | None, hosts: tuple[str, ...] | None, *, tolerate_empty: bool) -> None:
    """`allowed_hosts` says something only in the mode "allowlist"; an empty list is harmless."""
    if hosts is None or mode is NetworkMode.ALLOWLIST or (tolerate_empty and not hosts):
        return
    remedy = 'Set network_mode = "allowlist" beside it, or remove it.'
    raise values.rule('needs network_mode = "allowlist"', remedy, "allowed_hosts")
