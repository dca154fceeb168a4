# Train on the server with a parameter server and four workers: source ./scripts/train-cloud-ps.sh
# Write the name of your bucket here, or set it before.

export BUCKET_NAME=${BUCKET_NAME:-${TRAINSHED_PROJECT:-trainshed}-ml}

CONFIG=./config_ps.yaml
source ./scripts/train-cloud.sh
unset CONFIG
