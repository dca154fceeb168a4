"""The host: serves one version over a socket.

A thread per connection reads and parses requests; one thread runs the model and writes responses. So a model that hangs
blocks neither the reading nor statistics.
"""

from __future__ import annotations

import io
import socket
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import orjson

from ..codec.json_documents import write
from ..codec.mlflow import MlflowCodec
from ..codec.open_inference import InferCodec
from ..codec.predictors import Predictor, RequestCodec, predictor
from ..codec.responses import QUEUE_FULL, Answer, error_answer
from ..codec.tf_serving import TfServingCodec
from ..errors import InvalidInputsError, ServingError
from ..explain.explainer import Explainer, explainer
from ..frames import BadFrameError, FrameKind, pack_raw, unpack_raw
from ..loaders.base import Model, RawModel, TensorModel
from ..memory import MemoryTrimmer
from ..spec import ServingSpec
from .batcher import Batcher, PendingRequest, Run
from .lifecycle import StopSignal
from .listener import ConnectionListener, FrameConnection
from .parity import compare, read
from .precision import measure_precision
from .sample_request import SampleRequest, find_sample
from .warmup import warm_up


class Host:
    """One model, its batcher and its connections."""

    def __init__(self, spec: ServingSpec, model: Model) -> None:
        """Warm the model up. Raises what the model raises, or `LoaderError` if it can't be explained."""
        self._model = model
        model_predictor = predictor(model)
        self._predictor: Predictor = model_predictor
        self._explainer: Explainer | None = None
        if spec.explanation:
            self._explainer = explainer(spec.explanation, model, spec.model_dir)
        self.sample: SampleRequest | None = find_sample(spec.model_dir, model)
        self.invariance = warm_up(self._predictor, self.sample, max_batch=spec.max_batch, batching=spec.batching)
        self.precision = measure_precision(model, self.sample, spec.precision)
        self._memory_trimmer = MemoryTrimmer()
        self._batcher = Batcher(
            max_batch=spec.max_batch,
            queue_limit=spec.queue_limit,
            merges=self.invariance.batching,
            idle=self._memory_trimmer.idle,
        )
        self._listener = ConnectionListener(
            self._handle_frame, self._batcher.cancel, body_limit=spec.body_limit, secret=spec.secret
        )
        self._codecs: dict[int, _BatchedCodec] = {
            FrameKind.PREDICT: _BatchedCodec(self._predictor),
            FrameKind.TF_SERVING: _BatchedCodec(TfServingCodec(model_predictor)),
            FrameKind.INFER: _BatchedCodec(InferCodec(model_predictor, model=spec.model, version=spec.version)),
            FrameKind.MLFLOW: _BatchedCodec(MlflowCodec(model_predictor, model)),
        }
        self._handlers: dict[int, Callable[[bytes], Answer]] = {
            FrameKind.EXPLAIN: self._explain,
            FrameKind.RAW: self._raw,
            FrameKind.PARITY: lambda body: self._parity(Path(body.decode())),
            FrameKind.PARITY_WITH: lambda body: self._parity(io.BytesIO(body)),
        }

    def serve(self, listener: socket.socket, stop: StopSignal) -> None:
        """Accept connections until the stop signal. Then stop reading, answer all received requests, and return."""
        worker = threading.Thread(target=self._batcher.work, name="model")
        worker.start()
        try:
            self._listener.serve(listener, stop)
        finally:  # also if accept fails: a process that can't serve must exit
            self._batcher.close()
            worker.join()

    def stats(self) -> dict[str, Any]:
        return {
            "waiting": self._batcher.waiting(),
            "runningSeconds": self._batcher.running_s(),
            **self._batcher.counts.as_json(),
        }

    def _handle_frame(self, connection: FrameConnection, request_id: int, kind: int, body: bytes) -> None:
        """Answer or enqueue the request of a frame. Never waits for the model."""
        self._memory_trimmer.add(len(body))
        try:
            if (codec := self._codecs.get(kind)) is not None:
                if self._batcher.full():
                    connection.send([(request_id, QUEUE_FULL)])
                    return
                request = codec.read(body)
                self._batcher.enqueue(PendingRequest(connection, request_id, codec.run, request, request.count))
            elif kind == FrameKind.CANCEL:
                self._batcher.cancel(connection, request_id)
            elif kind == FrameKind.STATS:
                connection.send([(request_id, (200, orjson.dumps(self.stats())))])
            else:
                self._enqueue_other(connection, request_id, kind, body)
        except ServingError as exc:
            connection.send([(request_id, error_answer(exc))])
        except Exception as exc:  # noqa: BLE001 - one request must not stop the connection
            traceback.print_exc()
            connection.send([(request_id, error_answer(exc))])

    def _enqueue_other(self, connection: FrameConnection, request_id: int, kind: int, body: bytes) -> None:
        handler = self._handlers.get(kind)
        if handler is None:
            raise InvalidInputsError(f"There are no requests of kind {kind}.")
        if self._batcher.full():
            connection.send([(request_id, QUEUE_FULL)])
            return
        self._batcher.enqueue(PendingRequest(connection, request_id, _one_by_one(handler), body))

    def _explain(self, body: bytes) -> Answer:
        if self._explainer is None:
            raise InvalidInputsError(
                "This version was created without an explanationConfig. Create one with --explanation-method to have "
                "its predictions explained."
            )
        return 200, write(self._explainer.explain(body))

    def _raw(self, body: bytes) -> Answer:
        try:
            content_type, data = unpack_raw(body)
        except BadFrameError as exc:
            raise InvalidInputsError(str(exc)) from exc
        if isinstance(self._model, RawModel):
            response, response_type = self._model.raw_predict(data, content_type)
            return 200, pack_raw(response_type, response)
        (response,) = self._predictor.run([self._predictor.read(data)])
        return 200, pack_raw("application/json", response)

    def _parity(self, reference: Path | IO[bytes]) -> Answer:
        if not isinstance(self._model, TensorModel):
            raise InvalidInputsError(f"There is nothing to compare {self._model.detail} with.")
        return 200, write(compare(self._model, read(reference)).as_json())


class _BatchedCodec:
    """The codec of one kind of requests that share batches."""

    def __init__(self, codec: RequestCodec) -> None:
        self.read = codec.read
        self._run = codec.run

    def run(self, requests: list[Any]) -> Sequence[Answer]:
        return [(200, response) for response in self._run(requests)]


def _one_by_one(handler: Callable[[bytes], Answer]) -> Run:
    return lambda bodies: [handler(body) for body in bodies]
