"""The part that HTTP servers in test containers have in common, as source text: a program begins with it."""

from __future__ import annotations

ANSWERS = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers["content-length"] or 0))

    def log_message(self, *args):
        pass
"""
