#!/bin/bash
set -eu

cat >/app/countries.json <<'JSON'
[
  {"name": "Austria", "capital": "Vienna"},
  {"name": "Kenya", "capital": "Nairobi"},
  {"name": "Peru", "capital": "Lima"}
]
JSON
