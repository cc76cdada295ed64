/* An epoch of exact SGD that multiplies by no zero. Compiled at its first use by `compiled.py`, for these layers:
 *
 *     OWN      vectors of hidden units that a thread owns         WIDE     vectors of classes
 *     TILE     of them kept in registers at once                  CLASSES  classes
 *
 * A thread owns OWN * 16 hidden units from the pixels to the logits, so that its part of w1 lies in its own second-level
 * cache and nobody else writes to it. Once a step the threads meet, to add up their parts of the logits.
 */
#ifdef _WIN32
#define nap()
#else
#include <sched.h>
#define nap() sched_yield()
#endif
#include <math.h>

/* The non-zero pixels of the images, twice: by image, and within a block of images by pixel. */
struct index {
    const int32_t *image_start;   /* (images + 1): where an image's pixels begin */
    const uint16_t *pixel;        /* (non-zeros) */
    const float *value;
    const int32_t *block_start;   /* (blocks + 1): where a block's rows of w1 begin in `row` */
    const uint16_t *row;          /* a pixel that some image of the block uses */
    const int32_t *row_start;     /* where its images begin */
    const uint16_t *image;        /* (non-zeros), counted from the block's first */
    const float *by_row;
};

struct batch { int32_t first, images, first_block, blocks; };

struct model {                    /* of one thread */
    V *w1;                        /* (inputs, OWN) */
    V *b1;                        /* (OWN) */
    V *w2;                        /* (OWN * LANES, WIDE) */
    V *b2;                        /* (WIDE), the same in every thread; very negative where there is no class */
};

/* The activations and the thread's part of the logits of image `i`. The activations stay in registers. */
static inline void forward(const struct index *x, int i, const struct model *m, V *h, V *logits) {
    const int from = x->image_start[i], to = x->image_start[i + 1];
    for (int tile = 0; tile < OWN; tile += TILE) {
        V z[TILE];
        for (int v = 0; v < TILE; v++) z[v] = m->b1[tile + v];
        for (int k = from; k < to; k++) {
            const V *w = m->w1 + x->pixel[k] * OWN + tile;
            for (int v = 0; v < TILE; v++) z[v] += x->value[k] * w[v];
        }
        for (int v = 0; v < TILE; v++) h[tile + v] = where(z[v] <= 0, (V){0}, z[v]);
    }
    const float *a = (const float *)h;
    for (int c = 0; c < WIDE; c++) {
        V z[4] = {0};
        for (int j = 0; j < OWN * LANES; j += 4)
            for (int u = 0; u < 4; u++) z[u] += a[j + u] * m->w2[(j + u) * WIDE + c];
        logits[c] = (z[0] + z[1]) + (z[2] + z[3]);
    }
}

/* How many of the images a model that one thread owns gets right. `h`: (OWN). */
int right(const struct index *x, const int32_t *label, int images, const struct model *m, V *h) {
    int found = 0;
    for (int i = 0; i < images; i++) {
        V z[WIDE];
        forward(x, i, m, h, z);
        for (int c = 0; c < WIDE; c++) z[c] += m->b2[c];
        int best = 0;
        for (int c = 1; c < CLASSES; c++) best = ((float *)z)[c] > ((float *)z)[best] ? c : best;
        found += best == label[i];
    }
    return found;
}

/* Returns when thread `me` of `threads` has trained `steps` steps from batch `at`. `room`: as much as the first lines
 * below take; `hidden`: (largest batch, OWN); `logits`: (2, threads, largest batch, WIDE), shared; `arrived` is shared
 * and 0 when the first thread starts; `losses`: (steps), in nats, each before its update, or null. */
void epoch(const struct index *x, const int32_t *label, const struct batch *batches, int count, int at, int steps,
           int block, int largest, float rate, struct model *m, V *room, V *hidden, V *logits, int me,
           int threads, int64_t *arrived, float *losses) {
    V (*d2)[WIDE] = (void *)room, (*d1)[OWN] = (void *)(d2 + block);   /* gradients at logits and hidden units */
    V (*w2t)[OWN] = (void *)(d1 + block), (*dw2)[WIDE] = (void *)(w2t + CLASSES);
    const V none = {0};
    for (int step = 0; step < steps; step++, at = at + 1 == count ? 0 : at + 1) {
        const struct batch b = batches[at];
        V *parts = logits + (int64_t)(step & 1) * threads * largest * WIDE, *mine = parts + (int64_t)me * largest * WIDE;
        for (int i = 0; i < b.images; i++)
            forward(x, b.first + i, m, hidden + (int64_t)i * OWN, mine + i * WIDE);
        for (int j = 0; j < OWN * LANES; j++) {
            for (int c = 0; c < CLASSES; c++) ((float *)w2t[c])[j] = ((float *)(m->w2 + j * WIDE))[c];
            for (int c = 0; c < WIDE; c++) dw2[j][c] = none;
        }
        /* The threads meet. A thread can be one step ahead and no more, so two sets of logits are enough. */
        __atomic_add_fetch(arrived, 1, __ATOMIC_ACQ_REL);
        for (int spun = 0; __atomic_load_n(arrived, __ATOMIC_ACQUIRE) < (int64_t)threads * (step + 1);)
            if (++spun > 1000) nap();

        V db2[WIDE], db1[OWN];
        float loss = 0;
        for (int c = 0; c < WIDE; c++) db2[c] = none;
        for (int v = 0; v < OWN; v++) db1[v] = none;
        for (int k = 0; k < b.blocks; k++) {
            const int first = k * block, images = b.images - first < block ? b.images - first : block;
            for (int i = 0; i < images; i++) {
                /* Softmax, in every thread: that is quicker than to meet again. */
                V e[WIDE];
                float most = -1e38f, sum = 0;
                for (int c = 0; c < WIDE; c++) {
                    e[c] = m->b2[c];
                    for (int t = 0; t < threads; t++) e[c] += parts[((int64_t)t * largest + first + i) * WIDE + c];
                }
                for (int c = 0; c < CLASSES; c++) most = ((float *)e)[c] > most ? ((float *)e)[c] : most;
                const int truth = label[b.first + first + i];
                if (losses) loss += most - ((float *)e)[truth];
                for (int c = 0; c < WIDE; c++) e[c] = exp_(e[c] - most);
                for (int c = 0; c < CLASSES; c++) sum += ((float *)e)[c];
                if (losses) loss += logf(sum);
                const float scale = rate / b.images;
                for (int c = 0; c < WIDE; c++) d2[i][c] = e[c] * (scale / sum);
                ((float *)d2[i])[truth] -= scale;  /* the gradient at the logits, times the rate */
                for (int c = 0; c < WIDE; c++) db2[c] += d2[i][c];
                V *h = hidden + (int64_t)(first + i) * OWN;
                for (int v = 0; v < OWN; v++) {
                    V d = none;
                    for (int c = 0; c < CLASSES; c++) d += ((float *)d2[i])[c] * w2t[c][v];
                    d1[i][v] = where(h[v] > 0, d, none);
                    db1[v] += d1[i][v];
                }
            }
            for (int c = 0; c < WIDE; c++)
                for (int j = 0; j < OWN * LANES; j += 8) {
                    V d[8];
                    for (int u = 0; u < 8; u++) d[u] = dw2[j + u][c];
                    for (int i = 0; i < images; i++) {
                        const float *a = (const float *)(hidden + (int64_t)(first + i) * OWN) + j;
                        for (int u = 0; u < 8; u++) d[u] += a[u] * d2[i][c];
                    }
                    for (int u = 0; u < 8; u++) dw2[j + u][c] = d[u];
                }
            /* The gradient of w1, pixel by pixel, goes straight into w1: it is read and written once a block. */
            for (int r = x->block_start[b.first_block + k]; r < x->block_start[b.first_block + k + 1]; r++)
                for (int tile = 0; tile < OWN; tile += TILE) {
                    V *w = m->w1 + x->row[r] * OWN + tile, z[TILE];
                    for (int v = 0; v < TILE; v++) z[v] = w[v];
                    for (int e = x->row_start[r]; e < x->row_start[r + 1]; e++)
                        for (int v = 0; v < TILE; v++) z[v] -= x->by_row[e] * d1[x->image[e]][tile + v];
                    for (int v = 0; v < TILE; v++) w[v] = z[v];
                }
        }
        for (int j = 0; j < OWN * LANES; j++)
            for (int c = 0; c < WIDE; c++) m->w2[j * WIDE + c] -= dw2[j][c];
        for (int v = 0; v < OWN; v++) m->b1[v] -= db1[v];
        for (int c = 0; c < WIDE; c++) m->b2[c] -= db2[c];
        if (losses) losses[step] = loss / b.images;
    }
}
