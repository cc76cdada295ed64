#!/usr/bin/env bash
# Measure this machine for the book, with the Python packages that it has: no network, nothing is installed.
# The most telling chapters come first; one that does not fit into the time that is left is passed over for the next.
# Each that is finished is put in place and into the archive at once, so that a stop at any moment (Ctrl-C, a signal,
# the end of the minutes) leaves what is whole.
set -euo pipefail

usage() {
    cat <<'END'
measure_gpu_host.sh [--preset quick|workshop|full] [--minutes N] [--device gpu|cpu] [--host NAME]
                    [--results DIR] [--wheels DIR] [--chapters NN,NN]

  --preset   how long and how often (default quick)
  --minutes  stop after so many, 1 to 600 (default 10)
  --device   gpu: the GPU, and the CPU beside it (default); cpu: the CPU alone
  --host     the folder under the results folder, a name for readers (default gpu-host or cpu-host)
  --results  where to write (default: results/ of this checkout)
  --wheels   a folder of .whl files; packages that this machine's Python lacks are unpacked from it for this run
  --chapters their numbers, in this order (default: all, the most telling first)

Writes DIR/NAME/ and DIR/NAME.tar.gz, which belongs into results/ of the checkout where the book is built:
  tar -xzf NAME.tar.gz -C results && make book
The Python is $PYTHON, else .venv/bin/python of this checkout, else python3.

Example: scripts/measure_gpu_host.sh --minutes 6 --host h200
END
}

refuse() { echo "measure_gpu_host.sh: $1" >&2; exit 2; }
fail() { echo "measure_gpu_host.sh: $1" >&2; exit 1; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=quick minutes=10 device=gpu host="" results=$root/results wheels="" chapters=""
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --preset | --minutes | --device | --host | --results | --wheels | --chapters)
            [ $# -ge 2 ] || refuse "$1 needs a value"
            declare "${1#--}=$2"
            shift 2 ;;
        *) refuse "no option $1; --help lists them" ;;
    esac
done
case $preset in quick | workshop | full) ;; *) refuse "--preset must be quick, workshop or full, got $preset" ;; esac
case $device in gpu | cpu) ;; *) refuse "--device must be gpu or cpu, got $device" ;; esac
[[ $minutes =~ ^[0-9]{1,3}$ ]] && ((10#$minutes >= 1 && 10#$minutes <= 600)) ||
    refuse "--minutes must be a whole number from 1 to 600, got $minutes"
host=${host:-$device-host}
[[ $host =~ ^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$ ]] ||
    refuse "--host must be 1 to 64 letters, digits, '-' or '_', got $host"
[[ -z $chapters || $chapters =~ ^[0-9]{2}(,[0-9]{2})*$ ]] ||
    refuse "--chapters must be two digits each with commas between, got $chapters"
[ -z "$wheels" ] || [ -d "$wheels" ] || refuse "--wheels must be a folder, got $wheels"

deadline=$((SECONDS + 60 * 10#$minutes))
if [ -z "${PYTHON:-}" ]; then
    PYTHON=python3
    [ ! -x "$root/.venv/bin/python" ] || PYTHON=$root/.venv/bin/python
fi
export PYTHONPATH=$root/src${PYTHONPATH:+:$PYTHONPATH}
scratch=$(mktemp -d) child=""
stop() { # $1: the exit status
    trap '' INT TERM
    [ -z "$child" ] || { kill -INT "$child" 2>/dev/null && wait "$child"; } || true
    rm -rf "$scratch"
    echo "stopped; what was finished stays in $results/$host" >&2
    exit "$1"
}
trap 'stop 130' INT
trap 'stop 143' TERM
trap 'rm -rf "$scratch"' EXIT

if [ -n "$wheels" ]; then
    "$PYTHON" - "$wheels" "$scratch/packages" <<'END'
import importlib.metadata, pathlib, platform, sys, zipfile
folder, target = map(pathlib.Path, sys.argv[1:])
ours = f"cp{sys.version_info[0]}{sys.version_info[1]}"
for wheel in sorted(folder.glob("*.whl")):
    name, _, *_, python, abi, system = wheel.stem.split("-")
    fits = (ours in python.split(".") or "py3" in python or abi == "abi3") and (
        system == "any" or ("linux" in system and platform.machine() in system)
    )
    try:
        there = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        there = None
    if fits and there is None:  # what the machine has is not replaced
        zipfile.ZipFile(wheel).extractall(target)
        print(f"using {wheel.name}", file=sys.stderr)
END
    export PYTHONPATH=$PYTHONPATH:$scratch/packages
fi

"$PYTHON" - <<'END' || exit 1
import importlib.util, sys
if not (3, 11) <= sys.version_info[:2]:
    sys.exit("measure_gpu_host.sh: python must be 3.11 or newer, got %d.%d; set PYTHON" % sys.version_info[:2])
needed = "numpy scipy pandas matplotlib pydantic click rich psutil threadpoolctl yaml nbformat papermill ipykernel"
missing = [name for name in needed.split() if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(f"measure_gpu_host.sh: this Python lacks {', '.join(missing)}; bring their wheels and name the folder with --wheels")
END
if [ "$device" = gpu ] && ! "$PYTHON" -c 'import sys; from overhead.machine import host; sys.exit(not host.gpus())'; then
    fail "no NVIDIA GPU was found (nvidia-smi lists none); --device cpu measures the CPU"
fi
"$PYTHON" -m overhead doctor >&2

mkdir -p "$results/$host"
results=$(cd "$results" && pwd)
archive=$results/$host.tar.gz
keep() { # the archive holds whole chapters only, and is replaced at once or not at all
    tar -C "$results" --owner=0 --group=0 --numeric-owner -czf "$scratch/archive.tar.gz" "$host"
    cp "$scratch/archive.tar.gz" "$results/.$host.tar.gz" && mv -f "$results/.$host.tar.gz" "$archive"
}

needed() { # seconds for chapter $1, a fifth more than two cores of an EPYC take
    local quick longer=1
    quick=$(awk -v number="$1" '$1 == number { print $2 }' <<<"$ranked")
    case $preset in workshop) longer=3 ;; full) longer=8 ;; esac
    echo $((quick * longer * 6 / 5))
}

export OVERHEAD_RUN=${OVERHEAD_RUN:-$(date +%s)-$$} # chapters of one run share one calibration
chosen=auto
[ "$device" = gpu ] || chosen=cpu
known=" $("$PYTHON" -c 'from overhead.chapters import CHAPTERS; print(*CHAPTERS)') "
finished=() left_out=()
ranked=$("$PYTHON" -m overhead.chapters gpu)
[ -n "$chapters" ] || chapters=$(awk '{ print $1 }' <<<"$ranked" | paste -sd,)
for number in ${chapters//,/ }; do
    [[ $known =~ \ ($number-[a-z-]+)\  ]] || continue
    name=${BASH_REMATCH[1]}
    left=$((deadline - SECONDS))
    if ((left < $(needed "$number"))); then
        left_out+=("$name")
        continue
    fi
    began=$SECONDS
    timeout --signal=INT --kill-after=20 "$left" "$PYTHON" -m overhead run "$name" \
        --host "$host" --preset "$preset" --device "$chosen" --results "$results" >&2 &
    child=$!
    if wait "$child"; then
        finished+=("$name")
        keep
        echo "$name: $((SECONDS - began)) s" >&2
    else
        left_out+=("$name")
        echo "$name: not finished after $((SECONDS - began)) s" >&2
    fi
    child=""
done

[ ${#left_out[@]} -eq 0 ] || echo "not measured in $minutes minutes: ${left_out[*]}" >&2
[ ${#finished[@]} -gt 0 ] || fail "no chapter was finished within $minutes minutes"
echo "$archive"
