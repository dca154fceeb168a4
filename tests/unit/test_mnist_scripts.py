"""The scripts of the MNIST sample: plain Python writes what TensorFlow reads."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainshed.serving.formats.protobuf import fields, packed
from trainshed.serving.formats.tfrecord import records

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
SCRIPTS = SAMPLES / "mnist_async" / "scripts"
MNIST = SAMPLES / "data" / "mnist"
PIXELS = 784
FIRST_DIGITS = {"train": [5, 0, 4, 1, 9, 2, 1, 3, 1, 4], "test": [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]}


def run(script: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Without any installed package: users have none when they make their data."""
    command = [sys.executable, "-S", "-E", str(SCRIPTS / script), *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


def example(record: bytes) -> dict[str, int | bytes]:
    """A tf.train.Example whose features have one value each."""
    [features] = fields(record)[1]
    found: dict[str, int | bytes] = {}
    for entry in map(fields, fields(features)[1]):
        [(kind, [values])] = fields(entry[2][0]).items()
        [value] = fields(values)[1]
        found[entry[1][0].decode()] = value if kind == 1 else next(packed(value))
    return found


def images(part: str) -> bytes:
    return gzip.decompress((MNIST / f"{part}-images-idx3-ubyte.gz").read_bytes())[16:]


@pytest.mark.parametrize(("part", "stem"), [("train", "train"), ("test", "t10k")])
def test_records_hold_the_images_and_their_digits(part: str, stem: str, tmp_path: Path) -> None:
    done = run("create_records.py", "--output-dir", str(tmp_path / "data"), "--limit", "300", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = [example(record) for record in records(io.BytesIO((tmp_path / "data" / f"{part}.tfrecords").read_bytes()))]
    assert len(found) == 300
    assert [item["label"] for item in found[:10]] == FIRST_DIGITS[part]
    assert b"".join(bytes(item["image_raw"]) for item in found) == images(stem)[: 300 * PIXELS]
    assert {(item["height"], item["width"], item["depth"]) for item in found} == {(28, 28, 1)}
    assert not list((tmp_path / "data").glob("*.partial"))


def test_zipped_records_are_the_same(tmp_path: Path) -> None:
    for flags in ([], ["--gzip"]):
        assert run("create_records.py", "--output-dir", ".", "--limit", "20", *flags, cwd=tmp_path).returncode == 0
    assert gzip.decompress((tmp_path / "eval.tfr.gz").read_bytes()) == (tmp_path / "test.tfrecords").read_bytes()


def test_all_of_mnist_ships() -> None:
    sizes = {"train": 60_000, "t10k": 10_000}
    for stem, count in sizes.items():
        assert len(images(stem)) == count * PIXELS
        labels = gzip.decompress((MNIST / f"{stem}-labels-idx1-ubyte.gz").read_bytes())[8:]
        assert len(labels) == count
        assert set(labels) == set(range(10))


def test_a_damaged_source_is_refused(tmp_path: Path) -> None:
    for path in MNIST.glob("*.gz"):
        (tmp_path / path.name).symlink_to(path)
    cut = tmp_path / "train-labels-idx1-ubyte.gz"
    whole = gzip.decompress(cut.read_bytes())
    cut.unlink()
    cut.write_bytes(gzip.compress(whole[:-5]))
    done = run("create_records.py", "--source-dir", ".", "--output-dir", "out", cwd=tmp_path)
    assert done.returncode == 1
    assert "not whole MNIST files" in done.stderr
    assert not list((tmp_path / "out").iterdir())


def test_a_request_holds_the_first_ten_test_images(tmp_path: Path) -> None:
    done = run("make_request.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    instances = [json.loads(line) for line in (tmp_path / "request.json").read_text().splitlines()]
    assert [list(instance) for instance in instances] == [["inputs"]] * 10
    pixels = bytes(round(value * 255) for instance in instances for value in instance["inputs"])
    assert pixels == images("t10k")[: 10 * PIXELS]


@pytest.mark.parametrize("script", ["create_records.py", "make_request.py"])
def test_scripts_can_be_run_by_name(script: str) -> None:
    path = SCRIPTS / script
    assert path.stat().st_mode & 0o111
    assert path.read_text().startswith("#!/usr/bin/env python3\n")
