"""TFX's runner of Cloud AI Platform, as its Pusher calls it. It runs in an environment that has TFX.

python tfx_runner.py PROJECT MODEL_FOLDER: writes what became of each step to stdout, as JSON; empty is success.
"""

# mypy: ignore-errors

import json
import sys

from googleapiclient import discovery
from tfx.extensions.google_cloud_ai_platform import runner

LABELS = {"tfx_version": "1-8-1"}


def steps(project, folder):
    """Yield the name of each step and what it calls, in order."""
    serving = {
        "project_id": project,
        "model_name": "tfx_model",
        "runtime_version": "2.11",
        "python_version": "3.7",
    }
    service, version = runner.get_service_name_and_api_version(serving)
    api = discovery.build(service, version)
    named = "projects/%s/models/tfx_model" % project
    predict = api.projects().predict(name=named, body={"instances": [{"x": 2.0}]})
    yield (
        "create_model_for_aip_prediction_if_not_exist",
        lambda: runner.create_model_for_aip_prediction_if_not_exist(LABELS, dict(serving), api),
    )
    for name in ("v1", "v2"):
        yield (
            "deploy_model_for_aip_prediction_" + name,
            lambda name=name: runner.deploy_model_for_aip_prediction(
                serving_path=folder,
                model_version_name=name,
                ai_platform_serving_args=dict(serving),
                labels=LABELS,
                api=api,
                skip_model_endpoint_creation=name == "v2",
                set_default=name == "v1",
            ),
        )
    yield "predict", lambda: check(predict.execute() == {"predictions": [{"y": 4.0}]})
    for name in ("v2", "v1"):
        yield (
            "delete_version_" + name,
            lambda name=name: runner.delete_model_from_aip_if_exists(dict(serving), api, model_version_name=name),
        )
    yield (
        "delete_model",
        lambda: runner.delete_model_from_aip_if_exists(dict(serving), api, delete_model_endpoint=True),
    )


def check(holds):
    if not holds:
        raise ValueError("The answer is another one.")


def outcome(call):
    try:
        call()
    except Exception as exc:
        return "%s: %s" % (type(exc).__name__, exc)
    return ""


if __name__ == "__main__":
    results = {name: outcome(call) for name, call in steps(*sys.argv[1:])}
    sys.stdout.write("\n%s\n" % json.dumps(results))
