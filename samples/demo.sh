#!/usr/bin/env bash
# The main job end to end: a server, a bucket, data, a real TensorFlow training job, its logs, its output.
# State goes to .demo/ beside this project, so that a second run finds the runtime built.
set -eu
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
export TRAINSHED_HOME="$PWD/.demo"
export TRAINSHED_PROJECT="demo-project"

say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }

JOB="iris_$(date +%Y%m%d_%H%M%S)"
BUCKET="gs://${TRAINSHED_PROJECT}-ml"

say "Start a server of our own, in the background"
run trainshed up --port 0 --tls-port 0
trap 'say "Stop the server"; run trainshed down' EXIT

say "Make a bucket and copy the data in"
if ! trainshed buckets ls "$BUCKET" >/dev/null 2>&1; then
    run trainshed buckets mb "$BUCKET"
fi
run trainshed buckets cp -r samples/iris/data "$BUCKET"
run trainshed buckets ls -l "$BUCKET/data"

say "Submit a training job; the first one on a machine builds its runtime (TensorFlow 2.21)"
run trainshed jobs submit training "$JOB" \
    --package-path samples/iris/trainer \
    --module-name trainer.task \
    --staging-bucket "$BUCKET" \
    --job-dir "$BUCKET/$JOB" \
    --runtime-version 2.21 \
    --region us-central1 \
    --scale-tier BASIC \
    --stream-logs \
    -- \
    --train_file "$BUCKET/data/iris_training.csv" \
    --test_file "$BUCKET/data/iris_test.csv" \
    --outdir "$BUCKET/$JOB" \
    --train_steps 2000

say "How it ended, and what it made"
run trainshed jobs list --limit 3
run trainshed buckets ls -r "$BUCKET/$JOB/export"
MODEL="$(trainshed buckets ls "$BUCKET/$JOB/export/exporter" | tail -1)"
printf '\nThe trained model is in %s\nwhich is the folder %s\n' \
    "$MODEL" "$TRAINSHED_HOME/buckets/${MODEL#gs://}"
