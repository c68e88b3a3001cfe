"""The terminal of whoever sits here, passed through to a program in a sandbox.

Guarantees: every key goes through, Ctrl-C included; the window's size is told, and told again when it changes; the
terminal is left as it was found, whatever happens. Nothing is started and nothing is read where stdin is no terminal.
"""

import asyncio
import contextlib
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator

from taskfold.effects import errors
from taskfold.effects import exec as execs

READ_BYTES = 4096


def is_one() -> bool:
    """Whether somebody sits here: input and output are terminals."""
    return os.isatty(sys.stdin.fileno()) and os.isatty(sys.stdout.fileno())


async def passed_through(stream: execs.ExecStream) -> int:
    """Until the program ends; its exit code."""
    keys: asyncio.Queue[bytes] = asyncio.Queue()
    resized = asyncio.Event()
    resized.set()
    with _raw(sys.stdin.fileno()), _watched(keys, resized):
        async with execs.alongside(_typed(stream, keys)), execs.alongside(_sized(stream, resized)):
            async for data in stream.stdout():
                await asyncio.to_thread(_write, bytes(data))
            return (await stream.wait()).code


async def _typed(stream: execs.ExecStream, keys: "asyncio.Queue[bytes]") -> None:
    with contextlib.suppress(errors.ExecError):  # the reading side tells how it ended
        while data := await keys.get():
            await stream.send(data)
        await stream.close_stdin()


async def _sized(stream: execs.ExecStream, resized: asyncio.Event) -> None:
    with contextlib.suppress(errors.ExecError):
        while True:
            await resized.wait()
            resized.clear()
            columns, rows = os.get_terminal_size(sys.stdout.fileno())
            await stream.resize(columns, rows)


@contextlib.contextmanager
def _raw(terminal: int) -> Iterator[None]:
    before = termios.tcgetattr(terminal)
    try:
        tty.setraw(terminal)
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _watched(keys: "asyncio.Queue[bytes]", resized: asyncio.Event) -> Iterator[None]:
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()

    def typed() -> None:
        data = os.read(terminal, READ_BYTES)
        if not data:
            loop.remove_reader(terminal)
        keys.put_nowait(data)

    loop.add_reader(terminal, typed)
    loop.add_signal_handler(signal.SIGWINCH, resized.set)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        loop.remove_signal_handler(signal.SIGWINCH)


def _write(data: bytes) -> None:
    out = sys.stdout.fileno()
    while data:
        data = data[os.write(out, data) :]
