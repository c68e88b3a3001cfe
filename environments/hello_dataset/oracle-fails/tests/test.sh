#!/bin/bash
# Reward 1 when /app/sum.txt holds 5050, else 0.
set -u
reward=0
trap 'echo "$reward" >/logs/verifier/reward.txt' EXIT

if answer=$(head -c 100 /app/sum.txt) && [[ $answer == 5050 ]]; then
    reward=1
else
    echo "sum.txt holds '${answer:-}', wanted 5050"
fi
