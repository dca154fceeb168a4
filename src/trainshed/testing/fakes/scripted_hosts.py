"""Hosts that follow a file in the model's folder: for tests of what starts, watches and stops hosts."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

from trainshed.engines.shipping import ship

#: Replaces the program that serves models. It responds to every frame with the frame's own body.
_MAIN = """
import ctypes, json, os, signal, socket, struct, subprocess, sys, threading, time

def main(words):
    with open(words[1]) as file:
        spec = json.load(file)
    folder = spec["model_dir"]
    with open(os.path.join(folder, "behaviour")) as file:
        behaviour = file.read().split()
    out = os.dup(1)
    os.dup2(2, 1)

    def say(**line):
        os.write(out, json.dumps(line).encode() + b"\\n")

    if "print" in behaviour:
        print("what the model prints", flush=True)
    if "spawn" in behaviour:
        child = subprocess.Popen([sys.executable, "-c", "import os, time; os.setsid(); time.sleep(600)"])
        with open(os.path.join(folder, "child"), "w") as file:
            file.write(str(child.pid))
    if words[0] == "reference":
        if "no-reference" in behaviour:
            sys.exit("TensorFlow can not load it")
        if "reference-hangs" in behaviour:
            time.sleep(600)
        if "reference-dies" in behaviour:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
        open(words[2], "w").close()
        return 0
    if "environment" in behaviour:
        with open(os.path.join(folder, "environment"), "w") as file:
            json.dump(dict(os.environ), file)
    for line in behaviour:
        if line == "fail" or line == "fail-" + spec["loader"]:
            say(event="failed", message="Failed to load model: it is broken (Error code: 0)")
            return 1
    if "hang" in behaviour:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    if "slow" in behaviour:
        time.sleep(1)
    if "segfault" in behaviour:
        ctypes.string_at(0)
    invariance = dict(difference=0.0, rows=65, message="Requests are batched.")
    ready = dict(loader=spec["loader"], detail="scripted", batching=True, invariance=invariance, precision=None)
    ready.update(sample=None, signatures={}, load_s=0.0)
    for word in behaviour:
        if word == "odd-endless":
            while True:
                os.write(out, b"x" * 65536)
        if word.startswith("odd-"):
            ready[word[4:]] = "x" * 500
    if "nonsense" in behaviour:
        os.write(out, b"ready when you are\\n")
        time.sleep(600)
    if spec.get("address"):
        listener = socket.create_server(tuple(spec["address"]))
    elif not spec["socket"]:
        listener = socket.socket(fileno=os.dup(0))
    else:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(spec["socket"])
        listener.listen()
        threading.Thread(target=leave, daemon=True).start()
    say(event="ready", **ready)
    os.close(out)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if "kill-reaper" in behaviour:
        os.kill(os.getppid(), signal.SIGKILL)
    if "die" in behaviour:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection, behaviour, spec), daemon=True).start()

def leave():
    sys.stdin.buffer.read()
    os._exit(0)

def serve(connection, behaviour, spec):
    with connection, connection.makefile("rb") as file:
        while head := file.read(13):
            length, number, kind = struct.unpack("<IQB", head)
            body = file.read(length)
            if kind == 7:
                if body.decode() != spec["secret"]:
                    return
                continue
            if kind in (5, 8):
                within = "differs" not in behaviour
                said = {"difference": 0.0 if within else 9.0, "within": within, "message": "It was compared."}
                body = json.dumps(said).encode()
            elif kind == 6:
                odd = next((word[8:] for word in behaviour if word.startswith("figures-")), "")
                said = {"waiting": 3, "requests": 7, "runningSeconds": 0.5, "batches": "many", "secret": 1}
                if odd == "silent":
                    continue
                body = {"": json.dumps(said), "long": "1" * (2 << 20), "no-json": "{", "list": "[]"}[odd].encode()
            elif b"poison" in body:
                ctypes.string_at(0)
            connection.sendall(struct.pack("<IQH", len(body), number, 200) + body)
"""


_SHIPPING = threading.Lock()


def ship_scripted(to: Path) -> Path:
    """Return the shipped code with scripted hosts.

    Their model folders have a file `behaviour`: words such as print, fail, hang, slow.
    """
    real = ship(to / "real")
    folder = to / f"scripted-{os.getpid()}"
    with _SHIPPING:  # hosts of several versions start at once
        if not folder.exists():
            shutil.copytree(real, folder)
            (folder / "trainshed_serving" / "main.py").write_text(_MAIN)
    return folder
