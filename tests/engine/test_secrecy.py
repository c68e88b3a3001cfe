"""engine/secrecy.py: which values are hidden, and that nothing of them is left in words."""

import base64
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decide import worlds
from tests.engine.fakes import Client

from taskfold.api.settings import SecretSettings
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.engine import secrecy
from taskfold.engine.secrecy import LEAST_BYTES, LEAST_CUT, MARK
from taskfold.engine.sources import Sources
from taskfold.protocol.phase import BackgroundEnd, FileState

TOKEN, KEY = b"t0ken-of-somebody", b"-----BEGIN KEY-----\nabcdefghijklmnop\n-----END KEY-----"


# -- which values --------------------------------------------------------------------------------------------------


def secret(name, *contents, labels=None):
    data = {f"key{number}": base64.b64encode(content).decode() for number, content in enumerate(contents)}
    return {"metadata": {"name": name, "labels": labels or {}}, "data": data}


async def values(*secrets, settings_=None, failures=None, **spec):
    client = Client()
    for each in secrets:
        client.put(api.SECRETS, each)
    client.failures |= failures or {}
    return await secrecy.values(worlds.run(worlds.running(), **spec), Sources(client, settings_ or SecretSettings()))


def script(**more):
    return {"script": {"run": "x", **more}}


def keyed(name):
    return {"name": "X", "valueFrom": {"secretKeyRef": {"name": name, "key": "key0"}}}


NAMED = {
    "environmentFrom": {"environmentFrom": [{"secretRef": {"name": "s"}}]},
    "secretsFrom": {"secretsFrom": [{"name": "s"}]},
    "the agent's envFrom": {"agent": script(envFrom=[{"secretRef": {"name": "s"}}])},
    "the agent's env": {"agent": script(env=[keyed("s")])},
    "the verifier's env": {"verifier": {"env": [keyed("s")]}},
    "twice": {"secretsFrom": [{"name": "s"}], "verifier": {"env": [keyed("s")]}},
}


OWN = {
    "environmentFrom": {"environmentFrom": [{"secretRef": {"name": "s"}}]},
    "secretsFrom": {"secretsFrom": [{"name": "s"}]},
    "env": {"env": [keyed("s")]},
}


@pytest.mark.parametrize("spec", OWN.values(), ids=OWN)
async def test_so_is_what_a_verification_names_beside_its_run(spec):
    """As one does that grades a run again with words of its own; the agent's are in what it left."""
    client = Client()
    for each in (secret("s", TOKEN), secret("agents", KEY)):
        client.put(api.SECRETS, each)
    run = worlds.run(worlds.running(), agent=script(env=[keyed("agents")]))
    found = await secrecy.values(run, Sources(client, SecretSettings()), worlds.verifier(**spec))
    assert set(found) == {TOKEN, KEY}


@pytest.mark.parametrize("spec", NAMED.values(), ids=NAMED)
async def test_every_value_of_every_secret_that_a_run_names_is_hidden(spec):
    """Also of keys that it does not use: one file in the sandbox may hold them all."""
    assert await values(secret("s", TOKEN, b"another-key"), secret("other", b"not-of-this-run"), **spec) == (
        TOKEN,
        b"another-key",
    )


async def test_a_run_that_names_no_secret_hides_nothing():
    config = {"environmentFrom": [{"configMapRef": {"name": "s"}}], "verifier": {"env": [{"name": "X", "value": "y"}]}}
    assert await values(secret("s", TOKEN), **config) == ()


async def test_the_longest_comes_first_each_once_and_short_ones_are_left_out():
    found = await values(
        secret("s", b"12345678", b"1234567", b"", TOKEN),
        secret("t", b"12345678", KEY),
        secretsFrom=[{"name": "s"}, {"name": "t"}],
    )
    assert found == (KEY, TOKEN, b"12345678")


async def test_a_value_need_not_be_text():
    assert await values(secret("s", b"\xff\xfe" * 4), secretsFrom=[{"name": "s"}]) == (b"\xff\xfe" * 4,)


GONE = {
    "gone": ([secret("s", TOKEN)], {}, None),
    "forbidden": ([secret("s", TOKEN), secret("t", KEY)], {"get secrets/t": errors.Forbidden("no", status=403)}, None),
    "no longer labelled": (
        [secret("s", TOKEN, labels={"taskfold.dev/usable": "true"}), secret("t", KEY)],
        {},
        SecretSettings(require_label=True),
    ),
    "without data": ([secret("s", TOKEN), {"metadata": {"name": "t"}}], {}, None),
    "not base64": ([secret("s", TOKEN), {"metadata": {"name": "t"}, "data": {"a": "x"}}], {}, None),
}


@pytest.mark.parametrize(("secrets", "failures", "strict"), GONE.values(), ids=GONE)
async def test_a_secret_that_cannot_be_read_does_not_keep_the_others_from_being_hidden(secrets, failures, strict):
    named = [{"name": "t"}, {"name": "s"}]
    assert await values(*secrets, settings_=strict, failures=failures, secretsFrom=named) == (TOKEN,)


async def test_without_an_answer_nothing_is_said_to_be_safe():
    with pytest.raises(errors.Unavailable):
        await values(failures={"get secrets": errors.Unavailable("no answer", sent=True)}, secretsFrom=[{"name": "s"}])


# -- results -------------------------------------------------------------------------------------------------------


def test_output_is_hidden_and_files_are_not():
    reward = {"/logs/verifier/reward.txt": TOKEN, "/x": FileState.MISSING}
    runs = (
        worlds.program("hook 1", 1, inline=b"uses " + TOKEN, output_bytes=5 + len(TOKEN)),
        worlds.program("test", 0, inline=TOKEN[-6:] + b" is not it", output_bytes=9000),
    )
    result = worlds.result(worlds.VERIFY, *runs, files=reward)
    found = secrecy.hidden(result, (TOKEN,))
    assert [run.inline for run in found.runs] == [b"uses " + MARK, MARK + b" is not it"]
    assert found == replace(
        result, runs=tuple(replace(run, inline=other.inline) for run, other in zip(runs, found.runs, strict=True))
    )
    assert found.files["/logs/verifier/reward.txt"].content == TOKEN


def test_the_output_of_what_ran_beside_is_hidden_too():
    beside = BackgroundEnd(worlds.SEED, worlds.program("entrypoint", 1, inline=TOKEN, output_bytes=len(TOKEN)))
    result = replace(worlds.result(worlds.VERIFY), background=(beside,))
    (end,) = secrecy.hidden(result, (TOKEN,)).background
    assert (end.run.inline, end.nonce) == (MARK, worlds.SEED)


@pytest.mark.parametrize("value", ['two\nlines "quoted" \\', "gehe\u0131m ü🙂", "plain-value"])
def test_a_value_is_looked_for_as_it_stands_in_json_too(value):
    found = secrecy.spelled((value.encode(), b"\xff" * 8))
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert text[1:-1].encode() in found
    assert found[0] == max(found, key=len)
    assert b"\xff" * 8 in found


def test_without_secrets_a_result_is_the_same():
    result = worlds.result(worlds.VERIFY, worlds.program("test", inline=b"x", output_bytes=9))
    assert secrecy.hidden(result, ()) is result


# -- text ----------------------------------------------------------------------------------------------------------

TEXTS = {
    "nothing": (b"all is well", (TOKEN,), False, b"all is well"),
    "in the middle": (b"a" + TOKEN + b"b", (TOKEN,), False, b"a" + MARK + b"b"),
    "side by side": (TOKEN + TOKEN, (TOKEN,), False, MARK + MARK),
    "one within another": (b"x-" + TOKEN + b"-x", (b"x-" + TOKEN + b"-x", TOKEN), False, MARK),
    "its end, whole output": (TOKEN[-6:] + b" x", (TOKEN,), False, TOKEN[-6:] + b" x"),
    "its end, cut": (TOKEN[-6:] + b" x", (TOKEN,), True, MARK + b" x"),
    "all but its first byte, cut": (TOKEN[1:] + b" x", (TOKEN,), True, MARK + b" x"),
    "too little of its end, cut": (TOKEN[-3:] + b" x", (TOKEN,), True, TOKEN[-3:] + b" x"),
    "its end, not at the front": (b" " + TOKEN[-6:], (TOKEN,), True, b" " + TOKEN[-6:]),
    "nothing but its end, cut": (KEY[20:], (KEY,), True, MARK),
    "its start at the end": (b"x " + TOKEN[:6], (TOKEN,), True, b"x " + TOKEN[:6]),
    "two overlap": (b"12345678abcdefgh!", (b"12345678abcd", b"5678abcdefgh"), False, MARK + b"!"),
    "it overlaps itself": (b"abcdabcdabcd!", (b"abcdabcd",), False, MARK + b"!"),
    "the end of one is the start of another": (KEY + b"!", (KEY + b"\n" + KEY[:-1] + b"-", KEY), True, MARK + b"!"),
    "empty": (b"", (TOKEN,), True, b""),
}


@pytest.mark.parametrize(("text", "secrets", "cut", "expected"), TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("order", [1, -1], ids=["in order", "reversed"])
def test_values_are_replaced(text, secrets, cut, expected, order):
    assert secrecy.scrubbed(text, secrets[::order], cut=cut) == expected


VALUES = st.lists(st.text("abAB", min_size=LEAST_BYTES, max_size=20).map(str.encode), min_size=1, max_size=4)
"""Few letters, so that values overlap; none of them in the mark, which may stand next to what is left."""


def kept(found):
    """What was not replaced, in order."""
    return found.split(MARK)


@settings(max_examples=500, deadline=None)
@given(st.data(), VALUES, st.booleans())
def test_nothing_of_a_value_is_left(data, secrets, cut):
    whole = st.sampled_from(secrets)
    ends = whole.flatmap(lambda value: st.integers(0, len(value)).map(lambda start: value[start:]))
    harmless = st.text("abAB .", max_size=6).map(str.encode)
    text = b"".join(data.draw(st.lists(st.one_of(whole, ends, harmless), max_size=6)))
    found = secrecy.scrubbed(text, secrets, cut=cut)
    for value in secrets:
        assert value not in found
        if cut:
            assert not [n for n in range(LEAST_CUT, len(value)) if found.startswith(value[-n:])]
    # Byte by byte: whatever an occurrence covers in the text is gone, whatever none covers is there.
    covered = [False] * len(text)
    for value in secrets:
        for start in range(len(text)):
            if text.startswith(value, start):
                covered[start : start + len(value)] = [True] * len(value)
        fronts = [n for n in range(LEAST_CUT, len(value)) if cut and text.startswith(value[-n:])]
        covered[: max(fronts, default=0)] = [True] * max(fronts, default=0)
    left = bytes(byte for byte, gone in zip(text, covered, strict=True) if not gone)
    assert b"".join(kept(found)) == left


def test_large_values_do_not_hold_the_operator():
    """A Secret may have a megabyte; the result of a phase has 4 KiB of output. Not timed: it would take minutes."""
    large = [bytes(range(256)) * 4096 + bytes([number]) for number in range(32)]
    assert secrecy.scrubbed(large[7][-4096:], large, cut=True) == MARK
    assert secrecy.scrubbed(b"x" * 4096, large, cut=True) == b"x" * 4096
