"""The contract's sentences: each names what proves it, and all of it exists."""

import ast
from pathlib import Path

import pytest

from taskfold.conformance import table
from taskfold.conformance.sentences import SENTENCES, Sentence

ROOT = Path(__file__).resolve().parents[2]
IDS = {case.id for case in table.all_cases()}
NAMES = [f"{sentence.section}: {sentence.says[:60]}" for sentence in SENTENCES]

by_sentence = pytest.mark.parametrize("sentence", SENTENCES, ids=NAMES)


@by_sentence
def test_a_sentence_is_proven_or_says_what_it_waits_for(sentence: Sentence) -> None:
    assert bool(sentence.cases or sentence.tests) is (sentence.later is None)


@by_sentence
def test_what_proves_a_sentence_exists(sentence: Sentence) -> None:
    assert set(sentence.cases) <= IDS
    for test in sentence.tests:
        path, _, name = test.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }


def test_no_sentence_stands_twice() -> None:
    said = [(sentence.section, sentence.says) for sentence in SENTENCES]
    assert len(set(said)) == len(said)
