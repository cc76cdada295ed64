#!/usr/bin/env bash
# Fetch the few packages that a rented GPU machine lacks, here where there is a network; `measure_gpu_host.sh --wheels`
# unpacks there those that are missing. Versions and checksums are those of requirements.lock.
set -euo pipefail

usage() {
    cat <<'END'
gpu_wheels.sh [--python 3.12] [--machine x86_64] [--to DIR] [--pytest]

  --python   the rented machine's Python (default 3.12)
  --machine  its processor, as `uname -m` says (default x86_64)
  --to       the folder to fill (default gpu-wheels)
  --pytest   pytest as well, for the tests of stage (a)

About 3 MB: pydantic, click, psutil, threadpoolctl and what they need. NumPy, SciPy, pandas and the frameworks belong to
the machine. The Python that fetches is $PYTHON, else .venv/bin/python of this checkout, else python3; it needs pip.

Example: scripts/gpu_wheels.sh --python 3.12 --to gpu-wheels
END
}

refuse() { echo "gpu_wheels.sh: $1" >&2; exit 2; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=3.12 machine=x86_64 to=gpu-wheels
packages="pydantic pydantic-core annotated-types typing-extensions typing-inspection click psutil threadpoolctl"
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --pytest) packages="$packages pytest pluggy iniconfig packaging pygments"; shift ;;
        --python | --machine | --to)
            [ $# -ge 2 ] || refuse "$1 needs a value"
            declare "${1#--}=$2"
            shift 2 ;;
        *) refuse "no option $1; --help lists them" ;;
    esac
done
[[ $python =~ ^3\.(11|12|13)$ ]] || refuse "--python must be 3.11, 3.12 or 3.13, got $python"
[[ $machine =~ ^(x86_64|aarch64)$ ]] || refuse "--machine must be x86_64 or aarch64, got $machine"
if [ -z "${PYTHON:-}" ]; then
    PYTHON=python3
    [ ! -x "$root/.venv/bin/python" ] || PYTHON=$root/.venv/bin/python
fi

wanted=$(mktemp)
trap 'rm -f "$wanted"' EXIT
# A package's lines in the lock: its own, then its checksums.
awk -v names=" $packages " '
    /^[a-z0-9]/ { split($1, part, "=="); chosen = index(names, " " part[1] " ") > 0; if (chosen) $0 = $1 " \\" }
    chosen' "$root/requirements.lock" >"$wanted"
mkdir -p "$to"
"$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
    --python-version "$python" --implementation cp --platform "manylinux2014_$machine" --platform "manylinux_2_17_$machine" \
    --platform "manylinux_2_28_$machine" --dest "$to" --requirement "$wanted"
[ "$("$PYTHON" -c 'import sys, pathlib; print(len(list(pathlib.Path(sys.argv[1]).glob("*.whl"))))' "$to")" -ge "$(wc -w <<<"$packages")" ] ||
    { echo "gpu_wheels.sh: must have fetched $packages" >&2; exit 1; }
du -sk "$to" | awk '{ printf "%.1f MB in %s\n", $1 / 1024, $2 }'
