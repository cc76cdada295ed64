// libcuda in host memory, as strict about handles, sizes and limits as a driver: the kernel `train` runs on the cluster
// of cluster.h, `nothing` does nothing. A pointer of the device is a 64-bit address, so that half of one is a fault.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <vector>

namespace driver {
enum { OK = 0, INVALID_VALUE = 1, INVALID_HANDLE = 400, NOT_FOUND = 500 };
using Work = std::function<void()>;
struct Graph { std::vector<Work> work; };
static std::set<uint64_t> allocated;
static std::vector<Work> *capturing;
static int context, stream, module, nothing, train_, shared_limit = 48 * 1024;
static bool current;
static bool device_memory(uint64_t at) { return allocated.count(at); }
}  // namespace driver

extern "C" {
int cuInit(unsigned flags) { return flags ? driver::INVALID_VALUE : driver::OK; }
int cuDriverGetVersion(int *version) { return *version = 13000, driver::OK; }
int cuGetErrorName(int status, const char **text) {
    *text = status == driver::NOT_FOUND ? "CUDA_ERROR_NOT_FOUND" : "CUDA_ERROR_OTHER";
    return driver::OK;
}
int cuDeviceGet(int *device, int number) { return number ? 101 : (*device = 0, driver::OK); }
int cuDeviceGetName(char *text, int size, int device) { return strncpy(text, "Pretended H200", size), device; }
int cuDeviceGetAttribute(int *value, int what, int device) {
    const char *major = getenv("FAKE_CUDA_MAJOR");
    *value = what == 75 ? (major ? atoi(major) : 9) : what == 76 ? 0 : what == 97 ? 232448 : -1;
    return *value < 0 ? driver::INVALID_VALUE : device;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = &driver::context, device; }
int cuCtxSetCurrent(void *context) { return (driver::current = context == &driver::context) ? 0 : 201; }
int cuCtxSynchronize() { return driver::current ? 0 : 201; }
int cuStreamCreate(void **stream, unsigned flags) { return *stream = &driver::stream, (int)flags; }
int cuStreamSynchronize(void *stream) { return stream == &driver::stream && !driver::capturing ? 0 : 400; }
int cuModuleLoadData(void **module, const void *image) {
    return memcmp(image, "\x7f" "ELF", 4) ? 200 : (*module = &driver::module, driver::OK);
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    if (module != &driver::module) return driver::INVALID_HANDLE;
    *function = !strcmp(name, "train") ? &driver::train_ : !strcmp(name, "nothing") ? &driver::nothing : nullptr;
    return *function ? driver::OK : driver::NOT_FOUND;
}
int cuFuncSetAttribute(void *function, int what, int value) {
    if (function != &driver::train_ || what != 8 || value > 232448) return driver::INVALID_VALUE;
    return driver::shared_limit = value, driver::OK;
}
int cuMemAlloc_v2(uint64_t *at, size_t size) {
    *at = (uint64_t)malloc(size);
    return driver::allocated.insert(*at), driver::OK;
}
int cuMemAllocHost_v2(void **at, size_t size) { return *at = malloc(size), driver::OK; }
int cuMemcpyHtoD_v2(uint64_t device, const void *host, size_t size) {
    return driver::device_memory(device) ? (memcpy((void *)device, host, size), 0) : 1;
}
int cuMemcpyDtoH_v2(void *host, uint64_t device, size_t size) {
    return driver::device_memory(device) ? (memcpy(host, (void *)device, size), 0) : 1;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **given, void **extra) {
    if (stream != &driver::stream || extra || gy * gz * by * bz != 1) return driver::INVALID_VALUE;
    driver::Work work = [] {};
    if (function == &driver::train_) {
        if (gx != BLOCKS || bx != THREADS || shared != sizeof(Shared) || (int)shared > driver::shared_limit) return 1;
        for (int i = 0; i < 6; ++i) if (!driver::device_memory(*(uint64_t *)given[i])) return 700;
        float **floats[5] = {(float **)given[0], (float **)given[1], (float **)given[2], (float **)given[3],
                             (float **)given[4]};
        float *a = *floats[0], *b = *floats[1], *c = *floats[2], *d = *floats[3], *x = *floats[4];
        const int *y = *(int **)given[5], first_ = *(int *)given[6], steps_ = *(int *)given[7], n = *(int *)given[8];
        const float rate = *(float *)given[9];
        work = [=] { if (!launch(a, b, c, d, x, y, first_, steps_, n, rate, 0, -1)) abort(); };
    } else if (function != &driver::nothing) return driver::INVALID_HANDLE;
    if (driver::capturing) driver::capturing->push_back(work); else work();
    return driver::OK;
}
int cuStreamBeginCapture_v2(void *stream, int mode) {
    if (stream != &driver::stream || mode != 2) return driver::INVALID_VALUE;
    return driver::capturing = new std::vector<driver::Work>, driver::OK;
}
int cuStreamEndCapture(void *stream, void **graph) {
    if (stream != &driver::stream || !driver::capturing) return driver::INVALID_VALUE;
    *graph = new driver::Graph{*driver::capturing};
    return driver::capturing = nullptr, driver::OK;
}
int cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags) { return *made = graph, (int)flags; }
int cuGraphLaunch(void *graph, void *stream) {
    if (stream != &driver::stream) return driver::INVALID_HANDLE;
    for (auto &work : ((driver::Graph *)graph)->work) work();
    return driver::OK;
}
}
