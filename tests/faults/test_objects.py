"""Objects under cut connections, killed servers, races, a full disk and large bodies."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import google_crc32c
import psutil
import pytest

from trainshed.buckets.file_backend import FileBackend
from trainshed.domain.objects import ObjectDraft
from trainshed.errors import DiskFullError
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.resources import small_disk
from trainshed.testing.processes.servers import RunningServer

BUCKET = "fault-objects"
SLACK_BYTES = 50 << 20  #: how much memory the server may use for an upload of any size


@pytest.fixture(scope="module")
def shared(server: RunningServer) -> RunningServer:
    server.call("POST", "/storage/v1/b?project=fault-objects", {"name": BUCKET})
    return server


def call(server: RunningServer, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes, Any]:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=120)
    sent = {"authorization": f"Bearer {server.token}"} | {key.replace("_", "-"): v for key, v in headers.items()}
    try:
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def media(name: str, query: str = "") -> str:
    return f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={name}{query}"


def get(server: RunningServer, name: str) -> tuple[int, bytes, Any]:
    return call(server, "GET", f"/storage/v1/b/{BUCKET}/o/{name}?alt=media")


def send_cut(server: RunningServer, path: str, data: bytes, *, cut: int, method: str = "POST", head: str = "") -> None:
    """Announce all of the data, send some of it and hang up."""
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=30) as connection:
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {address.netloc}",
            f"Authorization: Bearer {server.token}",
            f"Content-Length: {len(data)}",
            *([head] if head else []),
        ]
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + data[:cut])


def staged(server: RunningServer) -> list[Path]:
    return list((server.home / "uploads").glob("put-*"))


@pytest.mark.fault("F40")
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_an_upload_cut_anywhere_leaves_the_old_object_and_no_file(shared: RunningServer, share: float) -> None:
    assert call(shared, "POST", media("cut"), b"old")[0] == 200
    data = os.urandom(5 << 20)
    send_cut(shared, media("cut"), data, cut=int(len(data) * share))
    eventually(lambda: not staged(shared))
    assert get(shared, "cut")[:2] == (200, b"old")


@pytest.mark.fault("F40")
def test_a_resumable_upload_goes_on_after_a_cut_and_a_killed_server(own_server: RunningServer) -> None:
    server = own_server
    server.call("POST", "/storage/v1/b?project=fault-objects", {"name": BUCKET})
    data = os.urandom(5 << 20)
    begin = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=resumable&name=long&ifGenerationMatch=0"
    location = urlsplit(call(server, "POST", begin, b"{}")[2]["location"])
    session = f"{location.path}?{location.query}"
    send_cut(
        server, session, data, cut=3 << 20, method="PUT", head=f"Content-Range: bytes 0-{len(data) - 1}/{len(data)}"
    )
    eventually(lambda: next((server.home / "uploads").glob("*.data")).stat().st_size > 2 << 20)
    server.kill()
    server.start()
    status, _, headers = call(server, "PUT", session, b"", content_range=f"bytes */{len(data)}")
    assert status == 308
    have = int(headers["range"].partition("-")[2]) + 1
    assert 2 << 20 < have <= 3 << 20
    rest = f"bytes {have}-{len(data) - 1}/{len(data)}"
    status, body, _ = call(server, "PUT", session, data[have:], content_range=rest)
    assert status == 200, body
    assert json.loads(body)["md5Hash"] == base64.b64encode(hashlib.md5(data).digest()).decode()
    assert get(server, "long")[1] == data


def test_a_killed_server_leaves_no_half_object_and_its_successor_tidies_up(own_server: RunningServer) -> None:
    server = own_server
    server.call("POST", "/storage/v1/b?project=fault-objects", {"name": BUCKET})
    acknowledged: dict[str, bytes] = {}
    stop = threading.Event()

    def write(worker: int) -> None:
        for number in range(10_000):
            name, data = f"{worker}-{number % 20}", os.urandom(200_000)
            try:
                if stop.is_set() or call(server, "POST", media(name), data)[0] != 200:
                    return
            except (OSError, http.client.HTTPException):
                acknowledged.pop(name, None)  # old or new: both are right
                return
            acknowledged[name] = data

    with ThreadPoolExecutor(4) as pool:
        for worker in range(4):
            pool.submit(write, worker)
        eventually(lambda: len(acknowledged) > 30)
        server.kill()
        stop.set()
    server.start()
    assert staged(server) == []
    for name, data in acknowledged.items():
        assert get(server, name)[1] == data
    for item in server.call("GET", f"/storage/v1/b/{BUCKET}/o")["items"]:
        found = get(server, item["name"])[1]
        assert base64.b64encode(hashlib.md5(found).digest()).decode() == item["md5Hash"]


@pytest.mark.fault("F42")
def test_one_of_a_hundred_creates_wins(shared: RunningServer) -> None:
    barrier = threading.Barrier(20)

    def create(number: int) -> int:
        if number < 20:
            barrier.wait()
        return call(shared, "POST", media("once", "&ifGenerationMatch=0"), str(number).encode())[0]

    with ThreadPoolExecutor(20) as pool:
        statuses = sorted(pool.map(create, range(100)))
    assert statuses == [200] + [412] * 99


@pytest.mark.fault("F42")
def test_readers_among_writers_get_whole_objects_of_their_generation(shared: RunningServer) -> None:
    written: dict[str, str] = {}
    generations: set[str] = set()  # that were read
    deadline = time.monotonic() + 90

    def going() -> bool:
        return len(generations) <= 30 and time.monotonic() < deadline

    def write(worker: int) -> None:
        while going():
            data = os.urandom(300_000 + worker)
            status, body, _ = call(shared, "POST", media("contested"), data)
            assert status == 200
            written[json.loads(body)["generation"]] = base64.b64encode(hashlib.md5(data).digest()).decode()

    def read(_: int) -> list[tuple[str, str]]:
        seen = []
        while going():
            status, body, headers = get(shared, "contested")
            assert status == 200
            generations.add(headers["x-goog-generation"])
            seen.append((headers["x-goog-generation"], base64.b64encode(hashlib.md5(body).digest()).decode()))
        return seen

    call(shared, "POST", media("contested"), b"first")
    with ThreadPoolExecutor(8) as pool:
        writers = [pool.submit(write, worker) for worker in range(4)]
        readers = [pool.submit(read, worker) for worker in range(4)]
        for writer in writers:
            writer.result()
        seen = [pair for reader in readers for pair in reader.result()]
    first = base64.b64encode(hashlib.md5(b"first").digest()).decode()
    assert len(generations) > 30
    assert all(written.get(generation, first) == digest for generation, digest in seen)


@pytest.mark.fault("F46")
def test_rotten_bytes_end_in_an_error_whatever_the_size(shared: RunningServer) -> None:
    for name, size in (("rot-small", 1000), ("rot-large", 3 << 20)):
        data = bytearray(os.urandom(size))
        call(shared, "POST", media(name), bytes(data))
        path = shared.home / "buckets" / BUCKET / name
        times = path.stat()
        data[-1] ^= 1
        path.write_bytes(data)
        os.utime(path, ns=(times.st_mtime_ns, times.st_mtime_ns))
    assert get(shared, "rot-small")[0] == 500
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        get(shared, "rot-large")
    for name in ("rot-small", "rot-large"):
        assert f"object.damaged bucket={BUCKET} name='{name}'" in shared.log.read_text()


def peak_of(server: RunningServer, size: int, path: str) -> int:
    """How much the server's memory grew at most while it took an object of that size and gave it back."""
    process = psutil.Process(server.pid)
    base = process.memory_info().rss
    peak, done = base, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.02):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    piece = os.urandom(1 << 20)

    def body() -> Iterator[bytes]:
        for _ in range(size >> 20):
            yield piece

    try:
        assert call(server, "POST", path, body(), content_length=str(size))[0] == 200
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=120)
        headers = {"authorization": f"Bearer {server.token}"}
        connection.request("GET", f"/storage/v1/b/{BUCKET}/o/large?alt=media", headers=headers)
        answer = connection.getresponse()
        received = 0
        while data := answer.read(1 << 20):
            received += len(data)
        connection.close()
        assert received == size
    finally:
        done.set()
        watcher.join()
    return peak - base


def test_a_large_object_costs_little_memory(own_server: RunningServer) -> None:
    own_server.call("POST", "/storage/v1/b?project=fault-objects", {"name": BUCKET})
    assert peak_of(own_server, 128 << 20, media("large")) < SLACK_BYTES


@pytest.mark.soak
def test_two_gigabytes_cost_little_memory(own_server: RunningServer) -> None:
    own_server.call("POST", "/storage/v1/b?project=fault-objects", {"name": BUCKET})
    assert peak_of(own_server, 2 << 30, media("large")) < SLACK_BYTES


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    with small_disk(tmp_path, "4m"):
        yield tmp_path


@pytest.mark.fault("F33")
def test_a_full_disk_stores_nothing_and_heals(disk: Path) -> None:
    tree = FileBackend(disk / "buckets", disk / "uploads")
    tree.make_bucket("bucket")

    def put(name: str, data: bytes) -> None:
        with tree.stage() as staging:
            staging.write(data)
            tree.commit(staging, ObjectDraft(bucket="bucket", name=name))

    put("kept", b"old")
    with pytest.raises(DiskFullError, match="nothing was stored"):
        put("kept", bytes(8 << 20))
    assert (disk / "buckets" / "bucket" / "kept").read_bytes() == b"old"
    assert list((disk / "uploads").iterdir()) == []
    put("kept", bytes(1 << 20))


# One kill in every run. More of them, each at another moment, are more of the same.
@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_a_server_killed_while_it_composes_copies_and_deletes_leaves_whole_objects(
    own_server: RunningServer, kills: int
) -> None:
    server = own_server
    server.call("POST", "/storage/v1/b?project=fault-objects", {"name": BUCKET})
    sources = {f"source-{number}": os.urandom(700_000 + number) for number in range(3)}
    for name, data in sources.items():
        assert call(server, "POST", media(name), data)[0] == 200
    objects = f"/storage/v1/b/{BUCKET}/o"
    composed = json.dumps({"sourceObjects": [{"name": name} for name in sources]}).encode()
    whole = b"".join(sources.values())

    def loop(worker: int, done: list[int], going: threading.Event) -> None:
        steps = (
            ("POST", f"{objects}/whole-{worker}/compose", composed),
            ("POST", f"{objects}/source-0/rewriteTo/b/{BUCKET}/o/copy-{worker}", b"{}"),
            ("POST", f"{objects}/source-1/copyTo/b/{BUCKET}/o/copy-{worker}", b"{}"),
            ("POST", f"{objects}/copy-{worker}/moveTo/o/deep%2F{worker}%2Fmoved", b""),
            ("DELETE", f"{objects}/deep%2F{worker}%2Fmoved", None),
            ("DELETE", f"{objects}/whole-{worker}", None),
        )
        while going.is_set():
            for method, path, body in steps:
                try:
                    status = call(server, method, path, body)[0]
                except (OSError, http.client.HTTPException):
                    return  # the server is gone
                # what the kill before cut short may be there or not
                assert status in (200, 204, 404), (method, path, status)
                done.append(status)

    for kill in range(kills):
        done: list[int] = []
        going = threading.Event()
        going.set()
        with ThreadPoolExecutor(4) as pool:
            workers = [pool.submit(loop, worker, done, going) for worker in range(4)]
            eventually(partial(len, done), (25 + 7 * kill).__lt__)
            server.kill()
            going.clear()
            for worker in workers:
                worker.result()
        server.start()
        assert staged(server) == []
        check_whole(server, {**sources, "whole": whole})


def check_whole(server: RunningServer, known: dict[str, bytes]) -> None:
    """Every object that is seen has the bytes that its checksums say, and they are bytes that were written."""
    items = {item["name"]: item for item in server.call("GET", f"/storage/v1/b/{BUCKET}/o")["items"]}
    assert {name for name in known if name.startswith("source")} <= set(items)
    for name, item in items.items():
        status, data, _ = get(server, name.replace("/", "%2F"))
        assert status == 200
        assert item["crc32c"] == base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()
        assert data == known[name] if name in known else data in known.values()
    folder = server.home / "buckets" / BUCKET
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == set(items)
