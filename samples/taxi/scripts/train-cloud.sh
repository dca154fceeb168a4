# Train on the server with one replica: source ./scripts/train-cloud.sh
# BUCKET_NAME, RUNTIME_VERSION and CONFIG may be set before.

export BUCKET_NAME=${BUCKET_NAME:-${TRAINSHED_PROJECT:-trainshed}-ml}
export RUNTIME_VERSION=${RUNTIME_VERSION:-2.15}
export MODEL_NAME="tensorflow_taxi"
export MODEL_DIR=gs://${BUCKET_NAME}/taxi/model/${MODEL_NAME}
export JOB_NAME=train_${MODEL_NAME}_$(date +%Y%m%d_%H%M%S)

if [ -d data ]; then DATA=data; else DATA=../data/taxi; fi
trainshed buckets ls "gs://${BUCKET_NAME}" >/dev/null 2>&1 || trainshed buckets mb "gs://${BUCKET_NAME}"
trainshed buckets cp "${DATA}/taxi_train.csv" "${DATA}/taxi_eval.csv" "gs://${BUCKET_NAME}/taxi/data/"

trainshed jobs submit training "${JOB_NAME}" \
    --stream-logs \
    --job-dir "${MODEL_DIR}" \
    --package-path ./trainer \
    --module-name trainer.task \
    --region us-central1 \
    --runtime-version "${RUNTIME_VERSION}" \
    --config "${CONFIG:-./config.yaml}" \
    -- \
    --train-files "gs://${BUCKET_NAME}/taxi/data/taxi_train.csv" \
    --eval-files "gs://${BUCKET_NAME}/taxi/data/taxi_eval.csv" \
    --train-size 12025 \
    --num-epochs "${NUM_EPOCHS:-10}" \
    --batch-size 128 \
    --learning-rate 0.001 \
    --hidden-units "128,0,0" \
    --layer-sizes-scale-factor 0.5 \
    --num-layers 3
