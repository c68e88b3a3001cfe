"""`taskfold operator`: the process that the chart runs."""

import asyncio
import importlib
import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import ValidationError

from taskfold.api.settings import Settings
from taskfold.cli import exits
from taskfold.effects import credentials, errors


def operator(
    config: Annotated[
        Path | None,
        typer.Option(help="Settings as YAML; see docs/reference/settings.md.", show_default=False),
    ] = None,
) -> None:
    """Run the operator until it is told to end (SIGTERM)."""
    settings = _settings(config)
    _log(settings.log_format)
    from taskfold.engine import leading  # noqa: PLC0415 - other commands need nothing of the engine
    from taskfold.reading import server  # noqa: PLC0415 - nor of this

    async def work(health: Any) -> None:
        # In a thread: the lease is renewed meanwhile. Only now: a process that stands by needs little memory.
        engine = await asyncio.to_thread(importlib.import_module, "taskfold.engine.operator")
        await engine.serve(settings, source, health)

    try:
        source = credentials.find()
        with server.beside(settings):  # whether it leads or stands by
            leading.run(settings, source, work)
    except errors.EffectError as error:
        exits.fail(str(error), exits.INTERNAL)


def _settings(path: Path | None) -> Settings:
    if path is None:
        return Settings()
    try:
        return Settings.model_validate(yaml.safe_load(path.read_text()) or {})
    except (OSError, yaml.YAMLError) as error:
        exits.fail(f"{path}: {error}", exits.USAGE)
    except ValidationError as error:
        lines = [f"{path}: {'.'.join(map(str, e['loc']))} = {e['input']!r}: {e['msg']}" for e in error.errors()]
        exits.fail("\n".join(lines), exits.USAGE)


def _log(style: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _JsonLines() if style == "json" else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class _JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": moment,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in ("object", "uid", "key"):
            if hasattr(record, name):
                line[name] = getattr(record, name)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
