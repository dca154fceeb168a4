# Train on this machine without a server: source ./scripts/train-local.sh
# `DISTRIBUTED="--distributed --parameter-server-count 1 --worker-count 2"` trains with several processes.

if [ -d data ]; then DATA=${PWD}/data; else DATA=$(cd ../data/taxi && pwd); fi
export MODEL_DIR=${MODEL_DIR:-${PWD}/output}

trainshed local train ${DISTRIBUTED} \
    --package-path ./trainer \
    --module-name trainer.task \
    --job-dir "${MODEL_DIR}" \
    --runtime-version "${RUNTIME_VERSION:-2.15}" \
    -- \
    --train-files "${DATA}/taxi_train.csv" \
    --eval-files "${DATA}/taxi_eval.csv" \
    --num-epochs "${NUM_EPOCHS:-10}" \
    --learning-rate 0.001 \
    --hidden-units "128,0,0" \
    --layer-sizes-scale-factor 0.5 \
    --num-layers 3
