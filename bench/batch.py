"""Batch prediction: a job on many rows, against the loader in a loop, alone and with reading and writing.

python bench/batch.py                # about two minutes
python bench/batch.py --rows 2000    # quicker, and noisier
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from datetime import datetime
from pathlib import Path

from report import Row, publish
from serving import CACHE, PEERS, create_version, interpreter, rows_of
from trainshed.testing.processes.servers import MeasuredServer, RunningServer
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "bench-batch"
BATCH = 64

#: What one would write by hand with our loader: on rows in memory, and from a file of lines to a file of lines.
LOOP = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import numpy as np, orjson
from trainshed_serving.loaders import load
from trainshed_serving.spec import ServingSpec

model = load(ServingSpec(model_dir=Path(sys.argv[2]), loader="openvino", threads=int(sys.argv[5])))
lines = Path(sys.argv[3]).read_bytes().splitlines()
size = int(sys.argv[4])

def parsed(some):
    return np.array([orjson.loads(line) for line in some], np.float32)

batches = [lines[at : at + size] for at in range(0, len(lines), size)]
arrays = [parsed(batch) for batch in batches]
model.run("serving_default", {"inputs": arrays[0]})
began = time.perf_counter()
for array in arrays:
    model.run("serving_default", {"inputs": array})
alone = time.perf_counter() - began
began = time.perf_counter()
with open("results", "wb") as out:
    for batch in batches:
        found = model.run("serving_default", {"inputs": parsed(batch)})
        names, columns = list(found), [array.tolist() for array in found.values()]
        for row in zip(*columns):
            out.write(orjson.dumps(dict(zip(names, row))) + b"\\n")
print(orjson.dumps({"alone": alone, "written": time.perf_counter() - began}).decode())
"""


def by_job(server: RunningServer, bucket: Submitter, name: str) -> float:
    """The seconds between the model being loaded and the last row being written, as the job's log has them."""
    given = {
        "modelName": f"projects/{PROJECT}/models/mnist",
        "dataFormat": "JSON",
        "inputPaths": [f"gs://{bucket.bucket}/rows.json"],
        "outputPath": f"gs://{bucket.bucket}/{name}",
        "batchSize": str(BATCH),
    }
    server.call("POST", f"/v1/projects/{PROJECT}/jobs", {"jobId": name, "predictionInput": given})
    bucket.wait(name, {"SUCCEEDED"}, timeout_s=900)
    entries = server.call("GET", f"/trainshed/v1/projects/{PROJECT}/jobs/{name}/logs")["entries"]
    times = {entry["message"].split(" ")[0]: datetime.fromisoformat(entry["time"]) for entry in entries}
    return (times["Predicted"] - times["The"]).total_seconds()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        home, model, rows = scratch / "home", scratch / "model", scratch / "rows.json"
        home.mkdir()
        (home / "runtimes").symlink_to(CACHE / "runtimes")
        quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
        server = MeasuredServer(home).start()
        try:
            server.call("POST", f"/v1/projects/{PROJECT}/models", {"name": "mnist"})
            bucket = Submitter(server, PROJECT, scratch / "trainers")
            python = interpreter()
            subprocess.run([python, PEERS / "model.py", model], check=True, env=quiet)
            rows.write_text("\n".join(json.dumps(row) for row in rows_of(args.rows)))
            for file in (each for each in model.rglob("*") if each.is_file()):
                bucket.upload(file, f"mnist/{file.relative_to(model)}")
            bucket.upload(rows, "rows.json")
            create_version(server, bucket, "v1")
            [shipped] = (home / "node").iterdir()
            jobs, loops = [], []
            for number in range(args.rounds):
                jobs.append(by_job(server, bucket, f"batch_{number}"))
                command = [str(python), "-c", LOOP, *map(str, (shipped, model, rows, BATCH, os.cpu_count()))]
                done = subprocess.run(command, check=True, cwd=scratch, env=quiet, stdout=subprocess.PIPE)
                loops.append(json.loads(done.stdout.splitlines()[-1]))
                time.sleep(1)
        finally:
            server.stop()
    publish(
        "batch", table(args.rows, min(jobs), min(each["alone"] for each in loops), min(e["written"] for e in loops))
    )


def table(rows: int, job: float, alone: float, written: float) -> list[Row]:
    value = f"{rows / job:,.0f} rows/s"
    what = f"a batch prediction of {rows:,} rows of 784 floats"
    return [
        Row(
            what=what,
            value=value,
            against=f"the loader in a loop, rows in memory: {rows / alone:,.0f} rows/s",
            ratio=f"{alone / job:.2f}",
            aim="0.90",
        ),
        Row(
            what="the same",
            value=value,
            against=f"a script that reads, parses, calls the loader and writes: {rows / written:,.0f} rows/s",
            ratio=f"{written / job:.2f}",
            aim="0.90",
        ),
    ]


if __name__ == "__main__":
    main()
