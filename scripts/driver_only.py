#!/usr/bin/env python3
"""Measure a GPU with its driver alone: Python's standard library and libcuda, no package at all.

Three steps, the middle one on the rented machine:

  python scripts/driver_only.py build driver-only.zip         here: kernels, images and first parameters in one file
  python3 driver_only.py measure driver-only.zip > gpu.json   there: nothing but Python 3.8 or newer and the driver
  python scripts/driver_only.py records gpu.json gpu.jsonl --host h200   here: compared with the reference, as records

Measured are a launch, the replay of a graph, a wait, copies of a batch each way, and the whole epoch of
`cupy-persistent` in one launch. `build` needs NVRTC (the package nvidia-cuda-nvrtc-cu12, or CUDA's own) and compiles
for compute capability 9.0.
"""

import argparse
import array
import base64
import ctypes
import ctypes.util
import importlib.util
import json
import platform
import sys
import time
import zipfile
from pathlib import Path

KERNELS = 'extern "C" __global__ void nothing() {}\n'
PARTS = ("w1", "b1", "w2", "b2", "images", "labels")  # of the file, each as the kernel reads it; images a byte a pixel
BLOCKS, BLOCK_S, EPOCHS = 12, 0.02, 20
GRAPH_KERNELS = 20
WIDTH, HEIGHT = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
SHARED_OPTIN, DYNAMIC_SHARED = 97, 8  # …_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN; CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_…
RELAXED = 2  # mode of a stream's capture


class Failed(RuntimeError):
    """The driver refused, or a file is not what it must be; says which call or what."""


# --- here: the file -------------------------------------------------------------------------------------------


def nvrtc():
    """NVIDIA's run-time compiler, from its package or from CUDA's folder; None where there is none."""
    names = ("libnvrtc.so.13", "libnvrtc.so.12")
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [] if spec else [])]
    packaged = [str(path) for name in names for folder in folders for path in folder.glob(f"*/lib/{name}")]
    for name in [*packaged, *names]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def compiled(text, *options):
    """The program for compute capability 9.0 and what the compiler said. Raises `Failed` without NVRTC."""
    library = nvrtc()
    if library is None:
        raise Failed("NVRTC must be installed (pip install nvidia-cuda-nvrtc-cu12)")
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    if library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None):
        raise Failed("NVRTC made no program")
    given = [b"--gpu-architecture=sm_90", *(option.encode() for option in options)]
    status = library.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    said = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, said)
    if status:
        raise Failed(said.value.decode())
    library.nvrtcGetCUBINSize(program, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    library.nvrtcGetCUBIN(program, cubin)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin.raw, said.value.decode()


def build(path, images, cubin=None):
    """Write the file that the rented machine needs: the program, the batches in order, the first parameters."""
    import numpy as np

    from overhead.chapters.provenance import revision
    from overhead.loops import cupy_persistent as persistent
    from overhead.measure import agreement
    from overhead.problem import data, mlp
    from overhead.problem.workload import Workload

    workload = Workload(images=images)
    persistent.refuse_other_workloads(workload)
    split, seen = data.for_workload(workload), workload.images_seen
    shape = (workload.steps, persistent.BATCH_SIZE, persistent.LAYERS[0])
    pixels = np.rint(split.x[:seen] * 255).astype(np.uint8)
    if not np.array_equal(pixels / np.float32(255), split.x[:seen]):
        raise Failed("a pixel must be a whole number of 255ths")
    if cubin is None:
        cubin, _ = compiled(persistent.KERNEL + KERNELS, f"-DSHARED_BYTES={persistent.SHARED_BYTES}")
    about = {
        "workload": workload.model_dump(mode="json"),
        "data": split.name,
        "steps": agreement.STEPS,
        "rates": [agreement.at_agreement_rate(workload).learning_rate, agreement.at_epoch_rate(workload).learning_rate],
        "batches": workload.steps,
        "blocks": persistent.BLOCKS,
        "threads": persistent.THREADS,
        "shared_bytes": persistent.SHARED_BYTES,
        "commit": revision()[0],
        "dirty": revision()[1],
    }
    batches = np.ascontiguousarray(pixels.reshape(shape).transpose(0, 2, 1))
    arrays = [*mlp.flat(mlp.init(workload)), batches, split.y[:seen].astype(np.int32)]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("about.json", json.dumps(about))
        file.writestr("kernels.cubin", cubin)
        for name, part in zip(PARTS, arrays, strict=True):
            file.writestr(name, part.tobytes())


# --- there: the driver ----------------------------------------------------------------------------------------


class Driver:
    """The calls of libcuda that are used, each checked; pointers of the device are plain numbers."""

    def __init__(self, library):
        self.library = library
        self.call("cuInit", ctypes.c_uint(0))
        self.device = self.asked("cuDeviceGet", ctypes.c_int(), ctypes.c_int(0))
        context = self.asked("cuDevicePrimaryCtxRetain", ctypes.c_void_p(), ctypes.c_int(self.device))
        self.call("cuCtxSetCurrent", ctypes.c_void_p(context))
        self.stream = self.asked("cuStreamCreate", ctypes.c_void_p(), ctypes.c_uint(0))

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self.library.cuGetErrorName(ctypes.c_int(status), ctypes.byref(text))
            raise Failed(f"{name} gave {(text.value or b'an unknown error').decode()} ({status})")

    def asked(self, name, what, *arguments):
        """What a call writes to its first argument."""
        self.call(name, ctypes.byref(what), *arguments)
        return what.value

    def attribute(self, number):
        return self.asked("cuDeviceGetAttribute", ctypes.c_int(), ctypes.c_int(number), ctypes.c_int(self.device))

    def name(self):
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, ctypes.c_int(256), ctypes.c_int(self.device))
        return text.value.decode()

    def version(self):
        return self.asked("cuDriverGetVersion", ctypes.c_int())

    def function(self, module, name):
        return self.asked("cuModuleGetFunction", ctypes.c_void_p(), ctypes.c_void_p(module), name.encode())

    def allocate(self, size):
        return self.asked("cuMemAlloc_v2", ctypes.c_uint64(), ctypes.c_size_t(size))

    def pinned(self, size):
        return self.asked("cuMemAllocHost_v2", ctypes.c_void_p(), ctypes.c_size_t(size))

    def to_device(self, device, host, size):
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(device), ctypes.c_void_p(host), ctypes.c_size_t(size))

    def to_host(self, host, device, size):
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(host), ctypes.c_uint64(device), ctypes.c_size_t(size))

    def launch(self, function, blocks, threads, shared, *arguments):
        """Enqueue a kernel; each argument is a ctypes value, and the driver copies them all before it returns."""
        places = (ctypes.c_void_p * max(1, len(arguments)))(*(ctypes.addressof(value) for value in arguments))
        sizes = [ctypes.c_uint(number) for number in (blocks, 1, 1, threads, 1, 1, shared)]
        self.call("cuLaunchKernel", ctypes.c_void_p(function), *sizes, ctypes.c_void_p(self.stream), places, None)

    def wait(self):
        self.call("cuStreamSynchronize", ctypes.c_void_p(self.stream))

    def wait_for_copies(self):
        """A copy from pageable memory returns once it is staged; this returns once it has arrived."""
        self.call("cuCtxSynchronize")

    def captured(self, work):
        """What `work` enqueues, as a graph that can be replayed."""
        self.call("cuStreamBeginCapture_v2", ctypes.c_void_p(self.stream), ctypes.c_int(RELAXED))
        work()
        graph = ctypes.c_void_p()
        self.call("cuStreamEndCapture", ctypes.c_void_p(self.stream), ctypes.byref(graph))
        return self.asked("cuGraphInstantiateWithFlags", ctypes.c_void_p(), graph, ctypes.c_ulonglong(0))

    def replay(self, graph):
        self.call("cuGraphLaunch", ctypes.c_void_p(graph), ctypes.c_void_p(self.stream))


def libcuda():
    """The driver's library. Raises `Failed` on a machine without one."""
    for name in filter(None, ("libcuda.so.1", "libcuda.so", ctypes.util.find_library("cuda"))):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise Failed("no NVIDIA driver was found (libcuda.so.1)")


def floats(pixels):
    """Bytes of pixels as float32 of 0 to 1, in bytes: each is looked up."""
    table = [array.array("f", [value / 255]).tobytes() for value in range(256)]
    return b"".join(map(table.__getitem__, pixels))


def measure(path, library=None, block_s=BLOCK_S, epochs=EPOCHS):
    """What the driver's calls cost, and the epoch: ready for JSON."""
    with zipfile.ZipFile(path) as file:
        about = json.loads(file.read("about.json"))
        program, parts = file.read("kernels.cubin"), {name: file.read(name) for name in PARTS}
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    driver = Driver(library or libcuda())
    card, shared, most = driver.name(), about["shared_bytes"], driver.attribute(SHARED_OPTIN)
    capability = [driver.attribute(WIDTH), driver.attribute(HEIGHT)]
    if capability[0] != 9:
        raise Failed(f"the program is for compute capability 9.0, got {capability[0]}.{capability[1]} ({card})")
    if most < shared:
        raise Failed(f"a block needs {shared} bytes of shared memory, got {most} ({card})")
    module = driver.asked("cuModuleLoadData", ctypes.c_void_p(), program)
    nothing, train = driver.function(module, "nothing"), driver.function(module, "train")
    driver.call("cuFuncSetAttribute", ctypes.c_void_p(train), ctypes.c_int(DYNAMIC_SHARED), ctypes.c_int(shared))
    placed = time.perf_counter_ns()
    parts["images"] = floats(parts["images"])
    on_device = {name: driver.allocate(len(part)) for name, part in parts.items()}
    prepared = time.perf_counter_ns()
    for name, part in parts.items():
        driver.to_device(on_device[name], ctypes.cast(part, ctypes.c_void_p).value, len(part))
    driver.wait_for_copies()
    copied = time.perf_counter_ns()
    return {
        "device_name": card,
        "capability": capability,
        "cuda": driver.version(),
        "python": platform.python_version(),
        "started": began,
        "about": about,
        "placed_s": (copied - prepared) * 1e-9,
        "converted_s": (prepared - placed) * 1e-9,
        "pieces": pieces(driver, nothing, block_s),
        **epoch(driver, train, about, parts, on_device, epochs),
    }


def pieces(driver, nothing, block_s):
    """The smallest costs: for each, nanoseconds of blocks of calls, waited for each time and once at the end."""
    size = 32 * 784 * 4
    pageable = ctypes.create_string_buffer(size)
    host, pinned, device = ctypes.addressof(pageable), driver.pinned(size), driver.allocate(size)

    def launch():
        driver.launch(nothing, 1, 32, 0)

    def chain():
        for _ in range(GRAPH_KERNELS):
            launch()

    graph = driver.captured(chain)
    batch = f"one batch ({size:,} bytes)"
    named = [
        ("launch", "an empty kernel", 0, launch),
        ("graph-replay", f"a graph of {GRAPH_KERNELS} empty kernels", 0, lambda: driver.replay(graph)),
        ("synchronise", "a wait for a stream with nothing in it", 0, driver.wait),
        ("to-device", f"{batch} to the device, pageable", size, lambda: driver.to_device(device, host, size)),
        ("to-device-pinned", f"{batch} to the device, pinned", size, lambda: driver.to_device(device, pinned, size)),
        ("to-host", f"{batch} from the device, pageable", size, lambda: driver.to_host(host, device, size)),
        ("to-host-pinned", f"{batch} from the device, pinned", size, lambda: driver.to_host(pinned, device, size)),
    ]
    found = []
    for name, does, moved, call in named:
        wait = driver.wait_for_copies if moved else driver.wait
        call()
        wait()
        began = time.perf_counter()
        call()
        wait()
        calls = max(1, min(1000, int(block_s / max(time.perf_counter() - began, 1e-7))))
        piece = {"name": name, "does": does, "bytes": moved, "calls": calls, "each_ns": [], "end_ns": []}
        for _ in range(BLOCKS):
            for clock, each in (("each_ns", True), ("end_ns", False)):
                start = time.perf_counter_ns()
                for _ in range(calls):
                    call()
                    if each:
                        wait()
                wait()
                piece[clock].append(time.perf_counter_ns() - start)
        found.append(piece)
    return found


def epoch(driver, train, about, parts, on_device, epochs):
    """Parameters after the steps and after the epoch that are compared, then nanoseconds of whole epochs."""

    def reset():
        for name in PARTS[:4]:
            driver.to_device(on_device[name], ctypes.cast(parts[name], ctypes.c_void_p).value, len(parts[name]))
        driver.wait_for_copies()

    def run(steps, rate):
        pointers = [ctypes.c_uint64(on_device[name]) for name in PARTS]
        numbers = [ctypes.c_int(number) for number in (0, steps, about["batches"])]
        sizes = about["blocks"], about["threads"], about["shared_bytes"]
        driver.launch(train, *sizes, *pointers, *numbers, ctypes.c_float(rate))

    def fetched():
        found = []
        for name in PARTS[:4]:
            here = ctypes.create_string_buffer(len(parts[name]))
            driver.to_host(ctypes.addressof(here), on_device[name], len(parts[name]))
            found.append(base64.b64encode(here.raw).decode())
        return found

    run(about["steps"], about["rates"][0])
    driver.wait()
    twenty = fetched()
    reset()
    start = time.perf_counter_ns()
    run(about["batches"], about["rates"][1])
    driver.wait()
    first_s = (time.perf_counter_ns() - start) * 1e-9
    whole = fetched()
    walls, dispatches = [], []
    for _ in range(epochs):
        start = time.perf_counter_ns()
        run(about["batches"], about["rates"][1])
        dispatches.append(time.perf_counter_ns() - start)
        driver.wait()
        walls.append(time.perf_counter_ns() - start)
    times = {"first_s": first_s, "wall_ns": walls, "dispatch_ns": dispatches}
    return {**times, "after_steps": twenty, "after_epoch": whole}


# --- here: the records ----------------------------------------------------------------------------------------


def records(found, host):
    """Records of what `measure` gave: a probe a piece, and the epoch, which is compared with the reference first."""
    import numpy as np

    from overhead.measure import agreement
    from overhead.problem import data, mlp
    from overhead.problem.workload import Workload
    from overhead.records.record import Record, Samples, Timing

    about = found["about"]
    workload = Workload(**{**about["workload"], "layers": tuple(about["workload"]["layers"])})
    split = data.for_workload(workload)
    if split.name != about["data"]:
        raise Failed(f"the images must be {split.name}, got {about['data']}")
    shared = {
        "host": host, "notebook": "driver-only", "device": "gpu", "device_name": found["device_name"],
        "workload": workload, "started": found["started"], "commit": about["commit"], "dirty": about["dirty"],
        "versions": {"cuda-driver": f"{found['cuda'] // 1000}.{found['cuda'] % 1000 // 10}", "python": found["python"]},
        "tool": "driver-only",
    }  # fmt: skip

    def samples(clock, steps, nanoseconds):
        rounds = list(range(len(nanoseconds)))
        return Samples(clock=clock, steps=steps, process=0, round=rounds, seconds=[ns * 1e-9 for ns in nanoseconds])

    kept = []
    for piece in found["pieces"]:
        timing = Timing(samples=[samples(clock, piece["calls"], piece[f"{clock}_ns"]) for clock in ("each", "end")])
        probe = {"kind": "fixed", "does": piece["does"], "flops": 0, "bytes": piece["bytes"]}
        kept.append(Record(status="ok", loop="driver", op=piece["name"], probe=probe, timing=timing, **shared))

    def parameters(texts):
        shapes = [part.shape for part in mlp.flat(mlp.init(workload))]
        flat = [np.frombuffer(base64.b64decode(t), np.float32).reshape(s) for t, s in zip(texts, shapes, strict=True)]
        return mlp.unflat(flat)

    twenty, whole = parameters(found["after_steps"]), parameters(found["after_epoch"])
    agreed = agreement.compare(twenty, whole, workload, split)
    times = [samples(clock, workload.steps, found[f"{clock}_ns"]) for clock in ("wall", "dispatch")]
    right = agreed.disagreement is None
    epoch = Record(
        status="ok" if right else "disagrees", reason=agreed.disagreement, loop="cupy-persistent",
        timing=Timing(first_s=found["first_s"], stopped="count", samples=times if right else []),
        agreement=agreed._asdict(), data=split.name, placed_s=found["placed_s"],
        settings={"matmul_precision": "float32"}, **shared,
    )  # fmt: skip
    return [*kept, epoch]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("build")
    verb.add_argument("file", type=Path)
    verb = verbs.add_parser("measure")
    verb.add_argument("file", type=Path)
    verb = verbs.add_parser("records")
    verb.add_argument("json", type=Path)
    verb.add_argument("jsonl", type=Path)
    verb.add_argument("--host", required=True)
    given = parser.parse_args(arguments)
    try:
        if given.verb == "build":
            build(given.file, 48_000)
        elif given.verb == "measure":
            print(json.dumps(measure(given.file)))
        else:
            from overhead.records.record import write

            write(given.jsonl, records(json.loads(given.json.read_text(encoding="utf-8")), given.host))
    except (Failed, OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        sys.exit(f"driver_only.py: {error}")


if __name__ == "__main__":
    main()
