#!/bin/bash
# Reward 1 when the service that the agent left running answers, else 0.
# This works in shared mode only: a fresh sandbox would have the agent's files, but not its process.
set -u
reward=0
trap 'echo "$reward" >/logs/verifier/reward.txt' EXIT

if python3 -I /tests/check.py; then
    reward=1
fi
