#!/usr/bin/env bash
# bootstrap.sh sync   Create .venv with exactly what requirements.lock names, and the project itself.
# bootstrap.sh lock   Resolve the dependencies anew into requirements.lock.
# bootstrap.sh docs   Build the documentation's site of the pages that infra/docs_site.py wrote.
# bootstrap.sh audit  Print what is known against the packages of the lock, as JSON.
# Needs nothing but bash and a Python; uv is taken from the PATH or installed privately.
set -euo pipefail
cd "$(dirname "$0")/.."

UV_VERSION=0.13.7
PIP_AUDIT_VERSION=2.10.1
MKDOCS_MATERIAL_VERSION=9.8.1
CACHE="${LAMINAR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/laminar-dagster}"

die() { echo "error: $*" >&2; exit 1; }

# Run it: a name on the PATH may be a shim for a version that is not installed.
recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local name
    for name in python3.13 python3.12 python3.11 python3; do
        if recent "$name"; then command -v "$name"; return; fi
    done
    return 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo -n "$@"; else return 1; fi
}

apt_install() {
    command -v apt-get >/dev/null || return 1
    local install=(as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y "$@")
    echo "Installing $* ..." >&2
    "${install[@]}" >&2 </dev/null || { as_root apt-get update >&2 </dev/null && "${install[@]}" >&2 </dev/null; }
}

# A fresh Debian has python3 without venv, or no Python at all.
install_python() { apt_install python3 python3-venv; }

# A part of the package is compiled. Without a compiler all works, and Kafka is read more slowly.
find_compiler() {
    local name
    for name in ${CC:-} cc gcc clang; do
        if command -v "$name" >/dev/null; then return; fi
    done
    apt_install gcc libc6-dev || echo "There is no C compiler: nothing will be compiled." >&2
}

private_uv() {
    local home="$CACHE/uv-$UV_VERSION" unfinished python
    if [ ! -x "$home/bin/uv" ]; then
        python=$(find_python) && "$python" -c 'import ensurepip' 2>/dev/null ||
            { install_python && python=$(find_python) && "$python" -c 'import ensurepip'; } ||
            die "install Python 3.11 or later with its venv module, or uv"
        echo "Installing uv $UV_VERSION into the cache ..." >&2
        mkdir -p "$CACHE"
        # Built aside and renamed, so that an interrupted install is not taken for a whole one.
        unfinished=$(mktemp -d "$CACHE/.uv.XXXXXX")
        "$python" -m venv "$unfinished" &&
            "$unfinished/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION" >&2 ||
            { rm -rf "$unfinished"; die "could not install uv $UV_VERSION"; }
        mv -T "$unfinished" "$home" 2>/dev/null || rm -rf "$unfinished"
    fi
    echo "$home/bin/uv"
}

if ! uv=$(command -v uv) || ! "$uv" --version >/dev/null 2>&1; then uv=$(private_uv); fi

sync() {
    # Without a suitable Python on the PATH, uv finds or fetches one.
    recent .venv/bin/python || "$uv" venv --quiet --clear --python "$(find_python || echo 3.12)" .venv
    # Compiled once here: a process that may not write bytecode would compile all it imports, each time.
    "$uv" pip sync --quiet --compile-bytecode --python .venv/bin/python --require-hashes requirements.lock
    find_compiler
    # Nothing outside the lock: the build backend is in it.
    "$uv" pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
}

lock() {
    "$uv" pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
        --all-extras --group dev --group build --output-file requirements.lock pyproject.toml
}

# infra/audit.py reads the report: pip-audit itself calls it a success when it could ask nobody.
audit() {
    local report messages
    messages=$(mktemp)
    report=$("$uv" tool run --quiet --from "pip-audit==$PIP_AUDIT_VERSION" pip-audit \
        --requirement requirements.lock --require-hashes --disable-pip --progress-spinner off --format json \
        2>"$messages") || true
    if [ -z "$report" ]; then cat "$messages" >&2; fi
    rm -f "$messages"
    printf '%s\n' "$report"
}

docs() {
    NO_MKDOCS_2_WARNING=1 "$uv" tool run --quiet --from mkdocs --with "mkdocs-material==$MKDOCS_MATERIAL_VERSION" \
        mkdocs build --strict --quiet
}

case "${1:-}" in
    sync) sync ;;
    lock) lock ;;
    audit) audit ;;
    docs) docs ;;
    *) die "usage: bootstrap.sh sync | lock | audit | docs" ;;
esac
