#!/usr/bin/env bash
# The unit tests of the light core (no torch) on other Pythons, each in a virtual environment of its own.
# usage: test_other_pythons.sh VERSION...    a version whose interpreter is not found is skipped, loudly
set -euo pipefail
cd "$(dirname "$0")/.."

find_python() {
    local candidate
    for candidate in "python$1" "$HOME"/.pyenv/versions/"$1"*/bin/python /opt/python/cp"${1/./}"*/bin/python; do
        # A pyenv shim is on the path for versions that are not switched on: only what runs counts.
        if "$candidate" -c "import sys, venv; sys.exit('$1' != '%d.%d' % sys.version_info[:2])" > /dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
}

for version in "$@"; do
    python=$(find_python "$version")
    if [ -z "$python" ]; then
        echo "SKIPPED: no Python $version on this machine, so the light core was not tested on it" >&2
        continue
    fi
    venv=.venv-$version
    if [ ! -e "$venv/.ready" ] || [ pyproject.toml -nt "$venv/.ready" ] || [ constraints.txt -nt "$venv/.ready" ]; then
        "$python" -m venv --clear "$venv"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
        touch "$venv/.ready"
    fi
    echo "Python $version"
    "$venv/bin/python" -m pytest -q -m "not engine and not gpu and not slow"
done
