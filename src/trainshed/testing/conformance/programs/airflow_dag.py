"""A DAG with Airflow's operators of ML Engine, run by Airflow itself. It runs in an environment that has Airflow.

python airflow_dag.py PROJECT PACKAGE BUCKET: writes the state of each task to stdout, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any

from airflow import DAG
from airflow.providers.google.cloud.operators import mlengine
from airflow.utils.trigger_rule import TriggerRule

MODEL, VERSION = "airflow_model", "v1"
RUNTIME, PYTHON = "2.21", "3.11"


def training(project: str, package: str, bucket: str, name: str) -> Mapping[str, Any]:
    """Return the arguments of a training operator."""
    return {
        "task_id": name,
        "project_id": project,
        "job_id": f"airflow_{name}",
        "region": "us-central1",
        "scale_tier": "BASIC",
        "package_uris": [package],
        "training_python_module": "trainer.task",
        "training_args": ["--steps=1"],
        "runtime_version": RUNTIME,
        "python_version": PYTHON,
        "job_dir": f"{bucket}/{name}",
    }


def version_tasks(project: str, bucket: str) -> list[Any]:
    """Return what is done with a version of the model that was trained, in order."""
    named = {"project_id": project, "model_name": MODEL}
    version = {
        "name": VERSION,
        "deploymentUri": f"{bucket}/train/export",
        "runtimeVersion": RUNTIME,
        "pythonVersion": PYTHON,
        "framework": "TENSORFLOW",
    }
    return [
        mlengine.MLEngineCreateVersionOperator(task_id="create_version", version=version, **named),
        mlengine.MLEngineSetDefaultVersionOperator(task_id="set_default_version", version_name=VERSION, **named),
        mlengine.MLEngineListVersionsOperator(task_id="list_versions", **named),
        mlengine.MLEngineStartBatchPredictionJobOperator(
            task_id="batch_prediction",
            job_id="airflow_batch",
            region="us-central1",
            data_format="TEXT",
            input_paths=[f"{bucket}/train/instances.json"],
            output_path=f"{bucket}/predictions",
            version_name=VERSION,
            **named,
        ),
        mlengine.MLEngineDeleteVersionOperator(task_id="delete_version", version_name=VERSION, **named),
        mlengine.MLEngineDeleteModelOperator(task_id="delete_model", delete_contents=True, **named),
    ]


def build(project: str, package: str, bucket: str) -> DAG:
    """Return the DAG: tasks in one row, each run whatever became of those before."""
    operator = mlengine.MLEngineStartTrainingJobOperator
    with DAG("ml_engine", start_date=datetime(2024, 1, 1), schedule=None) as dag:
        tasks = [
            mlengine.MLEngineCreateModelOperator(task_id="create_model", project_id=project, model={"name": MODEL}),
            mlengine.MLEngineGetModelOperator(task_id="get_model", project_id=project, model_name=MODEL),
            operator(**training(project, package, bucket, "train")),
            operator(**training(project, package, bucket, "train_deferred"), deferrable=True),
            mlengine.MLEngineTrainingCancelJobOperator(
                task_id="cancel_ended_job", project_id=project, job_id="airflow_train"
            ),
            *version_tasks(project, bucket),
        ]
        for before, after in pairwise(tasks):
            after.trigger_rule = TriggerRule.ALL_DONE
            before >> after
    return dag


if __name__ == "__main__":
    run = build(*sys.argv[1:]).test()
    states = {each.task_id: str(each.state) for each in run.get_task_instances()}
    sys.stdout.write(f"\n{json.dumps(states)}\n")
