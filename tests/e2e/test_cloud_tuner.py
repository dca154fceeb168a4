"""CloudTuner of tensorflow-cloud, unmodified, in `trainshed shell`: four workers share one study.

It imports `kerastuner`, which keras-tuner has no more since 1.0.3, and has descriptors of an older protobuf.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from trainshed.config import environment
from trainshed.runtimes.uv import find_uv, uv_command
from trainshed.testing import cache
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.processes.shells import TRAINSHED

RUNTIME = "2.15"
PROJECT = "cloud-tuner"
STUDY = "CloudTuner_study_20201118_104051"
WORKERS, TRIALS, EPOCHS = 4, 8, 3
#: as Google's notebook has them, without what containerizes and uploads trainers. TensorFlow is the runtime's.
WITHOUT_DEPENDENCIES = (
    "tensorflow-cloud==0.1.16",
    "keras-tuner==1.0.2",
    "terminaltables",
    "colorama",
    "tabulate",
    "tqdm",
)
WITH_DEPENDENCIES = (
    *("docker", "google-api-python-client", "google-cloud-storage", "nbconvert", "PySocks"),
    *("protobuf<5", "googleapis-common-protos<1.66"),  # what the runtime's TensorFlow takes
)
WORKER = """
import sys
import kerastuner
import numpy
import tensorflow
from tensorflow_cloud import CloudTuner

worker, study, project, trials, epochs = sys.argv[1:]
chance = numpy.random.default_rng(0)
x = chance.normal(size=(256, 8)).astype("float32")
y = (x[:, 0] * x[:, 1] > 0).astype("int32")
hyperparameters = kerastuner.HyperParameters()
hyperparameters.Float("learning_rate", min_value=1e-3, max_value=1e-1, sampling="log")
hyperparameters.Int("units", 4, 32)
hyperparameters.Choice("activation", ["relu", "tanh"])


def build(values):
    layers = tensorflow.keras.layers
    model = tensorflow.keras.Sequential(
        [
            layers.Dense(values.get("units"), activation=values.get("activation")),
            layers.Dense(2, activation="softmax"),
        ]
    )
    optimizer = tensorflow.keras.optimizers.legacy.Adam(values.get("learning_rate"))
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["acc"])
    return model


tuner = CloudTuner(
    build,
    project_id=project,
    region="us-central1",
    objective="acc",
    hyperparameters=hyperparameters,
    study_id=study,
    max_trials=int(trials),
    directory="of-" + worker,
)
tuner.tuner_id = "worker-" + worker
tuner.search(x=x, y=y, epochs=int(epochs), verbose=0)
[best] = tuner.oracle.get_best_trials(1)
print("best", best.trial_id, best.score)
"""


@pytest.fixture(scope="module")
def tuner_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with tensorflow-cloud and the TensorFlow of a runtime."""
    runtime, uv = cache.runtime_python(RUNTIME), find_uv()
    folder = tmp_path_factory.mktemp("cloud-tuner") / "env"
    subprocess.run(uv_command(uv, "venv", "--python", runtime, folder), check=True)
    python = folder / "bin" / "python"
    [packages] = folder.glob("lib/python*/site-packages")
    [of_runtime] = runtime.parent.parent.glob("lib/python*/site-packages")
    (packages / "runtime.pth").write_text(str(of_runtime))
    install = ("pip", "install", "--python", python)
    subprocess.run(uv_command(uv, *install, "--no-deps", *WITHOUT_DEPENDENCIES), check=True)
    subprocess.run(uv_command(uv, *install, *WITH_DEPENDENCIES), check=True)
    return python


@pytest.mark.soak
def test_four_workers_of_cloud_tuner_share_a_study(server: RunningServer, tuner_python: Path, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    variables = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python", "TRAINSHED_PROJECT": PROJECT}
    words = f"{STUDY} {PROJECT} {TRIALS} {EPOCHS}"
    workers = [
        subprocess.Popen(
            [TRAINSHED, "shell", "--project", PROJECT, "-c", f"{tuner_python} worker.py {number} {words}"],
            cwd=tmp_path,
            env={**environment(), **server.env(), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(WORKERS)
    ]
    outputs = [worker.communicate(timeout=500) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * WORKERS, outputs
    answer = server.call("GET", f"/v1/projects/{PROJECT}/locations/us-central1/studies/{STUDY}/trials")
    trials = {trial["name"].rpartition("/")[2]: trial for trial in answer["trials"]}
    # a worker asks how many there are before it asks for one, so the last ones may be too many
    assert TRIALS <= len(trials) < TRIALS + WORKERS
    assert {trial["state"] for trial in trials.values()} == {"COMPLETED"}
    assert {len(trial["measurements"]) for trial in trials.values()} == {EPOCHS}
    assert {trial["clientId"] for trial in trials.values()} == {f"worker-{number}" for number in range(WORKERS)}
    for stdout, _ in outputs:
        [line] = [line for line in stdout.splitlines() if line.startswith("best ")]
        _, number, score = line.split()
        assert trials[number]["finalMeasurement"]["metrics"] == [{"metric": "acc", "value": float(score)}]
