"""Runs a Python verifier in its sandbox: calls its `verify` and writes what that returns as the reward.

Guarantees: a reward file appears whole, at the end, and only if `verify` returned what it may return; whatever else
happens in it, none is left. Errors are told on stderr, with a traceback that starts in the verifier's own code. What
`verify` leaves behind (threads, children, a closed stdout) holds nothing up. Runs on Python 3.8, with its standard
library.

    run_verifier.py [FOLDER]    FOLDER: where the reward goes, else /logs/verifier
"""

import functools
import importlib.util
import inspect
import json
import math
import numbers
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Callable, Dict, List, NoReturn, Optional, Set, TextIO, Tuple, Union

SHIM = Path(__file__).resolve().parent
TESTS = SHIM.parent
REWARDS = Path("/logs/verifier")
REWARD_TXT = "reward.txt"
REWARD_JSON = "reward.json"
VENDORED = ("nemo_gym", "nemo_gym.verifiers", "nemo_gym.verifiers.files")
ARGUMENTS = ("workspace", "task_data", "response", "state")

Reward = Union[float, Dict[str, float]]


class ContractError(Exception):
    """The verifier is not what the contract wants; the message says what is, and what to do."""


def main() -> int:
    """The exit code: 0 with a reward, 1 without."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else REWARDS).resolve()
    errors = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace")
    try:
        available = _available(_workspace())
        _prepare_imports()
        verify = _verify_of(_load(_verifier_file()))
        reward = _checked(_call(verify, available))
        _write(folder, reward)
    except BaseException as error:  # sys.exit and KeyboardInterrupt too: nothing that ends `verify` is a reward
        _discard(folder)
        _tell(error, errors)
        return 1
    return 0


def _workspace() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise ContractError("the working directory is gone, so there is nothing to look at.") from None


def _available(workspace: Path) -> Dict[str, Any]:
    """The arguments there are. `response` is not among them when the agent gave none."""
    available = {"workspace": workspace, "task_data": _json(SHIM / "task_data.json"), "state": {"workspace": workspace}}
    if (SHIM / "response.json").exists():
        available["response"] = _json(SHIM / "response.json")
    return available


def _json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


# -- the module ----------------------------------------------------------------------------------------------------


def _verifier_file() -> Path:
    """The dataset's verifier lies beside this file, a task's own in its tests/ folder."""
    of_dataset = SHIM / "verifier.py"
    return of_dataset if of_dataset.exists() else TESTS / "verifier.py"


def _prepare_imports() -> None:
    """Our `nemo_gym`, whatever else has that name; then what the verifier may import.

    First the shim and tests/, last what PYTHONPATH names and the user's site-packages: the image may add modules in
    these ways, but what an agent can write there stands in for no module of Python or of the image.
    """
    for name in [name for name in sys.modules if name.partition(".")[0] == "nemo_gym"]:
        del sys.modules[name]
    for name in VENDORED:
        _vendored(name)
    sys.path[:0] = list(dict.fromkeys(map(str, (SHIM, _verifier_file().parent, TESTS))))
    late = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    late += [_user_site()]
    sys.path += [folder for folder in late if os.path.isabs(folder) and folder not in sys.path]


def _vendored(name: str) -> None:
    """Import a module of ours from its file, past every finder that others have put first."""
    file = SHIM.joinpath(*name.split("."))
    package = file.is_dir()
    place = file / "__init__.py" if package else file.with_suffix(".py")
    folders = [str(file)] if package else None
    module = _import(name, place, folders)
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)


def _import(name: str, file: Path, folders: Optional[List[str]] = None) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, str(file), submodule_search_locations=folders)
    if spec is None or spec.loader is None:
        raise ContractError(f"{file} cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _user_site() -> str:
    import site  # noqa: PLC0415  (loaded anyway, unless Python was started without it)

    return site.getusersitepackages()


def _load(file: Path) -> ModuleType:
    if not file.exists():
        raise ContractError(f"{file} is not there. Something has removed it since the verifier was put in place.")
    return _import("verifier", file)


def _verify_of(module: ModuleType) -> Callable[..., Any]:
    verify: Optional[Callable[..., Any]] = getattr(module, "verify", None)
    if verify is None:
        raise ContractError(f"{module.__file__} defines no verify. Define one: def verify(workspace, task_data): …")
    if not callable(verify):
        kind = type(verify).__name__
        raise ContractError(
            f"verify in {module.__file__} is of type {kind}, which cannot be called. Make it a function."
        )
    return verify


# -- the call ------------------------------------------------------------------------------------------------------


def _call(verify: Callable[..., Any], available: Dict[str, Any]) -> Any:
    positional, by_name = _bound(verify, available)
    result = verify(*positional, **by_name)
    return _awaited(result) if inspect.isawaitable(result) else result


def _bound(verify: Callable[..., Any], available: Dict[str, Any]) -> Tuple[List[Any], Dict[str, Any]]:
    """The arguments that `verify` declares. What a partial has bound by name stays as it is bound."""
    given = {name: value for name, value in available.items() if name not in _settled(verify)}
    positional: List[Any] = []
    by_name: Dict[str, Any] = {}
    takes_all = False
    for parameter in _parameters(verify):
        name, kind = parameter.name, parameter.kind
        if kind is parameter.VAR_POSITIONAL:
            continue
        if kind is parameter.VAR_KEYWORD:
            takes_all = True
        elif name in given:
            value = given.pop(name)
            if kind is parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                by_name[name] = value
        elif parameter.default is parameter.empty:
            raise ContractError(_unsupplied(name))
        elif kind is parameter.POSITIONAL_ONLY:
            positional.append(parameter.default)  # another one may follow
    return positional, {**by_name, **given} if takes_all else by_name


def _settled(verify: Any) -> Set[str]:
    names: Set[str] = set()
    while isinstance(verify, functools.partial):
        names.update(verify.keywords)
        verify = verify.func
    return names


def _parameters(verify: Callable[..., Any]) -> List[inspect.Parameter]:
    try:
        if sys.version_info >= (3, 14):  # where annotations may name what does not exist at run time
            import annotationlib  # noqa: PLC0415

            signature = inspect.signature(verify, annotation_format=annotationlib.Format.FORWARDREF)
        else:
            signature = inspect.signature(verify)
    except (TypeError, ValueError) as error:
        raise ContractError(
            f"the arguments of verify cannot be known ({error}). Make it a function that declares them."
        ) from None
    return list(signature.parameters.values())


def _unsupplied(name: str) -> str:
    if name == "response":
        return (
            "verify requires `response`, and the agent gave no final response. "
            "Give the argument a default (response=None) if the task can be graded without."
        )
    known = ", ".join(ARGUMENTS[:-1])
    return f"verify requires `{name}`, which there is not. It may declare {known} and {ARGUMENTS[-1]}."


def _awaited(result: Any) -> Any:
    """The result of an `async def`. Not asyncio.run, which would wait for threads that were left behind."""

    import asyncio  # noqa: PLC0415  (takes longer than all the rest, and most verifiers do without)

    async def wait() -> Any:
        return await result

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop.run_until_complete(wait())


# -- the reward ----------------------------------------------------------------------------------------------------


def _checked(value: Any) -> Reward:
    """What `verify` returned, if it is a finite number or a dict of such; else ContractError."""
    if not isinstance(value, dict):
        return _number(value, "verify returned")
    for key in value:
        if not isinstance(key, str):
            raise ContractError(f"verify returned a dict with the key {_shown(key)}. Keys must be strings.")
    if "reward" not in value and len(value) != 1:
        keys = f"the keys {', '.join(map(_shown, value))}" if value else "no key"
        raise ContractError(
            f"verify returned a dict without `reward` and with {keys}. "
            "Name the score `reward`; without that name there must be exactly one key, which is the score."
        )
    return {str(key): _number(each, f"verify returned, under {_shown(key)},") for key, each in value.items()}


def _number(value: Any, what: str) -> float:
    """Any real number; booleans are 1 and 0; numpy's scalars are what their item() is."""
    if not isinstance(value, numbers.Real) and _of_numpy(value):
        value = value.item()
    if not isinstance(value, numbers.Real):
        raise ContractError(
            f"{what} {_shown(value)}, which is of type {type(value).__name__} and no number. "
            "Return a number, or a dict of numbers."
        )
    try:
        number = float(value)
    except OverflowError:
        raise ContractError(f"{what} a number that is too large for a float. Return a smaller one.") from None
    if not math.isfinite(number):
        raise ContractError(f"{what} {number}. Return a finite number.")
    return number


def _of_numpy(value: Any) -> bool:
    """numpy's scalars; its arrays are not among them, even those of one number."""
    return any(kind.__module__ == "numpy" and kind.__name__ == "generic" for kind in type(value).__mro__)


def _shown(value: Any) -> str:
    """For a message: never long, whatever repr does."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else f"{text[:80]}…"


def _write(folder: Path, reward: Reward) -> None:
    """One reward file, and no other: complete under another name first, then renamed."""
    _discard(folder)
    name = REWARD_JSON if isinstance(reward, dict) else REWARD_TXT
    text = json.dumps(reward, allow_nan=False) if isinstance(reward, dict) else repr(reward)
    unfinished = folder / f".{name}.{os.getpid()}"
    descriptor = os.open(str(unfinished), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o644)  # whatever umask `verify` has set
            file.write(text + "\n")
        os.rename(str(unfinished), str(folder / name))
    except BaseException:
        os.unlink(str(unfinished))
        raise


def _discard(folder: Path) -> None:
    """What somebody else has written there is no reward: neither of an agent nor of a `verify` that failed."""
    for name in (REWARD_TXT, REWARD_JSON):
        try:
            os.unlink(str(folder / name))
        except OSError:  # not there; or not ours to remove, which the operator finds as no regular file
            pass


# -- errors --------------------------------------------------------------------------------------------------------


def _tell(error: BaseException, errors: TextIO) -> None:
    """Why there is no reward, on stderr as it was at the start."""
    _flush()  # what `verify` has printed comes before
    try:
        if isinstance(error, ContractError):
            errors.write(f"No reward is written: {error}\n")
        else:
            name = _verifier_file()
            how = f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else "raised an exception"
            errors.write(f"No reward is written: {name} {how}.\n")
            _of_user(error, set())
            traceback.print_exception(type(error), error, error.__traceback__, file=errors)
        errors.flush()
    except (OSError, ValueError):  # `verify` has closed it; the exit code says it too
        pass


def _of_user(error: Optional[BaseException], seen: Set[int]) -> None:
    """Cut what is ours, and Python's import machinery, from the front of the tracebacks."""
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = _from_user(error.__traceback__)
        _of_user(error.__cause__, seen)
        error = error.__context__


def _from_user(frames: Optional[TracebackType]) -> Optional[TracebackType]:
    runner = os.path.realpath(__file__)
    start = frames
    while start is not None:
        file = os.path.realpath(start.tb_frame.f_code.co_filename)
        if file != runner and file.startswith(str(TESTS) + os.sep):
            return start
        start = start.tb_next
    return None


def _leave(code: int) -> NoReturn:
    """End now: neither a thread that was left behind nor an exit handler may hold up, or change, the outcome."""
    _flush()
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # closed, full, or not a stream any more
            pass


if __name__ == "__main__":
    _leave(main())
