"""Targets that read parts of requests: bodies, filters, headers, multipart, settings of buckets."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

from trainshed.api.http.bodies import parse_json
from trainshed.api.http.media import parse_range
from trainshed.api.http.multipart import Related, split_parts
from trainshed.api.storage.uploads import parse_content_range
from trainshed.buckets.glob import match_names
from trainshed.domain.filters.gcloud import GCLOUD
from trainshed.domain.filters.parser import Dialect, parse
from trainshed.domain.filters.server import SERVER
from trainshed.domain.jobs.workload import read_job
from trainshed.domain.models.version_request import read_version
from trainshed.domain.page_tokens import decode_page_token, encode_page_token
from trainshed.domain.partial_response import read_fields, select
from trainshed.domain.storage.settings import merged
from trainshed.domain.times import parse_rfc3339
from trainshed.errors import TrainshedError
from trainshed.node.connect import ConnectError, parse_connect
from trainshed.proxy.request_normalizer import RequestNormalizer
from trainshed.serving.codec.mlflow import MlflowCodec
from trainshed.serving.codec.open_inference import InferCodec
from trainshed.serving.codec.predictors import InstancePredictor, TensorPredictor
from trainshed.serving.codec.tf_serving import TfServingCodec
from trainshed.serving.errors import ServingError
from trainshed.serving.frames import (
    ANSWER_HEAD,
    REQUEST_HEAD,
    BadFrameError,
    FrameKind,
    FrameReader,
    infer_head,
    pack_raw,
    pack_request,
    unpack_infer,
    unpack_raw,
)
from trainshed.testing.fakes.models import Scorer
from trainshed.testing.reliability.fuzz import samples
from trainshed.testing.reliability.fuzz.targets import ParserTarget

_ROW = [1.0, 2.0, 0.5]
_NAMES = ("", "a", "a/b/c.txt", "ä/[b]-{c}", "x" * 200)
_DOCUMENT = {
    "name": "job_1",
    "state": "RUNNING",
    "severity": "ERROR",
    "timestamp": "2026-11-19T10:00:00Z",
    "labels": {"a": "b", "n": 3, "f": 0.5, "none": None},
    "items": [{"id": "1", "tags": ["x", "y"]}],
    "message": "line with words",
}
_FILTERS = (
    'resource.type="ml_job" AND severity>=ERROR AND timestamp<"2026-01-01T00:00:00Z"',
    "name:job* OR NOT (state=RUNNING AND labels.n>2)",
    "message:lin* -labels.a:b",
    "labels.a=(b OR c) labels.none:*",
)
_JSON_WORDS = tuple(each for each in samples.HARD_TOKENS if len(each) < 100)
_FILTER_WORDS = (
    b" AND ",
    b" OR ",
    b"NOT ",
    b"(",
    b")",
    b'"',
    b"=~",
    b">=",
    b":",
    b"*",
    b"-",
    b"\\",
    b"labels.",
    b".*+(",
)
_HTTP_WORDS = (
    b"\r\n",
    b"\r\n\r\n",
    b"content-length: 5\r\n",
    b"transfer-encoding: chunked\r\n",
    b"0\r\n\r\n",
    b"host: ",
)


class Echo:
    """A model that returns its instances."""

    detail = "Python"
    merges = True

    def predict(self, instances: list[Any], /, **_others: Any) -> list[Any]:
        return instances


def request_targets() -> list[ParserTarget]:
    """Return the targets."""
    return [*_bodies(), *_texts(), *_streams(), *_documents()]


def _bodies() -> list[ParserTarget]:
    """Bodies that a host reads, and the frames around them."""
    tensors, instances = TensorPredictor(Scorer()), InstancePredictor(Echo())
    predict = json.dumps({"instances": [_ROW, {"x": _ROW}], "signature_name": "serving_default"}).encode()
    columns = json.dumps({"inputs": {"x": [_ROW]}}).encode()
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 3]}
    infer = json.dumps({"id": "i", "inputs": [{**tensor, "data": _ROW}], "outputs": [{"name": "scores"}]}).encode()
    head = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": 12}}]}).encode()
    binary = infer_head(len(head)) + head + struct.pack("<3f", *_ROW)
    frame = {"dataframe_split": {"columns": ["a", "b", "c"], "index": [0], "data": [_ROW]}}
    records = {"dataframe_records": [{"x": 1.5, "y": 2, "z": -3}], "params": {}}
    codecs: Sequence[tuple[str, Any, Any, tuple[bytes, ...]]] = (
        ("predict", tensors, instances, (predict,)),
        ("tfserving", TfServingCodec(tensors), TfServingCodec(instances), (predict, columns)),
        (
            "infer",
            InferCodec(tensors, model="m", version="v1"),
            InferCodec(instances, model="m", version="v1"),
            (infer_head(0) + infer, binary),
        ),
        (
            "mlflow",
            MlflowCodec(tensors, Scorer()),
            MlflowCodec(instances, Echo()),
            (json.dumps(frame).encode(), json.dumps(records).encode(), predict, columns),
        ),
    )
    targets = [
        ParserTarget(
            name=f"{name}-{kind}",
            parse=_answered(codec),
            refusals=(ServingError, BadFrameError),
            seeds=seeds,
            words=_JSON_WORDS,
            broken=(b'{"instances": "text"}',),
        )
        for name, tensor_codec, instance_codec, seeds in codecs
        for kind, codec in (("tensors", tensor_codec), ("instances", instance_codec))
    ]
    frames = pack_request(7, FrameKind.PREDICT, predict) + pack_request(8, FrameKind.STATS, b"")
    return [
        *targets,
        ParserTarget(name="frames", parse=_read_frames, refusals=(BadFrameError,), seeds=(frames,)),
        ParserTarget(
            name="raw-frame", parse=unpack_raw, refusals=(BadFrameError,), seeds=(pack_raw("text/csv", b"1,2"),)
        ),
        ParserTarget(name="infer-frame", parse=unpack_infer, refusals=(BadFrameError,), seeds=(binary,)),
    ]


def _answered(codec: Any) -> Callable[[bytes], object]:
    """Read a body, and run the model with what was read."""

    def parse_and_run(body: bytes) -> object:
        request = codec.read(body)
        answers = codec.run([request])
        assert len(answers) == 1
        return answers

    return parse_and_run


def _read_frames(data: bytes) -> object:
    """Read frames in one piece and byte by byte, with the same result."""
    for head in (REQUEST_HEAD, ANSWER_HEAD):
        whole = FrameReader(head, body_limit=1 << 20).feed(data)
        reader, parts = FrameReader(head, body_limit=1 << 20), []
        for at in range(len(data)):
            parts += reader.feed(data[at : at + 1])
        assert parts == whole
    return None


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode("utf-8", "replace"))


def _texts() -> list[ParserTarget]:
    """Values of query parameters and headers."""

    def filtered(dialect: Dialect) -> Callable[[str], object]:
        def read(text: str) -> object:
            parsed = parse(text, dialect)
            return parsed.matches(_DOCUMENT), parsed.window("timestamp"), parsed.required("name")

        return read

    def globbed(pattern: str) -> object:
        _, matches = match_names(pattern)
        return [matches(name) for name in _NAMES]

    refusals = (TrainshedError, ValueError)  # a time that is none is a `ValueError`, which its readers expect
    filters = tuple(each.encode() for each in _FILTERS)
    ranges = (b"bytes=0-4", b"bytes=-5", b"bytes=9-")
    content_ranges = (b"bytes 0-3/4", b"bytes */*", b"bytes 5-9/*", b"bytes 0-*/*")
    globs = (b"a/**/b*.{txt,gz}", b"[!a-z]?[x]")
    selections = (b"items(name,labels/a),nextPageToken", b"*/id,items/tags")
    texts: Sequence[tuple[str, Callable[[str], object], tuple[bytes, ...], tuple[bytes, ...]]] = (
        ("list-filter", filtered(SERVER), filters, _FILTER_WORDS),
        ("gcloud-filter", filtered(GCLOUD), filters, _FILTER_WORDS),
        ("match-glob", globbed, globs, (b"**", b"{", b"}", b",", b"[", b"]", b"!", b"^", b"-", b"?")),
        ("range", lambda text: parse_range(text, 10), ranges, (b"bytes=", b"-", b",")),
        ("content-range", parse_content_range, content_ranges, (b"bytes ", b"*", b"/", b"-")),
        ("fields", lambda text: select(_DOCUMENT, read_fields(text)), selections, (b"(", b")", b",", b"/", b"*")),
        ("page-token", decode_page_token, (encode_page_token([1, "a"]).encode(),), ()),
        ("rfc3339", parse_rfc3339, (b"2026-11-19T10:00:00.123456789Z", b"2026-11-19T10:00:00+02:30"), (b"9999-", b"+")),
    )
    return [
        ParserTarget(name=name, parse=_text(read), refusals=refusals, seeds=seeds, words=words, max_bytes=4096)
        for name, read, seeds, words in texts
    ]


def _finished(coroutine: Coroutine[Any, Any, object]) -> object:
    """Run a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the coroutine waits")


async def _related(data: bytes) -> object:
    """Read an upload in chunks of one size and of another, with the same result."""
    found: list[tuple[object, ...]] = []
    for size in (7, 4096):

        async def chunks(size: int = size) -> AsyncIterator[bytes]:
            for at in range(0, len(data), size):
                yield data[at : at + size]

        upload = Related("multipart/related; boundary='frontier'", chunks())
        try:
            description = await upload.description()
            await upload.begin_media()
            media = b"".join([each async for each in upload.media()])
            found.append((description, upload.media_type, media))
        except TrainshedError as exc:
            found.append((type(exc).__name__, "", b""))
    assert found[0] == found[1]
    return found


def _normalized(data: bytes) -> bytes:
    return RequestNormalizer("storage.googleapis.com").feed(data)


def _streams() -> list[ParserTarget]:
    """Heads of HTTP, and multipart bodies."""
    batch = samples.RAW_BODIES["/batch/storage/"][0][1]
    upload = samples.RAW_BODIES["/upload/storage/"][0][1]
    words = (b"--frontier", b"--frontier--", b"\r\n", b"\n", b"\n\n", b"content-type: a\r\n")
    request = b"POST /storage/v1/b HTTP/1.1\r\nhost: storage.googleapis.com\r\ncontent-length: 2\r\n\r\n{}"
    chunked = (
        b"PUT /a HTTP/1.1\r\nHost: storage.googleapis.com:443\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n0\r\nx: y\r\n\r\nGET / HTTP/1.0\r\nhost: storage.googleapis.com\r\n\r\n"
    )
    connect = b"CONNECT storage.googleapis.com:443 HTTP/1.1\r\nhost: x\r\n\r\n"
    refusals = (TrainshedError,)
    return [
        ParserTarget(
            name="batch",
            parse=lambda data: split_parts("multipart/mixed; boundary=frontier", data),
            refusals=refusals,
            seeds=(batch,),
            words=words,
        ),
        ParserTarget(
            name="boundary",
            parse=_text(lambda text: split_parts(text, batch)),
            refusals=refusals,
            seeds=(b'multipart/mixed; boundary="frontier"', b"multipart/mixed; boundary=frontier"),
            words=(b"boundary=", b'"', b"'", b";"),
        ),
        ParserTarget(
            name="multipart-upload",
            parse=lambda data: _finished(_related(data)),
            refusals=refusals,
            seeds=(upload,),
            words=words,
        ),
        ParserTarget(
            name="http-head", parse=_normalized, refusals=refusals, seeds=(request, chunked), words=_HTTP_WORDS
        ),
        ParserTarget(
            name="connect", parse=parse_connect, refusals=(ConnectError,), seeds=(connect,), words=_HTTP_WORDS
        ),
    ]


def _documents() -> list[ParserTarget]:
    """JSON of jobs, versions and buckets."""

    def settings(document: dict[str, Any]) -> object:
        known = ("lifecycle", "cors", "retentionPolicy")
        return merged({}, {name: value for name, value in document.items() if name in known}, 1_700_000_000_000_000)

    def read(check: Callable[[dict[str, Any]], object]) -> Callable[[bytes], object]:
        def parse_and_check(data: bytes) -> object:
            document = parse_json(data)
            return check(document) if isinstance(document, dict) else None

        return parse_and_check

    documents: Sequence[tuple[str, Callable[[dict[str, Any]], object], Any]] = (
        ("job", read_job, samples.BODIES["Job"]),
        ("version", read_version, samples.BODIES["Version"]),
        ("bucket", settings, samples.BODIES["Bucket"]),
    )
    return [
        ParserTarget(
            name=name,
            parse=read(check),
            refusals=(TrainshedError,),
            seeds=(json.dumps(good).encode(),),
            words=_JSON_WORDS,
        )
        for name, check, good in documents
    ]
