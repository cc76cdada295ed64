/* An epoch of exact SGD around the library's matrix products of the first layer; the rest is written out here. Compiled
 * at its first use by `compiled.py`, for these layers:
 *
 *     HIDDEN   vectors of hidden units          WIDE     vectors of classes          CLASSES  classes
 *
 * A batch may come with fewer columns than there are pixels: its products then take those rows of w1 alone.
 */
#define UNITS (HIDDEN * LANES)

/* BLAS, by columns: c = alpha a b + beta c, with `ta` and `tb` saying what is transposed. */
typedef void sgemm_t(const char *ta, const char *tb, const int *m, const int *n, const int *k, const float *alpha,
                     const float *a, const int *lda, const float *b, const int *ldb, const float *beta, float *c,
                     const int *ldc);

struct batch {
    const float *x;               /* (images, columns) */
    int32_t first, images, columns;
    int32_t first_row;            /* where its list of rows begins; -1: the first `columns` rows of w1, as they lie */
};

struct rest {                     /* the non-zeros that no batch has in its columns, by image */
    const int32_t *start;         /* (images + 1) */
    const int32_t *row;           /* of w1 */
    const float *value;
};

/* Train `steps` steps from batch `at`. w1: (rows, HIDDEN), b1: (HIDDEN), w2: (UNITS, WIDE), b2: (WIDE).
 * `gathered`: as w1, written to; `hidden`: (largest batch, HIDDEN), written to, as is `room`. */
void epoch(sgemm_t *sgemm, const struct batch *batches, const int32_t *rows, const struct rest *rest,
           const int32_t *label, int count, int at, int steps, float rate, V *w1, V *b1, V *w2, V *b2, V *gathered,
           V *hidden, V *room) {
    V (*dw2)[WIDE] = (void *)room, (*w2t)[HIDDEN] = (void *)(dw2 + UNITS);
    const V none = {0};
    const int units = UNITS;
    const float one = 1, zero = 0, minus = -1;
    for (int step = 0; step < steps; step++, at = at + 1 == count ? 0 : at + 1) {
        const struct batch b = batches[at];
        V *w = w1;
        if (b.first_row >= 0) {
            w = gathered;
            for (int r = 0; r < b.columns; r++)
                for (int v = 0; v < HIDDEN; v++) w[r * HIDDEN + v] = w1[rows[b.first_row + r] * HIDDEN + v];
        }
        sgemm("N", "N", &units, &b.images, &b.columns, &one, (float *)w, &units, b.x, &b.columns, &zero,
              (float *)hidden, &units);
        for (int j = 0; j < UNITS; j++) {
            for (int c = 0; c < CLASSES; c++) ((float *)w2t[c])[j] = ((float *)(w2 + j * WIDE))[c];
            for (int c = 0; c < WIDE; c++) dw2[j][c] = none;
        }
        V db1[HIDDEN] = {0}, db2[WIDE] = {0};
        for (int first = 0; first < b.images; first += 8) {     /* eight images at a time, from a close cache */
            const int images = b.images - first < 8 ? b.images - first : 8;
            V d2[8][WIDE], a[8][HIDDEN];
            for (int i = 0; i < images; i++) {
                V *h = hidden + (int64_t)(first + i) * HIDDEN;
                for (int v = 0; v < HIDDEN; v++) a[i][v] = h[v] + b1[v];
                for (int k = rest->start[b.first + first + i]; k < rest->start[b.first + first + i + 1]; k++)
                    for (int v = 0; v < HIDDEN; v++) a[i][v] += rest->value[k] * w1[rest->row[k] * HIDDEN + v];
                for (int v = 0; v < HIDDEN; v++) a[i][v] = where(a[i][v] <= 0, none, a[i][v]);
                V e[WIDE];
                for (int c = 0; c < WIDE; c++) {
                    V z[4] = {b2[c]};
                    for (int j = 0; j < UNITS; j += 4)
                        for (int u = 0; u < 4; u++) z[u] += ((float *)a[i])[j + u] * w2[(j + u) * WIDE + c];
                    e[c] = (z[0] + z[1]) + (z[2] + z[3]);
                }
                float most = -1e38f, sum = 0;
                for (int c = 0; c < CLASSES; c++) most = ((float *)e)[c] > most ? ((float *)e)[c] : most;
                for (int c = 0; c < WIDE; c++) e[c] = exp_(e[c] - most);
                for (int c = 0; c < CLASSES; c++) sum += ((float *)e)[c];
                const float scale = rate / b.images;
                for (int c = 0; c < WIDE; c++) d2[i][c] = e[c] * (scale / sum);
                ((float *)d2[i])[label[b.first + first + i]] -= scale;  /* the gradient at the logits, times the rate */
                for (int c = 0; c < WIDE; c++) db2[c] += d2[i][c];
                for (int v = 0; v < HIDDEN; v++) {
                    V d = none;
                    for (int c = 0; c < CLASSES; c++) d += ((float *)d2[i])[c] * w2t[c][v];
                    h[v] = where(a[i][v] > 0, d, none);         /* in the place of the activations */
                    db1[v] += h[v];
                }
            }
            for (int c = 0; c < WIDE; c++)
                for (int j = 0; j < UNITS; j += 8) {
                    V d[8];
                    for (int u = 0; u < 8; u++) d[u] = dw2[j + u][c];
                    for (int i = 0; i < images; i++)
                        for (int u = 0; u < 8; u++) d[u] += ((float *)a[i])[j + u] * d2[i][c];
                    for (int u = 0; u < 8; u++) dw2[j + u][c] = d[u];
                }
        }
        /* The library subtracts the gradient of w1 from it, so that w1 is read and written once. */
        sgemm("N", "T", &units, &b.columns, &b.images, &minus, (float *)hidden, &units, b.x, &b.columns, &one,
              (float *)w, &units);
        if (b.first_row >= 0)
            for (int r = 0; r < b.columns; r++)
                for (int v = 0; v < HIDDEN; v++) w1[rows[b.first_row + r] * HIDDEN + v] = w[r * HIDDEN + v];
        for (int i = 0; i < b.images; i++)
            for (int k = rest->start[b.first + i]; k < rest->start[b.first + i + 1]; k++)
                for (int v = 0; v < HIDDEN; v++)
                    w1[rest->row[k] * HIDDEN + v] -= rest->value[k] * hidden[(int64_t)i * HIDDEN + v];
        for (int j = 0; j < UNITS; j++)
            for (int c = 0; c < WIDE; c++) w2[j * WIDE + c] -= dw2[j][c];
        for (int v = 0; v < HIDDEN; v++) b1[v] -= db1[v];
        for (int c = 0; c < WIDE; c++) b2[c] -= db2[c];
    }
}
