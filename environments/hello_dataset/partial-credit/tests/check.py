"""Print {"reward": share of right functions, one metric for each function}; remarks go to stderr."""

import json
import subprocess
import sys

CASES = {
    "slug": [("  Hello, World! ", "hello-world"), ("a--b__c", "a-b-c"), ("Version 2.0", "version-2-0"), ("!?", "")],
    "initials": [("ada king lovelace", "AKL"), ("  grace   hopper ", "GH"), ("", "")],
    "most_common": [(["b", "a", "b"], "b"), (["b", "a"], "a"), ([], None)],
}

# The agent's code runs in a process of its own: it may crash, hang or print without harm to the grading.
CALL = """
import json, sys
sys.path.insert(0, "/app")
name, arguments = json.load(sys.stdin)
import textkit
results = [getattr(textkit, name)(argument) for argument in arguments]
print("\\n" + json.dumps(results))
"""


def is_right(name: str) -> bool:
    arguments = [argument for argument, _ in CASES[name]]
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", CALL],
            input=json.dumps([name, arguments]),
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        results = json.loads(done.stdout.splitlines()[-1])
    except subprocess.CalledProcessError as error:
        print(f"{name}: {error.stderr.strip()[-500:]}", file=sys.stderr)
        return False
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return False
    expected = [result for _, result in CASES[name]]
    if results != expected:
        print(f"{name}: returned {results}, wanted {expected}", file=sys.stderr)
    return results == expected


right = {name: is_right(name) for name in CASES}
print(json.dumps({"reward": sum(right.values()) / len(right), **right}))
