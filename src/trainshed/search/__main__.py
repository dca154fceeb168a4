"""The search process: a request a line on stdin, a result a line on stdout. Ends when stdin ends."""

from __future__ import annotations

import sys
import traceback

import orjson

from trainshed.domain.tuning.documents import read_request
from trainshed.search.bayesian import search


def main() -> None:
    for line in sys.stdin.buffer:
        try:
            response: object = search(read_request(orjson.loads(line)))
        except Exception as exc:  # noqa: BLE001 - the server answers without a model, and logs it
            traceback.print_exc()
            response = {"error": f"{type(exc).__name__}: {exc}"}
        sys.stdout.buffer.write(orjson.dumps(response) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
