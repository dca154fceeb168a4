"""The bound: OpenVINO inside one bare uvicorn process. No authentication, no checks, no limits, one model.

Whatever is waiting when the model is free goes in as one batch.

python bound.py MODEL PORT [PRECISION]: in f32 by default, as Trainshed serves.
"""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import openvino as ov
import orjson
import uvicorn

MAX_BATCH = 32


class Bound:
    """An ASGI app."""

    def __init__(self, model: str, precision: str) -> None:
        core = ov.Core()
        hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": 2, "NUM_STREAMS": 1}
        compiled = core.compile_model(core.read_model(model), "CPU", {**hints, "INFERENCE_PRECISION_HINT": precision})
        self._request = compiled.create_infer_request()
        self._thread = ThreadPoolExecutor(1)
        self._waiting: list[tuple[Any, asyncio.Future[list[Any]]]] = []
        self._busy = False
        shape = [each.get_length() for each in list(compiled.inputs[0].get_partial_shape())[1:]]
        self._outputs = [output.get_any_name() for output in compiled.outputs]
        for size in (1, 8, MAX_BATCH):
            self._run([np.zeros((size, *shape), np.float32)])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message["body"]
            more = message.get("more_body", False)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Any]] = loop.create_future()
        self._waiting.append((np.asarray(orjson.loads(body)["instances"], np.float32), answer))
        if not self._busy:
            self._busy = True
            self._task = loop.create_task(self._drain(loop))
        out = orjson.dumps({"predictions": await answer})
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(out)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": out})

    async def _drain(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            size = count = 0
            while count < len(self._waiting) and (not count or size + len(self._waiting[count][0]) <= MAX_BATCH):
                size += len(self._waiting[count][0])
                count += 1
            batch, self._waiting = self._waiting[:count], self._waiting[count:]
            predictions = await loop.run_in_executor(self._thread, self._run, [rows for rows, _ in batch])
            start = 0
            for rows, answer in batch:
                answer.set_result(predictions[start : start + len(rows)])
                start += len(rows)
        self._busy = False

    def _run(self, batch: list[Any]) -> list[Any]:
        rows = batch[0] if len(batch) == 1 else np.concatenate(batch)
        out = self._request.infer([rows], share_inputs=True)
        columns = [out[at].tolist() for at in range(len(self._outputs))]
        if len(columns) == 1:
            return list(columns[0])
        return [dict(zip(self._outputs, values, strict=True)) for values in zip(*columns, strict=True)]


if __name__ == "__main__":
    uvicorn.run(
        Bound(sys.argv[1], sys.argv[3] if len(sys.argv) > 3 else "f32"),
        port=int(sys.argv[2]),
        loop="uvloop",
        http="httptools",
        log_level="error",
        lifespan="off",
    )
