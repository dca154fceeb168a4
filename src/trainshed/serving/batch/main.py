"""Batch prediction:

`python -m trainshed_serving.batch PLAN` predicts the rows of files and writes the results to files.

It can be killed and restarted at any time. Completed shards are not repeated, and results appear atomically.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..codec.json_documents import read_object, write
from ..codec.predictors import Predictor, predictor
from ..errors import InvalidInputsError, ServingError
from ..formats.protobuf import BadMessageError
from ..host.process import load_model
from ..loaders.base import Model
from ..spec import ServingSpec
from .shards import LINES, RECORDS, InputRow, Shard, rows, split_into_shards

_LOG_INTERVAL_S = 5.0  #: between two log lines
_SAVE_INTERVAL_S = 0.5  #: between two writes of the progress file
_MAX_SHOWN_CHARACTERS = 200  #: of a bad row, in its error
_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)  #: of file systems that have none


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The plan of a batch prediction, read from one JSON file."""

    spec: ServingSpec
    root: str  #: the folder of all buckets: no link below it is followed
    inputs: tuple[str, ...]  #: paths, in order
    names: Mapping[str, str]  #: the inputs' names for users, by path
    output: Path  #: folder for the results
    state: Path  #: folder of this job
    data_format: str
    batch_size: int
    signature: str  #: empty: the default signature

    @classmethod
    def read(cls, path: Path) -> BatchPlan:
        plan = json.loads(path.read_bytes())
        return cls(
            spec=ServingSpec.from_json(plan["spec"]),
            root=plan["root"],
            inputs=tuple(plan["inputs"]),
            names=plan["names"],
            output=Path(plan["output"]),
            state=Path(plan["state"]),
            data_format=plan["data_format"],
            batch_size=plan["batch_size"],
            signature=plan["signature"],
        )


@dataclass(slots=True)
class RowCount:
    """Results of some rows."""

    predictions: int = 0
    errors: int = 0


def main(argv: list[str]) -> int:
    """Run the plan. Returns 1, with the reason in the log, if the model cannot be loaded or a file cannot be read."""
    plan = BatchPlan.read(Path(argv[0]))
    try:
        model = load_model(plan.spec)
        print(f"The model was loaded by {model.detail}.", flush=True)  # noqa: T201 - the job's log
        BatchRun(plan, model).run()
    except (ServingError, BadMessageError, OSError) as exc:
        print(exc, file=sys.stderr, flush=True)  # noqa: T201
        return 1
    return 0


class BatchRun:
    """One run of a plan with its model."""

    def __init__(self, plan: BatchPlan, model: Model) -> None:
        self._plan = plan
        self._predictor: Predictor = predictor(model)
        self._takes_text = self._predictor.takes_text(plan.signature)
        self._shards = self._load_shards()
        self._completed = self._completed_counts()
        self._progress = ProgressFile(plan.state / "progress.json", self._shards, self._completed)

    def run(self) -> None:
        """Predict all incomplete shards, and merge the errors of all shards into one file."""
        plan, count = self._plan, len(self._shards)
        plan.output.mkdir(parents=True, exist_ok=True)
        if self._completed:
            self._log(f"{len(self._completed)} of {count} shards were done before and are not repeated.")
        # Prediction and reading run in parallel.
        with ThreadPoolExecutor(1) as thread:
            for shard in self._shards:
                if shard.number not in self._completed:
                    self._predict(shard, thread)
        self._merge_errors()
        total = self._progress.close()
        self._log(f"Predicted {total.predictions:,} rows; {total.errors:,} had errors.")

    def _load_shards(self) -> list[Shard]:
        """The shards as of the first start. A restart must use the same numbers."""
        path = self._plan.state / "shards.json"
        if path.exists():
            return [Shard(**shard) for shard in json.loads(path.read_bytes())]
        shards = split_into_shards(self._plan.inputs, self._plan.data_format, root=self._plan.root)
        with _atomic_file(path) as file:
            file.write(json.dumps([asdict(shard) for shard in shards]).encode())
        return shards

    def _completed_counts(self) -> dict[int, RowCount]:
        paths = {shard.number: self._count_path(shard) for shard in self._shards}
        return {number: RowCount(**json.loads(path.read_bytes())) for number, path in paths.items() if path.exists()}

    def _count_path(self, shard: Shard) -> Path:
        return self._plan.state / f"shard-{shard.number:05d}.json"

    def _errors_path(self, shard: Shard) -> Path:
        return self._plan.state / f"errors-{shard.number:05d}.jsonl"

    def _predict(self, shard: Shard, thread: ThreadPoolExecutor) -> None:
        plan, count = self._plan, RowCount()
        result = plan.output / f"prediction.results-{shard.number:05d}-of-{len(self._shards):05d}"
        with (
            _atomic_file(self._errors_path(shard)) as errors_file,
            _result_file(result) as results_file,
        ):
            for batch, outcomes in self._outcomes(shard, thread):
                lines = [outcome for outcome in outcomes if not isinstance(outcome, ServingError)]
                results_file.write(b"".join([line + b"\n" for line in lines]))
                count.predictions += len(lines)
                if len(lines) < len(batch):
                    for row, outcome in zip(batch, outcomes, strict=True):
                        if isinstance(outcome, ServingError):
                            count.errors += 1
                            errors_file.write(self._error(shard, row, outcome))
                if line := self._progress.add(shard, batch[-1].read, count):
                    self._log(line)
        with _atomic_file(self._count_path(shard)) as count_file:
            count_file.write(json.dumps(asdict(count)).encode())
        self._progress.finish(shard, count)

    def _outcomes(
        self, shard: Shard, thread: ThreadPoolExecutor
    ) -> Iterator[tuple[list[InputRow], Sequence[bytes | ServingError]]]:
        """Batches of rows, each with an output line or an error per row.

        The model runs the next batch while one is consumed, and the batch after it is read meanwhile.
        """
        pending: tuple[list[InputRow], Future[Sequence[bytes | ServingError]]] | None = None
        for batch in self._batches(shard):
            request = self._request(batch)
            if request is not None:
                future = thread.submit(self._fast_lines, request, batch)
            else:
                future = thread.submit(self._lines, [self._parse(row) for row in batch])
            if pending is not None:
                yield pending[0], pending[1].result()
            pending = batch, future
        if pending is not None:
            yield pending[0], pending[1].result()

    def _request(self, batch: list[InputRow]) -> Any:
        """Parse all rows of a batch at once. Returns None if that is not possible."""
        if self._plan.data_format in RECORDS or self._takes_text:
            return None
        return self._predictor.read_lines([row.content for row in batch], self._plan.signature)

    def _fast_lines(self, request: Any, batch: list[InputRow]) -> Sequence[bytes | ServingError]:
        """Like `_lines`, for rows that all parsed. If the model fails, the slow path finds the rows at fault."""
        try:
            predictions = self._predictor.predictions([request])
            return [write(prediction) for prediction in predictions]
        except ServingError:
            return self._lines([self._parse(row) for row in batch])

    def _batches(self, shard: Shard) -> Iterator[list[InputRow]]:
        batch: list[InputRow] = []
        for row in rows(shard, self._plan.data_format, root=self._plan.root):
            batch.append(row)
            if len(batch) == self._plan.batch_size:
                yield batch
                batch = []
        if batch:
            yield batch

    def _parse(self, row: InputRow) -> Any:
        """The instance of a row, or the error in it."""
        if self._plan.data_format in RECORDS:
            return {"b64": base64.b64encode(row.content).decode()}
        try:
            if self._takes_text:
                return row.content.decode()
            document = read_object(b'{"instances":[%b]}' % row.content)
            if document.keys() != {"instances"} or len(document["instances"]) != 1:
                return InvalidInputsError("The line is not one JSON value.")
        except UnicodeDecodeError:
            return InvalidInputsError("The line is not UTF-8.")
        except ServingError as exc:
            return InvalidInputsError(f"The line is not JSON. {exc.detail}")
        return document["instances"][0]

    def _lines(self, parsed: list[Any]) -> Sequence[bytes | ServingError]:
        """The prediction of each instance as JSON. Errors in the input stay as they are."""
        valid = [instance for instance in parsed if not isinstance(instance, ServingError)]
        results = iter(self._predict_instances(valid))
        return [instance if isinstance(instance, ServingError) else next(results) for instance in parsed]

    def _predict_instances(self, instances: list[Any]) -> Sequence[bytes | ServingError]:
        """Run the model once for all instances.

        If that fails, run it for each, so that only the instances at fault fail.
        """
        if not instances:
            return []
        try:
            request = self._predictor.request(instances, self._plan.signature)
            predictions = self._predictor.predictions([request])
            if len(predictions) == len(instances):
                return [write(prediction) for prediction in predictions]
            failure = ServingError(f"{len(predictions)} predictions came for {len(instances)} instances.")
        except ServingError as exc:
            failure = exc
        if len(instances) == 1:
            return [failure]
        return [self._predict_instances([instance])[0] for instance in instances]

    def _error(self, shard: Shard, row: InputRow, error: ServingError) -> bytes:
        plan = self._plan
        location = {"file": plan.names[shard.path], "line" if plan.data_format in LINES else "record": row.number}
        content = row.content[:_MAX_SHOWN_CHARACTERS].decode(errors="replace")
        return write({**location, "error": str(error), "instance": content}) + b"\n"

    def _merge_errors(self) -> None:
        path = self._plan.output / "prediction.errors_stats-00000-of-00001"
        with _result_file(path) as merged:
            for shard in self._shards:
                merged.write(self._errors_path(shard).read_bytes())

    def _log(self, line: str) -> None:
        print(line, flush=True)  # noqa: T201 - the job's log


class ProgressFile:
    """Progress of the job: a file for the server, and periodic log lines for people."""

    def __init__(
        self,
        path: Path,
        shards: Sequence[Shard],
        done: Mapping[int, RowCount],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._bytes = sum(shard.size for shard in shards)
        self._completed_rows = RowCount(
            sum(count.predictions for count in done.values()), sum(count.errors for count in done.values())
        )
        self._bytes_read = sum(shard.size for shard in shards if shard.number in done)
        self._start = (clock(), self._completed_rows.predictions)
        self._clock = clock
        self._saved_s = self._logged_s = clock()
        self._save(self._completed_rows, self._bytes_read)

    def add(self, shard: Shard, read: int, count: RowCount) -> str:
        """Report that `read` bytes of a shard are done. Returns a log line if one is due."""
        now = self._clock()
        total = RowCount(
            self._completed_rows.predictions + count.predictions, self._completed_rows.errors + count.errors
        )
        position = self._bytes_read + min(read, shard.size)
        if now - self._saved_s >= _SAVE_INTERVAL_S:
            self._save(total, position)
            self._saved_s = now
        if now - self._logged_s < _LOG_INTERVAL_S:
            return ""
        self._logged_s = now
        rate = (total.predictions - self._start[1]) / max(now - self._start[0], 1e-9)
        share = position / self._bytes if self._bytes else 1.0
        return f"Predicted {total.predictions:,} rows ({share:.0%}), {rate:,.0f} rows/s, {total.errors:,} errors."

    def finish(self, shard: Shard, count: RowCount) -> None:
        self._completed_rows = RowCount(
            self._completed_rows.predictions + count.predictions, self._completed_rows.errors + count.errors
        )
        self._bytes_read += shard.size
        self._save(self._completed_rows, self._bytes_read)

    def close(self) -> RowCount:
        self._save(self._completed_rows, self._bytes)
        return self._completed_rows

    def _save(self, total: RowCount, read: int) -> None:
        with _atomic_file(self._path, sync=False) as file:
            file.write(json.dumps(asdict(total) | {"read": read, "bytes": self._bytes}).encode())


@contextmanager
def _result_file(path: Path) -> Iterator[BinaryIO]:
    """A file in a bucket that appears when the block succeeds, and not at all if it raises. It has no name until then:
    a draft in the bucket would be an object, and one elsewhere can't be moved there, since the bucket is a mount of its
    own in the sandbox."""
    try:
        fd = os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o666)
    except OSError as exc:
        if exc.errno not in _NO_UNNAMED_FILES:
            raise
        with _atomic_file(path) as file:
            yield file
        return
    with open(fd, "wb") as file:
        yield file
        file.flush()
        os.fsync(fd)
        path.unlink(missing_ok=True)
        os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)  # a folder makes Python use `linkat`
    _sync_folder(path.parent)


@contextmanager
def _atomic_file(path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """A file that appears atomically when the block succeeds, and not at all if it raises."""
    draft = path.with_name(f"{path.name}.draft")
    with open(draft, "wb") as file:
        yield file
        file.flush()
        if sync:
            os.fsync(file.fileno())
    draft.rename(path)
    if sync:
        _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
