#!/usr/bin/env bash
# Makes a base image without a registry: Python from the Debian packages of this machine and, if a folder is given,
# the Python packages in it.
#
#   bash base.sh IMAGE [SITE_PACKAGES]
#
# IMAGE is made once; `podman rmi IMAGE` lets the next run make it anew.
set -euo pipefail
image=$1
site=${2:-}
tool=${CONTAINER_TOOL:-podman}

if "$tool" image inspect "$image" >/dev/null 2>&1; then
    echo "The image $image is ready. It was made before."
    exit 0
fi

version=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if [ -n "$site" ] && [ "$(basename "$(dirname "$site")")" != "python$version" ]; then
    echo "The packages in $site are not for this machine's /usr/bin/python3, which is Python $version." >&2
    exit 1
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/root/tmp" "$scratch/root/root" "$scratch/root/etc" "$scratch/root/usr/bin"
chmod 1777 "$scratch/root/tmp"
echo "root:x:0:0:root:/root:/bin/sh" >"$scratch/root/etc/passwd"
ln -s python3 "$scratch/root/usr/bin/python"
for name in bin sbin lib lib64; do
    ln -s "usr/$name" "$scratch/root/$name"
done

# The packages that Python and most wheels need, with those of their dependencies that are installed.
apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
    --no-enhances python3 libstdc++6 dash coreutils | grep '^[a-z0-9]' | sort -u >"$scratch/packages"
xargs dpkg-query --listfiles <"$scratch/packages" 2>/dev/null |
    sed -E 's,^/(bin|sbin|lib|lib64)/,/usr/\1/,' |
    grep -E '^/(usr|etc|var)/' | grep -Ev '^/usr/share/(doc|man|locale|info|lintian)/' |
    sort -u | while read -r path; do
    if [ -h "$path" ] || [ -f "$path" ]; then
        echo "${path#/}"
    fi
done >"$scratch/files"

parts=(-C "$scratch/root" . -C / --no-recursion --files-from "$scratch/files")
if [ -n "$site" ]; then
    parts+=(--transform "s,^site-packages,usr/local/lib/python$version/dist-packages,S")
    parts+=(--recursion --exclude __pycache__ -C "$(dirname "$site")" site-packages)
fi
tar -c "${parts[@]}" | "$tool" import - "$image" >/dev/null
echo "The image $image is ready."
