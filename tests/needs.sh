#!/usr/bin/env bash
# What the tests need from the operating system: PostgreSQL's server programs.
set -eu
if ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    echo "The tests start a PostgreSQL server of their own, and its programs are not installed." >&2
    echo "Install them once with: sudo apt-get install postgresql" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends postgresql >/dev/null
