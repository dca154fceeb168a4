#!/usr/bin/env bash
# The main job end to end: a server, a bucket, MNIST, a real distributed TensorFlow job with a parameter server, a master
# and two workers, its logs, its accuracy on the test images; then its exported model, deployed and asked about ten digits.
# The server goes on running, for its console; a second run uses the same one.
# State goes to .demo/ beside this project, so that a second run finds the runtime built.
set -eu
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
export TRAINSHED_HOME="$PWD/.demo"
export TRAINSHED_PROJECT="demo-project"

say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }

JOB="mnist_$(date +%Y%m%d_%H%M%S)"
BUCKET="gs://${TRAINSHED_PROJECT}-ml"

say "Start a server of our own, in the background"
trainshed status >/dev/null 2>&1 && WAS_RUNNING=yes || WAS_RUNNING=no
ended() {  # a server that was started for a demo that failed is of no use
    [ "$1" = 0 ] || [ "$WAS_RUNNING" = yes ] || { say "Stop the server"; run trainshed down; }
}
trap 'ended $?' EXIT
trap 'exit 130' INT TERM
run trainshed up --port 0 --tls-port 0

say "Make a bucket and copy MNIST in: 60,000 images to learn from, 10,000 to measure with"
if ! trainshed buckets ls "$BUCKET" >/dev/null 2>&1; then
    run trainshed buckets mb "$BUCKET"
fi
run python samples/mnist_async/scripts/create_records.py --output-dir .demo/records
run trainshed buckets cp .demo/records/train.tfrecords .demo/records/test.tfrecords "$BUCKET/data/"
run trainshed buckets ls -l "$BUCKET/data"

say "Train on four replicas; the first job on a machine builds its runtime (TensorFlow 2.21)"
run trainshed jobs submit training "$JOB" \
    --package-path samples/mnist_async/trainer \
    --module-name trainer.task \
    --staging-bucket "$BUCKET" \
    --job-dir "$BUCKET/$JOB" \
    --runtime-version 2.21 \
    --region us-central1 \
    --config samples/mnist_async/config/config_small.yaml \
    --stream-logs \
    -- \
    --data_dir "$BUCKET/data" \
    --output_dir "$BUCKET/$JOB" \
    --train_steps 800

say "How it ended, and what it made"
run trainshed jobs list --limit 3
run trainshed jobs logs "$JOB" --replica master-replica-0 --grep "Final metrics|Saving dict"
ORIGIN="$(trainshed buckets ls "$BUCKET/$JOB/export/Servo" | tail -1)"
run trainshed buckets ls -r "$ORIGIN"

say "Deploy the exported model"
VERSION="v_${JOB#mnist_}"
if ! trainshed models describe MNIST >/dev/null 2>&1; then
    run trainshed models create --regions us-central1 MNIST
fi
run trainshed versions create "$VERSION" --model MNIST --origin "$ORIGIN" --runtime-version 2.21
run trainshed versions set-default "$VERSION" --model MNIST --format "value(name,state)"
for old in $(trainshed versions list --model MNIST --format "value(name)"); do  # of earlier demos
    [ "${old##*/}" = "$VERSION" ] || run trainshed versions delete "${old##*/}" --model MNIST --quiet
done

say "Ask it about the first ten test images: 7 2 1 0 4 1 4 9 5 9"
run python samples/mnist_async/scripts/make_request.py --output .demo/request.json
run trainshed predict --model MNIST --json-instances .demo/request.json

say "Look at it in the console: the job and its charts, the model, and a pad to draw digits on"
URL="$(trainshed console --no-browser 2>/dev/null)"
cat <<END
Open this URL:     $URL
                   (it signs you in once, within a minute; for another one:
                   TRAINSHED_HOME="$TRAINSHED_HOME" TRAINSHED_PROJECT=$TRAINSHED_PROJECT "$PWD/.venv/bin/trainshed" console)
Stop the server:   TRAINSHED_HOME="$TRAINSHED_HOME" "$PWD/.venv/bin/trainshed" down
END
