#!/bin/bash
# Starts the Python verifier beside it with python3, else python, of 3.8 or newer. Arguments go to the runner.
#
# -I: nothing that the agent may have left is on the module path or runs before the verifier: not the working
# directory, not the user's site-packages or usercustomize. The runner gives PYTHONPATH back, behind everything else.
# -B: nothing is written beside the verifier. -X utf8: text is UTF-8 whatever the image's locale is.

here="${BASH_SOURCE[0]%/*}"
found=()
for name in python3 python; do
  python="$(type -P "$name")" || continue
  # -S, and neither -I nor f-strings: an old Python has to be able to say which one it is.
  version="$("$python" -B -E -s -S -c 'import sys
print("%d.%d.%d" % sys.version_info[:3])
sys.exit(sys.version_info < (3, 8))' 2>&1)" && exec "$python" -I -B -X utf8 "$here/.ng/run_verifier.py" "$@"
  found+=("$name is ${version:-unusable}")
done

if ((${#found[@]} == 0)); then
  what="this image has neither python3 nor python on its PATH"
else
  printf -v what '%s; ' "${found[@]}"
  what="${what%; }"
fi
echo "The verifier cannot run and no reward is written: it needs Python 3.8 or newer, and $what." >&2
echo "Use an image with a newer python3, or grade with a tests/test.sh that needs none." >&2
exit 127
