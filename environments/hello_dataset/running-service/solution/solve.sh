#!/bin/bash
set -eu

cat >/app/server.py <<'PYTHON'
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/health":
            self.answer(200, "ok")
        elif url.path == "/greet":
            name = parse_qs(url.query).get("name", ["nobody"])[0]
            self.answer(200, f"Hello, {name}!")
        else:
            self.answer(404, "not found")

    def answer(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
PYTHON

# In the background, tied to nothing of this script: it is still there when the verifier asks.
nohup python3 /app/server.py </dev/null >/app/server.log 2>&1 &

for _ in {1..50}; do
    if python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8080), 1)' 2>/dev/null; then
        echo "the service is up"
        exit 0
    fi
    sleep 0.2
done
echo "the service did not start:" >&2
cat /app/server.log >&2
exit 1
