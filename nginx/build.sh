#!/bin/bash
# Builds the module against the distribution's nginx-dev, in a folder of its own.
#   build.sh OUTPUT.so WORK_DIR CC "CFLAGS" "LDFLAGS" [ARCHIVE...]
# With archives the kernel is taken from them; without, it is compiled along.
set -eu

output=$(readlink -f "$(dirname "$1")")/$(basename "$1")
work=$2 cc=$3 cflags=$4 ldflags=$5
shift 5

source_dir=${NGINX_SRC:-/usr/share/nginx/src}
module_dir=$(cd "$(dirname "$0")" && pwd)

if [ ! -f "$source_dir/conf_flags" ]; then
    echo "nginx/build.sh: $source_dir/conf_flags is missing: install nginx-dev," \
         "or build with nginx's own ./configure --add-dynamic-module=$module_dir" >&2
    exit 1
fi

# configure writes where it stands, so it gets a copy of the sources
rm -rf "$work"
mkdir -p "$work"
cp -r "$source_dir/." "$work/"
cd "$work"

NGX_CONF_FLAGS=()
# shellcheck source=/dev/null
. ./conf_flags

archives=
for archive; do
    archives="$archives $archive"
done

if ! IDEM_ARCHIVES="$archives" ./configure "${NGX_CONF_FLAGS[@]}" --with-cc="$cc" \
        --with-cc-opt="$cflags" --with-ld-opt="$ldflags" \
        --add-dynamic-module="$module_dir" >configure.log 2>&1; then
    tail -n 20 configure.log >&2
    exit 1
fi

if ! make -j2 -k -f objs/Makefile modules >make.log 2>&1; then
    grep -E ': (fatal )?error: |: warning: |undefined reference' -A 3 make.log >&2 ||
        tail -n 20 make.log >&2
    exit 1
fi

cp objs/ngx_http_idempotency_module.so "$output"
