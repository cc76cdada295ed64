/* Vectors of LANES floats, as many as a register of the processor holds: `compiled.py` says. In front of every source.
   A vector of two registers would be split by way of memory, at each operation. */
#include <stdint.h>
typedef float V __attribute__((vector_size(4 * LANES)));   /* 16 with AVX-512, 8 with AVX, 4 with NEON */
typedef int32_t I __attribute__((vector_size(4 * LANES)));

static inline V where(I mask, V a, V b) { return (V)((mask & (I)a) | (~mask & (I)b)); }

/* exp(x) for x <= 0, to float32's precision (Cephes expf): 2^n times a polynomial in what is left of x. */
static inline V exp_(V x) {
    const I tiny = x < -87.0f;                              /* its power is no normal number, and taken for 0 */
    x = where(tiny, x * 0, x);
    V n = x * 1.44269504f - 0.5f;
    I whole = __builtin_convertvector(n, I);                /* towards zero, so to the nearest from below zero */
    n = __builtin_convertvector(whole, V);
    V r = x - n * 0.693359375f + n * 2.12194440e-4f;
    V p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return where(tiny, x * 0, (p * r * r + r + 1) * (V)((whole + 127) << 23));
}
