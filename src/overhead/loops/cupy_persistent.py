"""The whole epoch in one launch: a kernel that keeps the model on the chip and the training loop inside.

Every other loop of this book ends and starts kernels between two operations, so that each waits for all of the one
before. Here eight blocks, one on each of eight processors of the GPU, hold the parameters and the batch in their
shared memory from the first step to the last, and wait for each other once a step. Most of the GPU stays idle.

A kernel on the whole GPU would have to wait for all of it at every step, which takes 1 to 2 us through the memory
they share, and would load the batch into as many places. The blocks of a cluster read each other's shared memory,
and their barrier is in hardware (compute capability 9.0; CUDA C++ Programming Guide, "Thread Block Clusters").
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np

from overhead.loops.base import Declined
from overhead.loops.cupy_ import Array, OnGpu
from overhead.problem.data import Split
from overhead.problem.mlp import Layer, Params, flat
from overhead.problem.workload import Workload

LAYERS, BATCH_SIZE = (784, 128, 10), 32  # the constants of the kernel's first lines
BLOCKS, THREADS = 8, 512
SHARED_BYTES = 206_512  # of a block; the kernel compares it with its own
CAPABILITY = 9  # from which on there are clusters

KERNEL = r"""
constexpr int PIXELS = 784, CLASSES = 10, IMAGES = 32;        // IMAGES of a batch
constexpr int BLOCKS = 8, UNITS = 16;                         // 8 blocks of 16 hidden units each
constexpr int THREADS = 512, WARPS = THREADS / 32;
constexpr int ROW = IMAGES + 4;                               // so that 8 rows below each other are in 8 banks
constexpr int EACH = PIXELS * IMAGES / THREADS;               // values of a batch that a thread fetches: 49

struct alignas(16) Four { float at[4]; };                     // read and written by one instruction
struct alignas(16) Shared {                                   // of each block, from the first step to the last
    float x[PIXELS][ROW];                                     // the batch; a column is an image
    float w1[PIXELS][UNITS], b1[UNITS];                       // of the block's own hidden units
    float partial[WARPS][UNITS][IMAGES];                      // of z1, over the pixels of each warp
    float dz1[IMAGES][UNITS];
    float h[UNITS][ROW];                                      // hidden units after the ReLU
    float w2[UNITS][CLASSES], b2[CLASSES];                    // every block has the same b2
    float logits[2][CLASSES][IMAGES];                         // over the block's own units, for the others to read
    float z2[CLASSES][ROW], dz2[CLASSES][ROW];                // over all units
    int y[IMAGES];
};
static_assert(sizeof(Shared) == SHARED_BYTES, "SHARED_BYTES must be the size of Shared");
__device__ Four &four(float &first) { return reinterpret_cast<Four &>(first); }
__device__ void cluster_barrier() {                           // what was written before is read after, in all blocks
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
}

// `steps` training steps from batch `first` on, wrapping round the epoch of `batches`.
// w1: (784, 128), b1: (128,), w2: (128, 10), b2: (10,), updated; images: (batches, 784, 32); labels: (batches, 32).
extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, 1)
train(float *w1, float *b1, float *w2, float *b2, const float *images, const int *labels,
      int first, int steps, int batches, float lr) {
    extern __shared__ Four memory[];
    Shared &s = reinterpret_cast<Shared &>(memory);
    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int rank = blockIdx.x, unit0 = rank * UNITS;

    // The block's part of the parameters, and the first batch.
    for (int e = t; e < PIXELS * UNITS; e += THREADS)
        s.w1[e / UNITS][e % UNITS] = w1[e / UNITS * BLOCKS * UNITS + unit0 + e % UNITS];
    for (int e = t; e < UNITS * CLASSES; e += THREADS) s.w2[e / CLASSES][e % CLASSES] = w2[unit0 * CLASSES + e];
    if (t < UNITS) s.b1[t] = b1[unit0 + t];
    if (t < CLASSES) s.b2[t] = b2[t];
    for (int e = t; e < PIXELS * IMAGES; e += THREADS)
        s.x[e / IMAGES][e % IMAGES] = images[(size_t)first * PIXELS * IMAGES + e];
    if (t < IMAGES) s.y[t] = labels[first * IMAGES + t];
    __syncthreads();

    for (int step = 0; step < steps; ++step) {
        // The next batch is on its way to registers while this one is trained on.
        const int next = (first + step + 1) % batches;
        float next_x[EACH];
        #pragma unroll
        for (int j = 0; j < EACH; ++j) next_x[j] = images[(size_t)next * PIXELS * IMAGES + t + j * THREADS];
        const int next_y = labels[next * IMAGES + lane];

        // z1 = x w1: a warp takes every 16th pixel, a thread 4 units of 4 images.
        const int i0 = lane % 8 * 4, u0 = lane / 8 * 4;
        float z1[4][4] = {};
        for (int k = warp; k < PIXELS; k += WARPS) {
            const Four x = four(s.x[k][i0]), w = four(s.w1[k][u0]);
            for (int u = 0; u < 4; ++u)
                for (int i = 0; i < 4; ++i) z1[u][i] += w.at[u] * x.at[i];
        }
        for (int u = 0; u < 4; ++u)
            for (int i = 0; i < 4; ++i) s.partial[warp][u0 + u][i0 + i] = z1[u][i];
        __syncthreads();

        // h = relu(z1 + b1): a warp takes one unit, a thread one image.
        float z = s.b1[warp];
        for (int part = 0; part < WARPS; ++part) z += s.partial[part][warp][lane];
        s.h[warp][lane] = z < 0 ? 0 : z;
        __syncthreads();

        // z2 = h w2 over the block's own units: of the first ten warps, each takes a class.
        // Two copies in turn: a block that is a step ahead writes to the one that nobody reads any more.
        float (*logits)[IMAGES] = s.logits[step % 2];
        if (warp < CLASSES) {
            float own = 0;
            for (int u = 0; u < UNITS; ++u) own += s.h[u][lane] * s.w2[u][warp];
            logits[warp][lane] = own;
        }
        cluster_barrier();                                    // the one exchange of a step
        if (warp < CLASSES) {
            float all = s.b2[warp];                           // over all units, in the same order in every block
            for (int block = 0; block < BLOCKS; ++block)
                all += *(const float *)__cluster_map_shared_rank(&logits[warp][lane], block);
            s.z2[warp][lane] = all;
        }
        __syncthreads();

        // dz2 = (softmax(z2) - one-hot label) / images
        if (warp < CLASSES) {
            float top = s.z2[0][lane], total = 0;
            for (int c = 1; c < CLASSES; ++c) top = s.z2[c][lane] > top ? s.z2[c][lane] : top;
            for (int c = 0; c < CLASSES; ++c) total += expf(s.z2[c][lane] - top);
            s.dz2[warp][lane] = (expf(s.z2[warp][lane] - top) / total - (s.y[lane] == warp)) / IMAGES;
        }
        __syncthreads();

        // dz1 = dz2 w2', where the ReLU let through: a thread takes one unit of one image.
        const int image = t / UNITS, unit = t % UNITS;
        float da1 = 0;
        for (int c = 0; c < CLASSES; ++c) da1 += s.dz2[c][image] * s.w2[unit][c];
        s.dz1[image][unit] = s.h[unit][image] > 0 ? da1 : 0;
        __syncthreads();

        // w1 -= lr x' dz1: of 14 warps, a thread takes 7 pixels of 4 units; the other two warps update the rest.
        constexpr int GROUPS = PIXELS / 7;
        if (t < GROUPS * 4) {
            const int p0 = t / 4, v0 = t % 4 * 4;
            float dw1[7][4] = {};
            for (int i = 0; i < IMAGES; i += 4) {
                Four dz1[4];
                for (int j = 0; j < 4; ++j) dz1[j] = four(s.dz1[i + j][v0]);
                for (int p = 0; p < 7; ++p) {
                    const Four x = four(s.x[p0 + p * GROUPS][i]);
                    for (int j = 0; j < 4; ++j)
                        for (int u = 0; u < 4; ++u) dw1[p][u] += x.at[j] * dz1[j].at[u];
                }
            }
            for (int p = 0; p < 7; ++p)
                for (int u = 0; u < 4; ++u) s.w1[p0 + p * GROUPS][v0 + u] -= lr * dw1[p][u];
        } else {
            const int own = t - GROUPS * 4;                   // from 0 to 63
            for (int e = own; e < UNITS * CLASSES; e += THREADS - GROUPS * 4) {
                const int u = e / CLASSES, c = e % CLASSES;
                float dw2 = 0;
                for (int i = 0; i < IMAGES; ++i) dw2 += s.h[u][i] * s.dz2[c][i];
                s.w2[u][c] -= lr * dw2;
            }
            if (own < UNITS + CLASSES) {                      // the biases of the units, then of the classes
                float db = 0;
                for (int i = 0; i < IMAGES; ++i) db += own < UNITS ? s.dz1[i][own] : s.dz2[own - UNITS][i];
                (own < UNITS ? s.b1[own] : s.b2[own - UNITS]) -= lr * db;
            }
        }
        __syncthreads();

        // Now that nobody reads the batch any more, the next one takes its place.
        for (int j = 0; j < EACH; ++j) s.x[warp + j * WARPS][lane] = next_x[j];
        if (warp == 0) s.y[lane] = next_y;
        __syncthreads();
    }

    for (int e = t; e < PIXELS * UNITS; e += THREADS)
        w1[e / UNITS * BLOCKS * UNITS + unit0 + e % UNITS] = s.w1[e / UNITS][e % UNITS];
    for (int e = t; e < UNITS * CLASSES; e += THREADS) w2[unit0 * CLASSES + e] = s.w2[e / CLASSES][e % CLASSES];
    if (t < UNITS) b1[unit0 + t] = s.b1[t];
    if (t < CLASSES && rank == 0) b2[t] = s.b2[t];
    cluster_barrier();                                        // shared memory ends with its block: none leaves early
}
"""


class PersistentState(NamedTuple):
    xp: Any
    params: tuple[Layer, ...]  # every launch updates them in place
    images: Array  # (batches, 784, 32): each batch transposed, so that the kernel copies it as it stands
    labels: Array  # (batches, 32)
    kernel: Any
    at: int  # the next batch
    lr: float


@final
class CupyPersistentLoop(OnGpu):
    """Any number of steps in one launch of a cluster of eight blocks; the book's MLP at batch 32, and nothing else."""

    def place(self, params: Params, data: Split, workload: Workload) -> PersistentState:
        xp = self.array_module()
        refuse_other_workloads(workload)
        refuse_other_gpus(xp)
        module = xp.RawModule(code=KERNEL, options=(f"-DSHARED_BYTES={SHARED_BYTES}",))
        kernel = module.get_function("train")
        kernel.max_dynamic_shared_size_bytes = SHARED_BYTES  # above 48 KB only for who asks
        seen, shape = workload.images_seen, (workload.steps, BATCH_SIZE, LAYERS[0])
        batches = np.ascontiguousarray(data.x[:seen].reshape(shape).transpose(0, 2, 1))
        return PersistentState(
            xp=xp,
            params=tuple(Layer(xp.array(w), xp.array(b)) for w, b in params),
            images=xp.array(batches),
            labels=xp.array(data.y[:seen].reshape(shape[:2])),
            kernel=kernel,
            at=0,
            lr=workload.learning_rate,
        )

    def run(self, state: PersistentState, steps: int) -> PersistentState:
        batches = len(state.labels)
        counts = (np.int32(state.at), np.int32(steps), np.int32(batches))
        arguments = (*flat(state.params), state.images, state.labels, *counts, np.float32(state.lr))
        state.kernel((BLOCKS,), (THREADS,), arguments, shared_mem=SHARED_BYTES)
        return state._replace(at=(state.at + steps) % batches)

    def steps_per_call(self, workload: Workload) -> int:
        return workload.steps

    def settings(self, state: PersistentState) -> dict[str, str]:
        return {"matmul_precision": "float32"}  # its products are its own


def refuse_other_workloads(workload: Workload) -> None:
    """Raises `Declined` for what the kernel's constants do not fit."""
    if workload.layers != LAYERS:
        raise Declined(f"cupy-persistent trains layers {shown(LAYERS)}, got {shown(workload.layers)}")
    if workload.batch_size != BATCH_SIZE:
        raise Declined(f"cupy-persistent trains batches of {BATCH_SIZE}, got {workload.batch_size}")
    if workload.steps > workload.whole_batches:
        raise Declined(f"cupy-persistent trains whole batches, got a last one of {workload.last_batch} images")


def refuse_other_gpus(xp: Any) -> None:
    """Raises `Declined` for a GPU without clusters, or with less shared memory than a block takes."""
    gpu = xp.cuda.runtime.getDeviceProperties(xp.cuda.runtime.getDevice())
    name, capability, shared = gpu["name"].decode(), gpu["major"], gpu["sharedMemPerBlockOptin"]
    if capability < CAPABILITY:
        raise Declined(
            f"cupy-persistent needs thread-block clusters, compute capability {CAPABILITY}.0, "
            f"got {capability}.{gpu['minor']} ({name})"
        )
    if shared < SHARED_BYTES:
        raise Declined(f"cupy-persistent needs {SHARED_BYTES} bytes of shared memory a block, got {shared} ({name})")


def shown(layers: tuple[int, ...]) -> str:
    return "-".join(map(str, layers))
