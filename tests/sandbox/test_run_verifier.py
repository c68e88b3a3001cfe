"""sandbox/run_verifier.py as a sandbox runs it: arguments, what is returned, and everything that goes wrong."""

import json
import sys

import pytest

from tests.sandbox import pythons

VERIFIER = "tests/verifier.py"
RESPONSE = {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "42"}]}]}
PYTHONS = pythons.thorough()

every_python = pytest.mark.parametrize("python", PYTHONS.values(), ids=map(pythons.name, PYTHONS))


def lines(*text: str) -> str:
    return "\n".join(text) + "\n"


def returning(value: str) -> str:
    return f"def verify():\n    return {value}\n"


def test_the_oldest_and_the_newest_of_this_machine_are_among_them():
    assert sys.version_info[:2] in pythons.supported()
    if len(pythons.known()) > 1:
        assert min(PYTHONS) == (3, 8), "3.8 is what the contract promises"
        assert max(PYTHONS) == max(pythons.known())


@pytest.mark.parametrize(
    "python", pythons.supported().values(), ids=[pythons.name(version) for version in pythons.supported()]
)
def test_every_python_since_3_8_runs_it(place, python):
    source = lines(
        "from pathlib import Path",
        "from nemo_gym.verifiers import exact_match, final_text, numeric_match",
        "from nemo_gym.verifiers.files import file_exists, read_text, text_file_equals",
        "async def verify(workspace: Path, task_data: dict, response: dict):",
        "    assert final_text(response) == '42' and exact_match(response, '42') and file_exists(workspace, 'a')",
        "    assert numeric_match(response, 42) and text_file_equals(workspace, 'a', 'x')",
        "    return {'reward': read_text(workspace, 'a') == task_data['a'], 'more': 2}",
    )
    done = place.fill({VERIFIER: source}, data={"a": "x"}, response=RESPONSE, workspace={"a": "x\n"}).run(python)
    assert (done.output, done.code, done.left) == ("", 0, ())
    assert {name: json.loads(text) for name, text in done.rewards.items()} == {"reward.json": {"reward": 1, "more": 2}}


# -- arguments -----------------------------------------------------------------------------------------------------

SEEN = "{'workspace': str(w), 'task_data': d, 'response': r, 'state': {k: str(v) for k, v in s.items()}}"
ARGUMENTS = {
    "by name": "def verify(state, task_data, response, workspace):",
    "by position": "def verify(state, task_data, response, workspace, /):",
    "keyword-only": "def verify(*, state, task_data, response, workspace):",
    "both": "def verify(state, task_data, /, response, *, workspace):",
    "through **kwargs": "def verify(**kwargs):",
    "some through **kwargs": "def verify(state, /, task_data, **kwargs):",
    "beside *args": "def verify(state, task_data, *args, response, workspace):",
    "beside a default": "def verify(other=1, state=None, another=2, /, task_data=None, response=None, workspace=None):",
    "async": "async def verify(state, task_data, response, workspace):",
    "in annotations that name nothing": "def verify(state: 'A', task_data: 'B', response: 'C', workspace: 'D'):",
}
SHOW = lines(
    "    given = dict(locals(), **locals().get('kwargs', {}))",
    "    w, d, r, s = (given[name] for name in ('workspace', 'task_data', 'response', 'state'))",
    "    import json, pathlib",
    "    assert isinstance(w, pathlib.Path) and not given.get('args')",
    "    assert (given.get('other', 1), given.get('another', 2)) == (1, 2)",
    f"    print(json.dumps({SEEN}))",
    "    return 1",
)


@pytest.mark.parametrize("declared", ARGUMENTS.values(), ids=ARGUMENTS)
@every_python
def test_the_four_arguments_come(place, python, declared):
    place.fill({VERIFIER: declared + "\n" + SHOW}, data={"n": [1, None]}, response=RESPONSE)
    done = place.run(python)
    assert done.rewards == {"reward.txt": "1.0\n"}, done.output
    workspace = str(place.workspace.resolve())
    assert json.loads(done.output) == {
        "workspace": workspace,
        "task_data": {"n": [1, None]},
        "response": RESPONSE,
        "state": {"workspace": workspace},
    }


CALLABLES = {
    "a partial of the task's own": lines(
        "from functools import partial",
        "def check(workspace, *, factor, task_data):",
        "    return factor * task_data['n']",
        "verify = partial(check, factor=2)",
    ),
    "a partial of a partial": lines(
        "from functools import partial",
        "def check(first, workspace, factor, task_data):",
        "    return first * factor * task_data['n']",
        "verify = partial(partial(check, 2), factor=1)",
    ),
    "what a partial has bound stays": lines(
        "from functools import partial",
        "def check(task_data, **more):",
        "    return task_data['n'] if set(more) == {'workspace', 'state'} else 0",
        "verify = partial(check, task_data={'n': 6})",
    ),
    "a partial of a coroutine function": lines(
        "from functools import partial",
        "async def check(task_data, factor):",
        "    return factor * task_data['n']",
        "verify = partial(check, factor=2)",
    ),
    "an object": lines(
        "class Check:",
        "    def __call__(self, task_data):",
        "        return 2 * task_data['n']",
        "verify = Check()",
    ),
    "an object, async": lines(
        "class Check:",
        "    async def __call__(self, task_data):",
        "        return 2 * task_data['n']",
        "verify = Check()",
    ),
    "a method": lines(
        "class Check:",
        "    def score(self, task_data):",
        "        return 2 * task_data['n']",
        "verify = Check().score",
    ),
    "decorated": lines(
        "import functools",
        "def doubled(function):",
        "    @functools.wraps(function)",
        "    def wrapper(*args, **kwargs):",
        "        return 2 * function(*args, **kwargs)",
        "    return wrapper",
        "@doubled",
        "def verify(task_data):",
        "    return task_data['n']",
    ),
    "imported": lines("from scoring import verify"),
}


@pytest.mark.parametrize("source", CALLABLES.values(), ids=CALLABLES)
@every_python
def test_whatever_can_be_called_is_a_verify(place, python, source):
    scoring = "def verify(task_data):\n    return 2 * task_data['n']\n"
    done = place.fill({VERIFIER: source, "tests/scoring.py": scoring}, data={"n": 3}).run(python)
    assert (done.rewards, done.output) == ({"reward.txt": "6.0\n"}, "")


@every_python
def test_without_a_response_a_default_is_used_and_kwargs_do_not_have_it(place, python):
    source = "def verify(response='none', **kwargs):\n    return {response: 1 + ('response' in kwargs)}\n"
    assert place.fill({VERIFIER: source}).run(python).rewards == {"reward.json": '{"none": 1.0}\n'}


def test_a_task_without_fields_has_none(place):
    source = "def verify(task_data):\n    return task_data == {}\n"
    assert place.fill({VERIFIER: source}).run(sys.executable).rewards == {"reward.txt": "1.0\n"}


# -- what is returned ----------------------------------------------------------------------------------------------

NUMPY = lines(
    "import numbers",
    "class generic:",
    "    def __init__(self, value): self.value = value",
    "    def item(self): return self.value",
    "class bool_(generic): pass",
    "class float16(generic): pass",
    "class datetime64(generic): pass",
    "class ndarray:",
    "    def item(self): return 1.0",
)
"""numpy's classes, as far as a reward meets them: scalars derive from `generic`, arrays have `item` too."""

RETURNED = {
    "float": ("0.25", 0.25),
    "int": ("-3", -3),
    "true": ("True", 1),
    "false": ("False", 0),
    "fraction": ("__import__('fractions').Fraction(1, 4)", 0.25),
    "tiny": ("5e-324", 5e-324),
    "numpy bool": ("__import__('numpy').bool_(True)", 1),
    "numpy float16": ("__import__('numpy').float16(0.5)", 0.5),
    "an int subclass": ("__import__('enum').IntEnum('E', 'a b').b", 2),
    "reward and metrics": ("{'reward': 0.5, 'a': True, 'b': 7}", {"reward": 0.5, "a": 1, "b": 7}),
    "reward alone": ("{'reward': 1}", {"reward": 1}),
    "one other key": ("{'accuracy': 0.75}", {"accuracy": 0.75}),
    "numpy within": ("{'reward': __import__('numpy').bool_(False)}", {"reward": 0}),
    "an ordered dict": ("__import__('collections').OrderedDict(reward=2)", {"reward": 2}),
    "a key that is not ASCII": ("{'größe': 1}", {"größe": 1}),
}


@pytest.mark.parametrize(("value", "reward"), RETURNED.values(), ids=RETURNED)
@every_python
def test_numbers_and_dicts_of_numbers_are_rewards(place, python, value, reward):
    done = place.fill({VERIFIER: returning(value), "tests/numpy.py": NUMPY}).run(python)
    assert (done.output, done.code, done.left) == ("", 0, ())
    name = "reward.json" if isinstance(reward, dict) else "reward.txt"
    assert {file: json.loads(text) for file, text in done.rewards.items()} == {name: reward}


REFUSED = {
    "none": ("None", "NoneType and no number"),
    "a string": ("'1'", "'1', which is of type str"),
    "a decimal": ("__import__('decimal').Decimal(1)", "type Decimal"),
    "complex": ("1j", "type complex"),
    "a list": ("[1]", "type list"),
    "nan": ("float('nan')", "nan. Return a finite number"),
    "inf": ("float('-inf')", "-inf. Return a finite number"),
    "too large": ("10 ** 400", "too large for a float"),
    "numpy array": ("__import__('numpy').ndarray()", "type ndarray"),
    "numpy time": ("__import__('numpy').datetime64('now')", "type str"),
    "numpy nan": ("__import__('numpy').float16(float('nan'))", "nan. Return a finite number"),
    "empty dict": ("{}", "no key"),
    "two keys without reward": ("{'a': 1, 'b': 2}", "the keys 'a', 'b'"),
    "a metric that is none": ("{'reward': 1, 'm': 'x'}", "under 'm', 'x', which is of type str"),
    "a metric that is nan": ("{'reward': 1, 'm': float('nan')}", "under 'm', nan"),
    "a key that is no string": ("{1: 1}", "the key 1"),
    "a long text": ("'x' * 10**6", "xxx…"),
    "a generator": ("(n for n in [1])", "type generator"),
}


@pytest.mark.parametrize(("value", "says"), REFUSED.values(), ids=REFUSED)
@every_python
def test_anything_else_is_none(place, python, value, says):
    done = place.fill({VERIFIER: returning(value), "tests/numpy.py": NUMPY}).run(python)
    assert (done.rewards, done.left, done.code) == ({}, (), 1)
    assert done.output.startswith("No reward is written: verify returned")
    assert says in done.output
    assert len(done.output) < 500


# -- what goes wrong -----------------------------------------------------------------------------------------------

BROKEN = {
    "it raises": (returning("1 / 0"), "raised an exception", "ZeroDivisionError: division by zero"),
    "sys.exit": (returning("__import__('sys').exit()"), "called sys.exit(None)"),
    "sys.exit(0)": (returning("__import__('sys').exit(0)"), "called sys.exit(0)"),
    "sys.exit in the module": ("import sys\nsys.exit(0)\n", "called sys.exit(0)"),
    "an interrupt": ("def verify():\n    raise KeyboardInterrupt\n", "KeyboardInterrupt"),
    "a coroutine raises": ("async def verify():\n    raise KeyError('x')\n", "KeyError: 'x'"),
    "an exception that cannot be shown": (
        "class E(Exception):\n    def __str__(self): raise ValueError\ndef verify():\n    raise E\n",
        "verifier.E",
    ),
    "a syntax error": ("def verify(:\n    pass\n", "SyntaxError", 'verifier.py", line 1'),
    "an import that is not there": ("import no_such_module\n", "No module named 'no_such_module'"),
    "no verify": ("def check():\n    return 1\n", "defines no verify", "def verify("),
    "verify is a number": ("verify = 1\n", "is of type int, which cannot be called"),
    "verify has no signature": ("verify = max\n", "the arguments of verify cannot be known"),
    "another argument": ("def verify(workspace, answer):\n    return 1\n", "requires `answer`", "workspace, task_data"),
    "another argument by position": ("def verify(a, /):\n    return 1\n", "requires `a`"),
    "another argument by keyword": ("def verify(*, a):\n    return 1\n", "requires `a`"),
    "a response, but there is none": ("def verify(response):\n    return 1\n", "requires `response`", "default"),
    "it ends the process": (returning("__import__('os')._exit(0)"),),
    "it kills the process": ("import os\ndef verify():\n    os.kill(os.getpid(), 9)\n",),
    "it writes a reward and raises": (
        "def verify():\n    open('../rewards/reward.txt', 'w').write('1')\n    raise ValueError\n",
        "ValueError",
    ),
    "it writes a reward and returns none": (
        "def verify():\n    open('../rewards/reward.json', 'w').write('{\"reward\": 1}')\n",
        "NoneType",
    ),
    "the folder cannot be written to": (
        "import os\ndef verify():\n    os.rename('../rewards', '../r'); return 1\n",
        "FileNotFoundError",
    ),
}


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)
@every_python
def test_without_a_result_there_is_no_reward(place, python, case):
    source, *says = case
    place.fill({VERIFIER: source})
    try:
        done = place.run(python)
    except FileNotFoundError:  # the folder was moved away
        assert not list((place.root / "r").iterdir())
        return
    assert (done.rewards, done.left) == ({}, ())
    for words in says:
        assert words in done.output


TRACED = {
    "verify": lines("def verify():", "    return inner()", "def inner():", "    raise ValueError('x')"),
    "the module": lines("raise ValueError('x')"),
    "another module": lines("import other", "def verify():", "    return other.fail()"),
    "a helper of ours": lines(
        "from nemo_gym.verifiers import numeric_match",
        "def verify():",
        "    return numeric_match('1', 'x')",
    ),
    "a coroutine": lines("async def verify():", "    raise ValueError('x')"),
    "a chain": lines("def verify():", "    try:", "        1 / 0", "    except ZeroDivisionError as e:")
    + "        raise ValueError('x') from e\n",
}


@pytest.mark.parametrize("source", TRACED.values(), ids=TRACED)
@every_python
def test_a_traceback_starts_in_the_verifier(place, python, source):
    place.fill({VERIFIER: source, "tests/other.py": "def fail():\n    raise ValueError('x')\n"})
    output = place.run(python).output
    assert "ValueError: " in output
    assert "run_verifier.py" not in output
    assert "importlib" not in output
    assert "asyncio" not in output
    frames = [line for line in output.splitlines() if line.startswith("  File ")]
    assert frames[0].startswith(f'  File "{place.tests.resolve()}/verifier.py"')


def test_what_was_printed_comes_before_the_error(place):
    source = "def verify():\n    print('looked')\n    raise ValueError('x')\n"
    output = place.fill({VERIFIER: source}).run(sys.executable).output
    assert output.startswith("looked\nNo reward is written: ")
    assert output.endswith("ValueError: x\n")


UNDISTURBED = {
    "prints bytes that are no text": "import os\ndef verify():\n    os.write(1, b'ok'); return 1\n",
    "closes stdout": "import sys\ndef verify():\n    sys.stdout.close(); sys.stderr.close(); return 1\n",
    "closes every descriptor": "import os\ndef verify():\n    os.closerange(0, 64); return 1\n",
    "replaces stdout": "import sys\ndef verify():\n    sys.stdout = sys.stderr = None; return 1\n",
    "goes elsewhere": "import os\ndef verify():\n    os.chdir('/'); os.umask(0o777); return 1\n",
    "leaves a thread": lines(
        "import threading",
        "def verify():",
        "    threading.Thread(target=threading.Event().wait).start()",
        "    return 1",
    ),
    "leaves a thread of a loop": lines(
        "import asyncio, threading",
        "async def verify():",
        "    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)",
        "    return 1",
    ),
    "leaves a child": lines(
        "import subprocess",
        "def verify():",
        "    subprocess.Popen(['/bin/sleep', '30'])",
        "    return 1",
    ),
    "leaves an exit handler": "import atexit, os\natexit.register(os._exit, 9)\ndef verify():\n    return 1\n",
    "has its own event loop": lines(
        "import asyncio",
        "async def answer():",
        "    return 1",
        "def verify():",
        "    return asyncio.run(answer())",
    ),
    "starts a program": lines(
        "import asyncio",
        "async def verify():",
        "    child = await asyncio.create_subprocess_exec('true')",
        "    return await child.wait() == 0",
    ),
    "uses a dataclass and a pickle": lines(
        "import dataclasses, pickle",
        "@dataclasses.dataclass",
        "class Score:",
        "    value: int",
        "def verify():",
        "    return pickle.loads(pickle.dumps(Score(1))).value",
    ),
    "starts processes of its own module": lines(
        "import multiprocessing",
        "def one(_):",
        "    import nemo_gym.verifiers",
        "    return 1",
        "def verify():",
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:",
        "        return pool.map(one, [0])[0]",
    ),
}


@pytest.mark.parametrize("source", UNDISTURBED.values(), ids=UNDISTURBED)
@every_python
def test_what_verify_does_to_its_process_does_not_matter(place, python, source):
    done = place.fill({VERIFIER: source}).run(python, seconds=15)
    assert (done.rewards, done.code, done.left) == ({"reward.txt": "1.0\n"}, 0, ()), done.output


def test_the_only_reward_is_the_one_that_verify_returned(place):
    source = "def verify():\n    open('../rewards/reward.json', 'w').write('{\"reward\": 9}')\n    return 0.5\n"
    assert place.fill({VERIFIER: source}).run(sys.executable).rewards == {"reward.txt": "0.5\n"}


def test_a_reward_that_is_a_link_is_replaced_and_not_followed(place):
    place.fill({VERIFIER: returning("1")})
    target = place.root / "precious"
    target.write_text("x")
    (place.rewards / "reward.txt").symlink_to(target)
    assert place.run(sys.executable).rewards == {"reward.txt": "1.0\n"}
    assert target.read_text() == "x"
    assert not (place.rewards / "reward.txt").is_symlink()


def test_the_working_directory_may_be_gone(place):
    place.fill({VERIFIER: returning("1")})
    gone = f"cd {place.workspace} && rmdir {place.workspace} && exec {sys.executable} -I -B -X utf8"
    done = place.command(["/bin/bash", "-c", f"{gone} {place.tests}/.ng/run_verifier.py {place.rewards}"])
    assert done.rewards == {}
    assert done.output == "No reward is written: the working directory is gone, so there is nothing to look at.\n"
