/* A step of skip-gram with negative sampling. Compiled at its first use by `compiled.py`; a word has VECTORS vectors.
 *
 * The gradients of a batch are taken at the same weights, and a row that is named several times moves by their sum.
 */
#include <math.h>

static inline float total(V v) {
    float sum = 0;
    for (int l = 0; l < LANES; l++) sum += v[l];
    return sum;
}

/* `centre`: (pairs); `target`: (pairs, width), the context first. `g`: (pairs, width) and `change`: (pairs, VECTORS) are
 * room. `by_centre` and `by_target`: the places of the batch sorted by the row that they name, or null: then every place
 * reads its row and writes it. */
void step(V *centres, V *targets, const int32_t *centre, const int32_t *target, const int32_t *by_centre,
          const int32_t *by_target, int pairs, int width, float rate, float *g, V *change) {
    for (int p = 0; p < pairs; p++) {
        const V *v = centres + (int64_t)centre[p] * VECTORS;
        V sum[VECTORS] = {0};
        for (int t = 0; t < width; t++) {
            const V *u = targets + (int64_t)target[p * width + t] * VECTORS;
            V score = {0};
            for (int d = 0; d < VECTORS; d++) score += v[d] * u[d];
            g[p * width + t] = rate * (1 / (1 + expf(-total(score))) - (t == 0));
            for (int d = 0; d < VECTORS; d++) sum[d] += g[p * width + t] * u[d];
        }
        for (int d = 0; d < VECTORS; d++) change[p * VECTORS + d] = sum[d];
    }
    if (!by_target) {
        for (int i = 0; i < pairs * width; i++)
            for (int d = 0; d < VECTORS; d++)
                targets[(int64_t)target[i] * VECTORS + d] -= g[i] * centres[(int64_t)centre[i / width] * VECTORS + d];
        for (int p = 0; p < pairs; p++)
            for (int d = 0; d < VECTORS; d++)
                centres[(int64_t)centre[p] * VECTORS + d] -= change[p * VECTORS + d];
        return;
    }
    for (int i = 0; i < pairs * width;) {                       /* all places of a row: it stays in registers */
        const int row = target[by_target[i]];
        V *w = targets + (int64_t)row * VECTORS, z[VECTORS];
        for (int d = 0; d < VECTORS; d++) z[d] = w[d];
        for (; i < pairs * width && target[by_target[i]] == row; i++)
            for (int d = 0; d < VECTORS; d++)
                z[d] -= g[by_target[i]] * centres[(int64_t)centre[by_target[i] / width] * VECTORS + d];
        for (int d = 0; d < VECTORS; d++) w[d] = z[d];
    }
    for (int i = 0; i < pairs;) {
        const int row = centre[by_centre[i]];
        V *w = centres + (int64_t)row * VECTORS, z[VECTORS];
        for (int d = 0; d < VECTORS; d++) z[d] = w[d];
        for (; i < pairs && centre[by_centre[i]] == row; i++)
            for (int d = 0; d < VECTORS; d++) z[d] -= change[by_centre[i] * VECTORS + d];
        for (int d = 0; d < VECTORS; d++) w[d] = z[d];
    }
}
