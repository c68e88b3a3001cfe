#!/bin/bash
set -eu

cat >/app/totals.csv <<'CSV'
item,total
paper,1497
pen,840
ruler,500
eraser,400
CSV
