"""Batch prediction: `python -m trainshed_serving.batch PLAN` predicts the rows of files and writes answers to files.

It may be killed at any moment and started again: shards that are done are not repeated, and a result is either whole or
not there.
"""

from __future__ import annotations

import base64
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
from .shards import LINES, RECORDS, InputRow, Shard, cut, rows

_TOLD_S = 5.0  #: between two lines in the log
_SAVED_S = 0.5  #: between two notes of how far it is
_SHOWN = 200  #: characters of a bad row that its error repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What is to be done: one JSON file."""

    spec: ServingSpec
    inputs: tuple[str, ...]  #: paths, in order
    names: Mapping[str, str]  #: of the inputs, as the user knows them
    output: Path  #: the folder for the results
    state: Path  #: a folder of this job's own, on the same file system
    data_format: str
    batch_size: int
    signature: str  #: empty: the default one

    @classmethod
    def read(cls, path: Path) -> BatchPlan:
        given = json.loads(path.read_bytes())
        return cls(
            spec=ServingSpec.from_json(given["spec"]),
            inputs=tuple(given["inputs"]),
            names=given["names"],
            output=Path(given["output"]),
            state=Path(given["state"]),
            data_format=given["data_format"],
            batch_size=given["batch_size"],
            signature=given["signature"],
        )


@dataclass(slots=True)
class RowCount:
    """What came of some rows."""

    predictions: int = 0
    errors: int = 0


def main(argv: list[str]) -> int:
    """Do what the plan says. 1, with the reason in the log, if the model can't be loaded or a file can't be read."""
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
    """One plan and the model that it is for."""

    def __init__(self, plan: BatchPlan, model: Model) -> None:
        self._plan = plan
        self._predictor: Predictor = predictor(model)
        self._takes_text = self._predictor.takes_text(plan.signature)
        self._shards = self._cut()
        self._done = self._finished()
        self._progress = ProgressFile(plan.state / "progress.json", self._shards, self._done)

    def run(self) -> None:
        """Predict what is not done yet, and put the errors of all shards into one file."""
        plan, count = self._plan, len(self._shards)
        plan.output.mkdir(parents=True, exist_ok=True)
        if self._done:
            self._say(f"{len(self._done)} of {count} shards were done before and are not repeated.")
        # What is predicted and what is read next don't wait for each other.
        with ThreadPoolExecutor(1) as thread:
            for shard in self._shards:
                if shard.number not in self._done:
                    self._predict(shard, thread)
        self._settle()
        total = self._progress.close()
        self._say(f"Predicted {total.predictions:,} rows; {total.errors:,} had errors.")

    def _cut(self) -> list[Shard]:
        """The shards, as they were when the job began: what is done is known by their numbers."""
        kept = self._plan.state / "shards.json"
        if kept.exists():
            return [Shard(**shard) for shard in json.loads(kept.read_bytes())]
        shards = cut(self._plan.inputs, self._plan.data_format)
        with _whole(kept) as file:
            file.write(json.dumps([asdict(shard) for shard in shards]).encode())
        return shards

    def _finished(self) -> dict[int, RowCount]:
        notes = {shard.number: self._note(shard) for shard in self._shards}
        return {number: RowCount(**json.loads(note.read_bytes())) for number, note in notes.items() if note.exists()}

    def _note(self, shard: Shard) -> Path:
        return self._plan.state / f"shard-{shard.number:05d}.json"

    def _errors(self, shard: Shard) -> Path:
        return self._plan.state / f"errors-{shard.number:05d}.jsonl"

    def _predict(self, shard: Shard, thread: ThreadPoolExecutor) -> None:
        plan, done = self._plan, RowCount()
        result = plan.output / f"prediction.results-{shard.number:05d}-of-{len(self._shards):05d}"
        with (
            _whole(self._errors(shard)) as bad,
            _whole(result, draft=plan.state / f"results-{shard.number:05d}") as good,
        ):
            for batch, outcomes in self._outcomes(shard, thread):
                lines = [outcome for outcome in outcomes if not isinstance(outcome, ServingError)]
                good.write(b"".join([line + b"\n" for line in lines]))
                done.predictions += len(lines)
                if len(lines) < len(batch):
                    for row, outcome in zip(batch, outcomes, strict=True):
                        if isinstance(outcome, ServingError):
                            done.errors += 1
                            bad.write(self._error(shard, row, outcome))
                if line := self._progress.add(shard, batch[-1].read, done):
                    self._say(line)
        with _whole(self._note(shard)) as note:
            note.write(json.dumps(asdict(done)).encode())
        self._progress.finish(shard, done)

    def _outcomes(
        self, shard: Shard, thread: ThreadPoolExecutor
    ) -> Iterator[tuple[list[InputRow], Sequence[bytes | ServingError]]]:
        """Batches of rows, each with a line of output or an error for every row.

        The model has the next one already when one is given out, and the one after that is read meanwhile.
        """
        pending: tuple[list[InputRow], Future[Sequence[bytes | ServingError]]] | None = None
        for batch in self._batches(shard):
            request = self._request(batch)
            if request is not None:
                future = thread.submit(self._quick_lines, request, batch)
            else:
                future = thread.submit(self._lines, [self._parse(row) for row in batch])
            if pending is not None:
                yield pending[0], pending[1].result()
            pending = batch, future
        if pending is not None:
            yield pending[0], pending[1].result()

    def _request(self, batch: list[InputRow]) -> Any:
        """All rows of a batch, parsed at once, if that can be done; else None."""
        if self._plan.data_format in RECORDS or self._takes_text:
            return None
        return self._predictor.read_lines([row.content for row in batch], self._plan.signature)

    def _quick_lines(self, request: Any, batch: list[InputRow]) -> Sequence[bytes | ServingError]:
        """As `_lines`, for rows that are all good. If the model fails on one of them, it is found the long way."""
        try:
            predictions = self._predictor.predictions([request])
            return [write(prediction) for prediction in predictions]
        except ServingError:
            return self._lines([self._parse(row) for row in batch])

    def _batches(self, shard: Shard) -> Iterator[list[InputRow]]:
        batch: list[InputRow] = []
        for row in rows(shard, self._plan.data_format):
            batch.append(row)
            if len(batch) == self._plan.batch_size:
                yield batch
                batch = []
        if batch:
            yield batch

    def _parse(self, row: InputRow) -> Any:
        """The instance that a row is, or what is wrong with it."""
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
        """For each instance its prediction as JSON; what is an error already stays one."""
        good = [instance for instance in parsed if not isinstance(instance, ServingError)]
        answers = iter(self._answers(good))
        return [instance if isinstance(instance, ServingError) else next(answers) for instance in parsed]

    def _answers(self, instances: list[Any]) -> Sequence[bytes | ServingError]:
        """One run of the model for all; if that fails, one for each, so that only those at fault fail."""
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
        return [self._answers([instance])[0] for instance in instances]

    def _error(self, shard: Shard, row: InputRow, error: ServingError) -> bytes:
        plan = self._plan
        where = {"file": plan.names[shard.path], "line" if plan.data_format in LINES else "record": row.number}
        content = row.content[:_SHOWN].decode(errors="replace")
        return write({**where, "error": str(error), "instance": content}) + b"\n"

    def _settle(self) -> None:
        path = self._plan.output / "prediction.errors_stats-00000-of-00001"
        with _whole(path, draft=self._plan.state / "errors-all") as all_of_them:
            for shard in self._shards:
                all_of_them.write(self._errors(shard).read_bytes())

    def _say(self, line: str) -> None:
        print(line, flush=True)  # noqa: T201 - the job's log


class ProgressFile:
    """How far the job is: in a file for the server, and now and then as a line for people."""

    def __init__(
        self,
        path: Path,
        shards: Sequence[Shard],
        done: Mapping[int, RowCount],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._bytes = sum(shard.size for shard in shards)
        self._before = RowCount(
            sum(count.predictions for count in done.values()), sum(count.errors for count in done.values())
        )
        self._read = sum(shard.size for shard in shards if shard.number in done)
        self._begun = (clock(), self._before.predictions)
        self._clock = clock
        self._saved = self._told = clock()
        self._save(self._before, self._read)

    def add(self, shard: Shard, read: int, count: RowCount) -> str:
        """So much of a shard is done. A line for the log, if it is time for one."""
        now = self._clock()
        total = RowCount(self._before.predictions + count.predictions, self._before.errors + count.errors)
        at = self._read + min(read, shard.size)
        if now - self._saved >= _SAVED_S:
            self._save(total, at)
            self._saved = now
        if now - self._told < _TOLD_S:
            return ""
        self._told = now
        rate = (total.predictions - self._begun[1]) / max(now - self._begun[0], 1e-9)
        share = at / self._bytes if self._bytes else 1.0
        return f"Predicted {total.predictions:,} rows ({share:.0%}), {rate:,.0f} rows/s, {total.errors:,} errors."

    def finish(self, shard: Shard, count: RowCount) -> None:
        self._before = RowCount(self._before.predictions + count.predictions, self._before.errors + count.errors)
        self._read += shard.size
        self._save(self._before, self._read)

    def close(self) -> RowCount:
        self._save(self._before, self._bytes)
        return self._before

    def _save(self, total: RowCount, read: int) -> None:
        with _whole(self._path, sync=False) as file:
            file.write(json.dumps(asdict(total) | {"read": read, "bytes": self._bytes}).encode())


@contextmanager
def _whole(path: Path, *, draft: Path | None = None, sync: bool = True) -> Iterator[BinaryIO]:
    """A file to write to that is there, whole, when the block ends, and not at all if the block is left by an error."""
    draft = draft or path.with_name(f"{path.name}.draft")
    with open(draft, "wb") as file:
        yield file
        file.flush()
        if sync:
            os.fsync(file.fileno())
    draft.rename(path)
    if sync:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
