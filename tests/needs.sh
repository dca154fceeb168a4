#!/usr/bin/env bash
# What the tests need from the operating system: PostgreSQL's server programs, Chromium's headless shell, FUSE, a C
# compiler, Podman with runc, and the Python of Debian, which the images of the tests are made of.
# bash tests/needs.sh [PROGRAM[=PACKAGE]...]: these programs too, from Debian's packages, of the same names if none is said.
set -eu
missing=()
for program in "$@"; do
    command -v "${program%%=*}" >/dev/null || missing+=("${program#*=}")
done
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing+=(postgresql)
command -v chromium-headless-shell >/dev/null || missing+=(chromium-headless-shell)
command -v fusermount3 >/dev/null || missing+=(fuse3)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v podman >/dev/null || missing+=(podman)
command -v runc >/dev/null || missing+=(runc)
command -v catatonit >/dev/null || command -v tini >/dev/null || missing+=(catatonit)
[ -x /usr/bin/python3 ] || missing+=(python3)
if [ "${#missing[@]}" = 0 ]; then
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    echo "This needs programs that are not installed: ${missing[*]}." >&2
    echo "Install them once with: sudo apt-get install ${missing[*]}" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
