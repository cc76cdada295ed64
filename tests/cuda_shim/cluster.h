// A thread-block cluster on the host: CUDA C of one kernel, compiled as C++, each CUDA thread a fiber.
//
// A fiber runs until its next barrier, and which one is next is drawn by chance from a seed. Some seeds let a block run
// as far ahead of the others as barriers allow, the rest change the block at every turn. Shared memory is not-a-number
// before it is written and after its block has ended. Not shown: what happens within an instruction, and memory that
// becomes visible late.
#include <cmath>
#include <csetjmp>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>

#define __global__
#define __device__ static inline
#define __shared__
#define __cluster_dims__(...)
#define __launch_bounds__(...)
#define memory (*shared_of_this_block())  // `extern __shared__ T memory[]` declares a function that gives the array

namespace cluster {

constexpr size_t STACK = 32768;

struct Barrier {
    int expected = 0, arrived = 0, phase = 0;
    int arrive() {  // returns the phase to wait for
        const int next = phase + 1;
        if (++arrived == expected) { arrived = 0; phase = next; }
        return next;
    }
};

struct Fiber {
    jmp_buf here;
    char *stack = nullptr;
    const Barrier *at = nullptr;
    int awaits = 0;
    bool started = false, done = false;
    bool ready() const { return !done && (!at || at->phase >= awaits); }
};

struct Block {
    std::vector<Fiber> threads;
    std::vector<char> shared;
    Barrier barrier;
    int left = 0;  // threads that have not ended
};

static std::vector<Block> blocks;
static Barrier all;
static Fiber *running;
static Block *block;
static int cluster_awaits[4096];
static jmp_buf scheduler;
static void (*kernel)();
static unsigned long long chance;

static unsigned draw(unsigned below) {
    chance = chance * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(chance >> 33) % below;
}

static void wait(const Barrier &barrier, int phase) {
    running->at = &barrier;
    running->awaits = phase;
    if (!_setjmp(running->here)) _longjmp(scheduler, 1);
}

static void begin() {
    kernel();
    running->done = true;
    _longjmp(scheduler, 1);
}

static void resume(Fiber &fiber) {
    running = &fiber;
    if (_setjmp(scheduler)) return;
    if (fiber.started) _longjmp(fiber.here, 1);
    fiber.started = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack;
    context.uc_stack.ss_size = STACK;
    context.uc_link = nullptr;
    makecontext(&context, begin, 0);
    setcontext(&context);
}

}  // namespace cluster

static struct { unsigned x; } threadIdx, blockIdx;

namespace cluster {

// Each thread that can go on runs to its next barrier, in an order of its own. Returns how many there were.
static int turn(int b) {
    static const int strides[] = {1, 3, 5, 7, 11, 509, 511, 129};
    block = &blocks[b];
    const int n = (int)block->threads.size(), first = draw(n), stride = strides[draw(8)];  // n is a power of two
    int ran = 0;
    for (int i = 0; i < n; ++i) {
        const int t = (first + i * stride) % n;
        Fiber &fiber = block->threads[t];
        if (!fiber.ready()) continue;
        threadIdx.x = t;
        blockIdx.x = b;
        resume(fiber);
        ++ran;
        if (fiber.done && --block->left == 0) memset(block->shared.data(), 0xff, block->shared.size());
    }
    return ran;
}

// Returns false when the threads wait for each other without end.
static bool launch(int count, int threads, size_t shared_bytes, unsigned seed, void (*text)()) {
    kernel = text;
    chance = seed;
    blocks.clear();
    blocks.resize(count);
    all = Barrier{count * threads};
    static char *const stacks = (char *)malloc((size_t)count * threads * STACK);  // for every launch
    char *next = stacks;
    for (Block &each : blocks) {
        each.threads.resize(threads);
        for (Fiber &fiber : each.threads) fiber.stack = next, next += STACK;
        each.shared.assign(shared_bytes, (char)0xff);
        each.barrier.expected = each.left = threads;
    }
    const bool ahead = seed % 2 == 0;
    for (int idle = 0, b = draw(count); idle < count;) {
        const int ran = turn(b);
        idle = ran ? 0 : idle + 1;
        if (!ran) b = (b + 1) % count;
        else if (!ahead) b = draw(count);
    }
    bool ended = true;
    for (Block &each : blocks) ended = ended && each.left == 0;
    return ended;
}

}  // namespace cluster

static void __syncthreads() { cluster::wait(cluster::block->barrier, cluster::block->barrier.arrive()); }

static void __cluster_barrier_arrive() {
    cluster::cluster_awaits[blockIdx.x * 512 + threadIdx.x] = cluster::all.arrive();
}

static void __cluster_barrier_wait() {
    cluster::wait(cluster::all, cluster::cluster_awaits[blockIdx.x * 512 + threadIdx.x]);
}

// The place in the shared memory of block `rank` where `mine` is in this block's.
static void *__cluster_map_shared_rank(const void *mine, int rank) {
    const size_t offset = (const char *)mine - cluster::block->shared.data();
    if (offset >= cluster::block->shared.size()) abort();
    return cluster::blocks[rank].shared.data() + offset;
}
