"""jobs submit prediction: predict the rows of files with a model, as a job."""

from __future__ import annotations

from typing import Any

import click

from trainshed.cli.jobs.submit_training import ObjectPath, finish
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import KeyValues, Names, WordChoice, format_option, project_option, session
from trainshed.client.submission import create_job


@click.command(cls=Command)
@click.argument("job")
@project_option
@click.option("--model", metavar="MODEL", help="The model; its default version is used unless --version is given.")
@click.option("--version", metavar="VERSION", help="The version of --model.")
@click.option(
    "--model-dir", type=ObjectPath(), metavar="gs://BUCKET/PATH", help="A folder with a model, instead of --model."
)
@click.option(
    "--data-format",
    type=WordChoice("json", "text", "tf-record", "tf-record-gzip"),
    required=True,
    metavar="FORMAT",
    help="What the rows are: json or text (a value a line), tf-record or tf-record-gzip.",
)
@click.option(
    "--input-paths",
    type=Names(),
    required=True,
    metavar="gs://PATH,...",
    help="The rows; * is a part of a name.",
)
@click.option("--output-path", type=ObjectPath(), required=True, metavar="gs://BUCKET/PATH", help="Where results go.")
@click.option("--batch-size", type=click.IntRange(1), metavar="N", help="Rows in one run of the model. Default: 64.")
@click.option("--max-worker-count", type=click.IntRange(1), metavar="N", help="Kept; one process predicts.")
@click.option("--signature-name", metavar="NAME", help="The signature of the model. Default: serving_default.")
@click.option("--runtime-version", metavar="VERSION", help="The runtime for --model-dir. A version has its own.")
@click.option("--region", metavar="REGION", help="Kept with the job. Default: us-central1.")
@click.option("--labels", type=KeyValues(), help="Labels for the job.")
@click.option("--stream-logs", is_flag=True, help="Show the log until the job ends; exit status 1 unless it succeeds.")
@format_option
@click.pass_context
def prediction(ctx: click.Context, /, job: str, project: str | None, format: str | None, **flags: Any) -> None:
    """Predict the rows of files with a model. Results are JSON lines, bad rows are listed with their line and reason.

    \b
    Example:
      trainshed jobs submit prediction digits_1 --model MNIST --data-format json \\
          --input-paths 'gs://my-bucket/rows/*' --output-path gs://my-bucket/digits_1 --region us-central1
    """
    if bool(flags["model"]) == bool(flags["model_dir"]):
        raise click.UsageError("Exactly one of (--model | --model-dir) must be specified.")
    if flags["version"] and flags["model_dir"]:
        raise click.UsageError("--version can't be given with --model-dir.")
    context = session(project)
    created = create_job(context, _body(job, context.project, flags))
    finish(ctx, context, created, stream=flags["stream_logs"], format=format)


def _body(job: str, project: str, flags: dict[str, Any]) -> dict[str, Any]:
    prediction_input: dict[str, Any] = {
        "dataFormat": flags["data_format"].upper().replace("-", "_"),
        "inputPaths": list(flags["input_paths"]),
        "outputPath": flags["output_path"],
        "region": flags["region"] or "us-central1",
        "batchSize": flags["batch_size"] and str(flags["batch_size"]),
        "maxWorkerCount": flags["max_worker_count"] and str(flags["max_worker_count"]),
        "runtimeVersion": flags["runtime_version"],
        "signatureName": flags["signature_name"],
        "uri": flags["model_dir"],
    }
    if flags["model"]:
        model = f"projects/{project}/models/{flags['model']}"
        prediction_input |= (
            {"versionName": f"{model}/versions/{flags['version']}"} if flags["version"] else {"modelName": model}
        )
    body: dict[str, Any] = {
        "jobId": job,
        "predictionInput": {k: v for k, v in prediction_input.items() if v is not None},
    }
    return body | ({"labels": flags["labels"]} if flags["labels"] else {})
