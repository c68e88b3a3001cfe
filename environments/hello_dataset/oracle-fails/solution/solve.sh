#!/bin/bash
# Wrong on purpose (it leaves out 100): running the oracle here shows what a run with reward 0 looks like.
set -eu

echo $((99 * 100 / 2)) >/app/sum.txt
