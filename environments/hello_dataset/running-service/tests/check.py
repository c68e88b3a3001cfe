"""Exit 0 when the service on localhost:8080 answers as the instruction says."""

import secrets
import sys
import time
import urllib.error
import urllib.request

BASE = "http://127.0.0.1:8080"
# No proxy: a variable that the image sets must not decide where the question goes.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(path: str) -> tuple[int, str]:
    try:
        with OPENER.open(BASE + path, timeout=5) as answer:
            return answer.status, answer.read(4096).decode(errors="replace").strip()
    except urllib.error.HTTPError as error:
        return error.code, ""


def wait(seconds: float) -> None:
    """Until the service accepts connections: it may have been started a moment ago."""
    end = time.monotonic() + seconds
    while True:
        try:
            get("/health")
            return
        except OSError as error:
            if time.monotonic() > end:
                sys.exit(f"nothing answers on {BASE}: {error}")
            time.sleep(0.2)


wait(10)
name = secrets.token_hex(4)  # a file with a fixed greeting does not pass
for path, expected in {
    "/health": (200, "ok"),
    f"/greet?name={name}": (200, f"Hello, {name}!"),
    "/greet?name=Ada%20L": (200, "Hello, Ada L!"),
    "/missing": (404, ""),
}.items():
    status, text = get(path)
    if (status, text if status == 200 else "") != expected:
        sys.exit(f"GET {path} answered {status} {text!r}, wanted {expected}")
print("the service answers")
