"""engine/words.py: who repeats itself waits, whoever has news does not."""

import asyncio

from tests.engine.parts import RUN
from tests.world import clock

from taskfold.api.common import Condition
from taskfold.api.taskrun import TaskRunStatus
from taskfold.engine.words import REPEAT_SECONDS, Words

WORDS = {"conditions": []}


def saying(message: str, **more: object) -> TaskRunStatus:
    now = "2026-01-01T00:00:00.000Z"
    said = Condition(type="Reconciling", status="True", reason="Seeding", message=message, last_transition_time=now)
    return TaskRunStatus(conditions=[said], **more)


def test_the_same_words_again_wait_for_their_time():
    async def main() -> list[float]:
        words, waits = Words(), []
        waits.append(words.wait(RUN, WORDS, saying("a")))
        words.wrote(RUN, saying("a"))
        waits.append(words.wait(RUN, WORDS, saying("a")))
        await asyncio.sleep(REPEAT_SECONDS - 1)
        waits.append(words.wait(RUN, WORDS, saying("a")))
        await asyncio.sleep(1)
        waits.append(words.wait(RUN, WORDS, saying("a")))
        return waits

    assert clock.run(main) == [0.0, REPEAT_SECONDS, 1.0, 0.0]


def test_news_never_wait():
    async def main() -> list[float]:
        words = Words()
        words.wrote(RUN, saying("a"))
        return [
            words.wait(RUN, WORDS, saying("b")),
            words.wait(RUN, {"conditions": [], "phase": "Running"}, saying("a")),
        ]

    assert clock.run(main) == [0.0, 0.0]


def test_nothing_is_remembered_of_what_is_over():
    async def main() -> list[float]:
        words = Words()
        words.wrote(RUN, saying("a"))
        words.wrote(RUN, saying("a", complete=True))
        complete = words.wait(RUN, WORDS, saying("a"))
        words.wrote(RUN, saying("a"))
        words.forget(RUN)
        return [complete, words.wait(RUN, WORDS, saying("a"))]

    assert clock.run(main) == [0.0, 0.0]
