#!/bin/bash
# Reward 1 when /app/totals.csv is right, else 0. The trap writes the reward however this script ends.
set -u
reward=0
trap 'echo "$reward" >/logs/verifier/reward.txt' EXIT

if python3 -I /tests/check.py; then
    reward=1
fi
