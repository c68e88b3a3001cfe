#!/bin/bash
set -eu

cat >/app/textkit.py <<'PYTHON'
import re
from collections import Counter


def slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def initials(name):
    return "".join(word[0] for word in name.split()).upper()


def most_common(words):
    counts = Counter(words)
    return min(counts, key=lambda word: (-counts[word], word), default=None)
PYTHON
