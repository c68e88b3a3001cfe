"""Counts what reports to it, and holds those back that shall wait. Runs in a pod of its own, with nothing but Python.

GET /hit/KEY       one more report of KEY
GET /wait/KEY      answered once KEY was released
GET /release/KEY   lets everybody go who waits for KEY, now or later
GET /counts        all reports so far, as JSON
"""

import collections
import http.server
import json
import threading

counts: collections.Counter[str] = collections.Counter()
released: set[str] = set()
changed = threading.Condition()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        what, _, key = self.path.strip("/").partition("/")
        with changed:
            if what == "hit":
                counts[key] += 1
                print(self.client_address[0], key, flush=True)
            elif what == "release":
                released.add(key)
                changed.notify_all()
            elif what == "wait":
                changed.wait_for(lambda: key in released)
            answer = json.dumps(counts).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """The line in `do_GET` is the log."""


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    """Connections that wait for it; beyond them the kernel drops the callers' first packets for up to a minute."""


if __name__ == "__main__":
    Server(("", 8080), Handler).serve_forever()
