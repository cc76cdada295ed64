#!/usr/bin/env bash
# Measure this machine for the book, with the Python packages that it has: no network, nothing is installed.
# Stages, the most telling first: (a) a minute's glance, (b) chapter 06, (c) calibration and 03, (d) 05, (e) 04, 07 and
# the rest. Each is archived when it ends. One that does not fit into the time that is left is passed over; what is
# left at last goes to the first of those, whose finished cases are kept. A stop at any moment leaves what is whole.
set -euo pipefail

usage() {
    cat <<'END'
measure_gpu_host.sh [--preset quick|workshop|full] [--minutes N] [--device gpu|cpu] [--host NAME] [--results DIR]
                    [--archive FILE] [--wheels DIR] [--chapters NN,NN] [--records-only]

  --preset        how long and how often (default quick)
  --minutes       end before so many have passed, 1 to 600 (default 10)
  --device        gpu: the GPU, and the CPU beside it (default); cpu: the CPU alone
  --host          the folder under the results folder, a name for readers (default gpu-host or cpu-host)
  --results       where to write (default: results/ of this checkout)
  --archive       the one file to bring home, at most 16 MB (default DIR/NAME.tar.gz)
  --wheels        a folder of .whl files (scripts/gpu_wheels.sh fills one); packages that this machine's Python lacks
                  are unpacked from it for this run
  --chapters      their numbers, in this order, without the glance (default: the stages above)
  --records-only  make no pages: neither papermill nor Jupyter nor Matplotlib is needed here

Where the book is built:
  tar -xzf NAME.tar.gz -C results NAME && overhead run --host NAME --from-records --unfinished && make book
The Python is $PYTHON, else .venv/bin/python of this checkout, else python3.

Example: scripts/measure_gpu_host.sh --minutes 6 --host h200 --records-only
END
}

refuse() { echo "measure_gpu_host.sh: $1" >&2; exit 2; }
fail() { echo "measure_gpu_host.sh: $1" >&2; exit 1; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=quick minutes=10 device=gpu host="" results=$root/results archive="" wheels="" chapters="" only=()
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --records-only) only=(--records-only); shift ;;
        --preset | --minutes | --device | --host | --results | --archive | --wheels | --chapters)
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

margin=15 glance=60 most=16000000 # seconds to end in and of the first stage; bytes of the archive
deadline=$((SECONDS + 60 * 10#$minutes - margin))
if [ -z "${PYTHON:-}" ]; then
    PYTHON=python3
    [ ! -x "$root/.venv/bin/python" ] || PYTHON=$root/.venv/bin/python
fi
export PYTHONPATH=$root/src${PYTHONPATH:+:$PYTHONPATH}
scratch=$(mktemp -d) child="" keeper="" kit=""
stop() { # $1: the exit status
    trap '' INT TERM
    [ -z "$child" ] || { kill -INT "$child" 2>/dev/null && wait "$child"; } || true
    [ -z "$kit" ] || keep
    echo "stopped; what was finished stays in $results/$host" >&2
    exit "$1"
}
trap 'stop 130' INT
trap 'stop 143' TERM
trap '[ -z "$keeper" ] || kill "$keeper" 2>/dev/null; rm -rf "$scratch"' EXIT

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

"$PYTHON" - "${only[@]}" <<'END' || exit 1
import importlib.util, sys
if not (3, 11) <= sys.version_info[:2]:
    sys.exit("measure_gpu_host.sh: python must be 3.11 or newer, got %d.%d; set PYTHON" % sys.version_info[:2])
needed = "numpy scipy pandas pydantic click psutil threadpoolctl".split()
if not sys.argv[1:]:
    needed += "matplotlib rich yaml nbformat papermill ipykernel".split()
missing = [name for name in needed if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(f"measure_gpu_host.sh: this Python lacks {', '.join(missing)}; bring their wheels and name the folder with --wheels")
END
if [ "$device" = gpu ] && ! "$PYTHON" -c 'import sys; from overhead.machine import host; sys.exit(not host.gpus())'; then
    fail "no NVIDIA GPU was found (nvidia-smi lists none); --device cpu measures the CPU"
fi

mkdir -p "$results/$host" "$results/.$host.kit"
results=$(cd "$results" && pwd)
kit=$results/.$host.kit # beside the host's folder: what belongs to no chapter
archive=${archive:-$results/$host.tar.gz}
mkdir -p "$(dirname "$archive")"
archive=$(cd "$(dirname "$archive")" && pwd)/$(basename "$archive")

keep() { # everything that is whole, and journals of what is not, into the archive: replaced at once or not at all
    local new=$scratch/archive.$BASHPID
    tar -C "$results" --exclude='.overhead-*' --owner=0 --group=0 --numeric-owner -czf "$new" "$host" ".$host.kit" \
        2>/dev/null || true # a journal may grow meanwhile
    if (($(wc -c <"$new") > most)); then
        echo "the archive must be at most $most bytes, got $(wc -c <"$new"); it stays as it was" >&2
        return
    fi
    cp "$new" "$archive.$BASHPID" && mv -f "$archive.$BASHPID" "$archive"
}
keep_journals() { # while a stage runs, so that a kill of everything loses ten seconds
    while sleep 10 && kill -0 $$ 2>/dev/null; do
        [ -z "$(find "$results/$host" "$kit" -name '.*.journal' -newer "$archive" 2>/dev/null)" ] || keep
    done
}
within() { # $1: at most so many seconds for the command that follows; SIGINT first, so that it ends in order; dies with this group
    local left=$((deadline - SECONDS)) status=0
    ((left > $1)) && left=$1
    ((left > 0)) || return 1
    timeout --foreground --signal=INT --kill-after=8 "$left" "${@:2}" &
    child=$!
    wait "$child" || status=$?
    child=""
    return $status
}

export OVERHEAD_RUN=${OVERHEAD_RUN:-$(date +%s)-$$} # chapters of one run share one calibration
chosen=auto
[ "$device" = gpu ] || chosen=cpu
finished=() left_out=()

look() { # stage (a)
    local loops=jax-step,jax-epoch,numpy-preallocated
    if [ "$device" = gpu ]; then
        loops=cupy-graph,cupy-graph-epoch,cupy-persistent,$loops
        if "$PYTHON" -c 'import pytest' 2>/dev/null; then
            within $glance "$PYTHON" -m pytest -c /dev/null --rootdir "$root" --noconftest -p no:cacheprovider -q -rs \
                -m gpu "$root/tests/test_gpu.py" >"$kit/pytest.txt" 2>&1 || true
            tail -n 3 "$kit/pytest.txt" >&2
        fi
    fi
    loops+=$("$PYTHON" - <<'END'
from importlib.util import find_spec
keras = "keras-fit" if find_spec("tensorflow") else "keras-jax-fit"  # with neither backend its row says so
print(f",{keras}" if find_spec("keras") else "", end="")
END
    )
    within $glance "$PYTHON" -m overhead bench --loops "$loops" --batch-sizes 32,4096 --processes 1 --without-floor --device "$chosen" \
        --records "$kit/bench.jsonl" >"$kit/bench.txt" || true
    cat "$kit/bench.txt" >&2
}

chapter() { # $1: its name; $2: at most so many seconds
    local began=$SECONDS
    if within "$2" "$PYTHON" -m overhead run "$1" "${only[@]}" --host "$host" --preset "$preset" --device "$chosen" \
        --results "$results" >&2; then
        finished+=("$1")
        echo "$1: $((SECONDS - began)) s" >&2
    else
        left_out+=("$1")
        echo "$1: not finished after $((SECONDS - began)) s; its finished cases are kept" >&2
    fi
    keep
}

needed() { # seconds for chapter $1, a fifth more than two cores of an EPYC take
    local quick longer=1
    quick=$(awk -v number="$1" '$1 == number { print $2 }' <<<"$ranked")
    case $preset in workshop) longer=3 ;; full) longer=8 ;; esac
    echo $((quick * longer * 6 / 5))
}

"$PYTHON" -m overhead doctor --json >"$kit/doctor.json" || true
keep
keep_journals &
keeper=$!
if [ -z "$chapters" ]; then
    look
    keep
fi
known=" $("$PYTHON" -c 'from overhead.chapters import CHAPTERS; print(*CHAPTERS)') "
ranked=$("$PYTHON" -m overhead.chapters gpu)
passed_over=()
for number in $([ -n "$chapters" ] && echo "${chapters//,/ }" || awk '{ print $1 }' <<<"$ranked"); do
    [[ $known =~ \ ($number-[a-z-]+)\  ]] || continue
    name=${BASH_REMATCH[1]}
    if ((deadline - SECONDS < $(needed "$number"))); then
        passed_over+=("$name")
        continue
    fi
    chapter "$name" $((deadline - SECONDS))
done
if ((${#passed_over[@]} > 0)); then
    left_out+=("${passed_over[@]:1}")
    if ((deadline - SECONDS >= 30)); then
        chapter "${passed_over[0]}" $((deadline - SECONDS))
    else
        left_out+=("${passed_over[0]}")
    fi
fi

[ ${#left_out[@]} -eq 0 ] || echo "not whole in $minutes minutes: ${left_out[*]}" >&2
[ ${#finished[@]} -gt 0 ] || [ -s "$kit/bench.jsonl" ] || [ -n "$(find "$results/$host" -name '.*.journal')" ] ||
    fail "nothing was finished within $minutes minutes"
echo "$archive"
