"""Targets that read files of programs and of users: archives, records, journals, logs, models."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from trainshed.attempts.event_files import EventFiles, EventFolder
from trainshed.attempts.event_records import scalars
from trainshed.attempts.journal import AttemptRecord, fold, read_lines
from trainshed.attempts.log_file import AttemptLog
from trainshed.attempts.metric_reports import ReportCopy, last_reports
from trainshed.attempts.progress_lines import ProgressParser
from trainshed.attempts.samples import samples_since
from trainshed.node import journal
from trainshed.node.archives.extract import extract
from trainshed.node.archives.readers import BadArchiveError
from trainshed.node.process.metric_reports import HYPERTUNE_FILE, REPORTS_FILE
from trainshed.serving.errors import ServingError
from trainshed.serving.formats.onnx import read_signature
from trainshed.serving.formats.protobuf import BadMessageError, fields
from trainshed.serving.formats.saved_model import read_signatures, with_shared_tensors
from trainshed.serving.formats.tf_serving_warmup import requests
from trainshed.serving.formats.tfrecord import records
from trainshed.testing.reliability.fuzz.targets import ParserTarget
from trainshed.testing.workloads import event_files as events
from trainshed.testing.workloads import onnx_files

_REPORT = b'{"timestamp": 1700000000.5, "trial": "1", "accuracy": "0.5", "global_step": "3"}\n'
_SAMPLE = b'{"t": 1700000000000000, "r": "master-replica-0", "cpu": 1.5, "rss": 1000, "processes": 3, "span": 1.0}\n'
_LOG = (
    b'{"t": 1700000000000000, "r": "master-replica-0", "s": "INFO", "m": "step 1"}\n'
    b'{"t": 1700000000000001, "r": "service", "s": "ERROR", "m": "lost"}\n'
)
_JSON_WORDS = (b"null", b"1e999", b"-1", b'"\\ud800"', b"[]", b"{}", b"\n", b"9" * 30, b"\xff", b'"t": ', b"true")


def file_targets(folder: Path) -> list[ParserTarget]:
    """Return the targets. They write to `folder`, which should be in memory."""
    return [*_archives(folder), *_records(folder), *_attempts(folder), *_models(folder)]


def _archives(folder: Path) -> list[ParserTarget]:
    archive, into = folder / "archive", folder / "into"

    def extracted(data: bytes) -> None:
        archive.write_bytes(data)
        into.mkdir()
        try:
            extract(str(archive), str(into))
        finally:
            shutil.rmtree(into)

    packed = gzip.compress(_tar("a"), mtime=0)
    names = ("package-1.0/setup.py", "package-1.0/trainer/task.py", "package-1.0/" + "long/" * 30 + "name.py")
    zipped = _zip()
    words = (b"ustar\x0000", b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"../", b"\x1f\x8b\x08")
    return [
        ParserTarget(
            name="archive",
            parse=extracted,
            refusals=(BadArchiveError,),
            seeds=(_tar(*names), packed, zipped),
            words=words,
            broken=(zipped[:30] + zipped[60:],),  # its first member is before the file
            max_bytes=20_480,
        )
    ]


def _tar(*names: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 5
            tar.addfile(member, io.BytesIO(b"bytes"))
    return file.getvalue()


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (("trainer/task.py", "print()" * 20), ("trainer-1.0.dist-info/RECORD", "")):
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def _records(folder: Path) -> list[ParserTarget]:
    event = events.event(
        1_700_000_000.0, 3, events.simple_value("loss", 0.5), events.tensor_value("a", events.float_tensor(1))
    )
    run = folder / "events"
    run.mkdir()

    def read_events(data: bytes) -> object:
        (run / "events.out.tfevents.1.host").write_bytes(data)
        files = EventFiles(since_us=0)
        place = EventFolder(run, ())
        return list(files.read_new([place])), list(files.problems())

    tensor = (
        events.field(1, 1) + events.field(2, events.field(2, events.field(1, 2))) + events.field(4, b"\0\0\x80?\0\0\0@")
    )
    predict = events.field(1, events.field(3, "serving_default")) + events.field(
        2, events.field(1, "x") + events.field(2, tensor)
    )
    log = events.field(6, events.field(1, predict))

    no_text = log.replace(b"serving", b"\xff\xff\xff\xff\xff\xff\xff")
    huge = events.field(2, events.field(2, events.field(1, 1 << 40)))  # of which one element is given
    entry = events.field(1, "x") + events.field(2, events.field(1, 1) + huge + events.field(4, b"\0\0\x80?"))
    endless = events.field(6, events.field(1, events.field(2, entry)))

    def warmed(data: bytes) -> object:
        return list(requests(events.framed(data)))

    refusals = (BadMessageError,)
    framed = events.framed(event)
    return [
        ParserTarget(name="event-file", parse=read_events, refusals=(), seeds=(framed, framed * 3)),
        ParserTarget(
            name="event-file-records", parse=lambda data: read_events(events.framed(data)), refusals=(), seeds=(event,)
        ),
        ParserTarget(name="event", parse=lambda data: scalars(data, {"a"}), refusals=refusals, seeds=(event,)),
        ParserTarget(
            name="tfrecord", parse=lambda data: list(records(io.BytesIO(data))), refusals=refusals, seeds=(framed,)
        ),
        ParserTarget(name="protobuf", parse=fields, refusals=refusals, seeds=(event, log)),
        ParserTarget(name="warmup-requests", parse=warmed, refusals=refusals, seeds=(log,), broken=(no_text, endless)),
    ]


def _attempts(folder: Path) -> list[ParserTarget]:
    attempt = folder / "attempt"
    attempt.mkdir()
    place = EventFolder(attempt, ())

    def written(name: str, read: Callable[[], object]) -> Callable[[bytes], object]:
        def write_and_read(data: bytes) -> object:
            path = attempt / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            return read()

        return write_and_read

    def read_log() -> object:
        log = AttemptLog(root=attempt, folder=(), floor_us=0)
        forwards, backwards = list(log.forwards()), list(log.backwards())
        assert sum(each.end - each.start for each in forwards) == sum(each.end - each.start for each in backwards)
        return [log.find(time_us) for time_us in (0, 1_700_000_000_000_001, 1 << 60)]

    facts = [
        dict.fromkeys(names, 1) | {"event": event, "t": 1_700_000_000_000_000}
        for event, names in journal.EVENTS.items()
    ]
    for each in facts:
        each |= {name: "master-replica-0" for name in ("name", "suspect") if name in each}
    lines = b"".join(json.dumps(each).encode() + b"\n" for each in facts)
    progress = b"Epoch 3/10\n 12/60 [====>....] - ETA: 3s - loss: 0.5\nstep 100, loss = 0.25\nSaving to gs://b/o\n"
    return [
        ParserTarget(
            name="journal",
            parse=written("journal.jsonl", lambda: fold(AttemptRecord(), read_lines(attempt)[0])),
            refusals=(),
            seeds=(lines,),
            words=_JSON_WORDS,
        ),
        ParserTarget(
            name="log", parse=written("log.jsonl", read_log), refusals=(), seeds=(_LOG, _LOG * 20), words=_JSON_WORDS
        ),
        ParserTarget(
            name="samples",
            parse=written("samples.jsonl", lambda: samples_since(attempt)),
            refusals=(),
            seeds=(_SAMPLE,),
            words=_JSON_WORDS,
        ),
        ParserTarget(
            name="hypertune",
            parse=written(HYPERTUNE_FILE, lambda: list(last_reports([place]))),
            refusals=(),
            seeds=(_REPORT,),
            words=_JSON_WORDS,
        ),
        ParserTarget(
            name="metric-reports",
            parse=written(REPORTS_FILE, lambda: list(ReportCopy().new_reports(place))),
            refusals=(),
            seeds=(_REPORT * 3,),
            words=_JSON_WORDS,
        ),
        ParserTarget(name="progress", parse=_read_progress, refusals=(), seeds=(progress,)),
    ]


def _read_progress(data: bytes) -> object:
    reader = ProgressParser()
    return [reader.read(number, line) for number, line in enumerate(data.decode("utf-8", "replace").splitlines())]


def _models(folder: Path) -> list[ParserTarget]:
    model = folder / "model"
    model.mkdir()

    def read_onnx(data: bytes) -> object:
        path = model / "model.onnx"
        path.write_bytes(data)
        return read_signature(path)

    def read_saved_model(data: bytes) -> object:
        (model / "saved_model.pb").write_bytes(data)
        return with_shared_tensors(model, read_signatures(model))

    info = events.field(1, "x:0") + events.field(2, 1) + events.field(3, events.field(2, events.field(1, 3)))
    definition = events.field(1, events.field(1, "x") + events.field(2, info)) + events.field(
        2, events.field(1, "y") + events.field(2, info)
    )
    graph = events.field(1, events.field(4, "serve")) + events.field(
        5, events.field(1, "serving_default") + events.field(2, definition)
    )
    refusals = (ServingError,)
    return [
        ParserTarget(name="onnx", parse=read_onnx, refusals=refusals, seeds=(onnx_files.MODELS["dense"],)),
        ParserTarget(name="saved-model", parse=read_saved_model, refusals=refusals, seeds=(events.field(2, graph),)),
    ]
