"""Empty trials of Ray Tune, two at a time. Prints the seconds as JSON. Runs in an environment that has Ray."""

from __future__ import annotations

import json
import sys
import tempfile
import time

import ray
from ray import tune


def trial(config: dict[str, float]) -> dict[str, float]:
    return {"score": -((config["x"] - 0.3) ** 2)}


def main() -> None:
    count = int(sys.argv[1])
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            tune.with_resources(trial, {"cpu": 1}),
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(metric="score", mode="max", num_samples=count, max_concurrent_trials=2),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        began = time.perf_counter()
        results = tuner.fit()
        seconds = time.perf_counter() - began
    assert len(results) == count
    assert not results.errors
    ray.shutdown()
    sys.stdout.write(f"\n{json.dumps({'seconds': seconds})}\n")


if __name__ == "__main__":
    main()
