"""The server's certificate, and whose client certificates it takes: read again while it runs.

Guarantees: a handshake uses the files and the authority of today; a connection that was made under another authority is
told apart (`current`); nothing is resumed from an earlier handshake; files that do not fit together change nothing.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path


class _Context(ssl.SSLContext):
    """With what it was made of."""

    material: Material


@dataclass(frozen=True)
class Material:
    """PEM texts."""

    certificate: bytes
    key: bytes
    authority: str


class Handshakes:
    """The context that a listening socket is given, and those that each handshake really uses."""

    def __init__(self, certificate: Path, key: Path, authority: str) -> None:
        """OSError, ssl.SSLError, ValueError if they cannot be used."""
        self._certificate, self._key = certificate, key
        self._now = self._made(authority)
        self.listening = self._made(authority)
        self.listening.sni_callback = self._switch

    def renew(self, authority: str) -> bool:
        """Read the files again; True: something is new. Errors as of the constructor, and nothing is changed then."""
        if self._read(authority) == self._now.material:
            return False
        self._now = self._made(authority)
        return True

    def current(self, connection: ssl.SSLObject) -> bool:
        """Whether the client's certificate was verified against the authority of today."""
        context = connection.context
        return isinstance(context, _Context) and context.material.authority == self._now.material.authority

    def _switch(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._now

    def _read(self, authority: str) -> Material:
        return Material(self._certificate.read_bytes(), self._key.read_bytes(), authority)

    def _made(self, authority: str) -> _Context:
        context = _Context(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        # Optional, so that whoever comes without one gets an answer that says so.
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=authority)
        context.material = self._read(authority)
        context.load_cert_chain(self._certificate, self._key)
        return context
