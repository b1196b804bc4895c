/* phases: the phases of an image side by side, and back. Phase (a, b) has every d-th row from row a and every e-th column
 * from column b. A convolution with dilations (d, e) is one without dilations over these phases (conv.c), as Winograd's
 * filtering requires.
 *
 * ints: back (0 or 1), d, e, rows and columns of a phase, pads before (rows, columns; only used if back is 0).
 * back = 0: in x[n][c][h][w]; out y[n][c][d * rows][e * columns]. Element (i, j) of phase (a, b) is
 *   x[a + d * i - pad][b + e * j - pad], or 0 outside x.
 * back = 1: in as y above; out as x above, of any size that the phases cover.
 * All float32.
 */
#include "elements.h"
#include "vec.h"

typedef struct {
    const ht_call *call;
    int64_t d, e, rows, columns, pad_y, pad_x; /* rows, columns: of a phase */
    int64_t height, width;                     /* of the image */
    int64_t planes, parts;
} job;

/* dst[0, columns) := every e-th element of row from position `at` on, and 0 outside [0, width). */
static void take(const job *j, const float *row, int64_t at, float *dst)
{
    const int64_t first = at < 0 ? ht_min64(ht_ceil_div(-at, j->e), j->columns) : 0;
    const int64_t last = ht_max64(first, ht_min64(j->columns, j->width > at ? ht_ceil_div(j->width - at, j->e) : 0));
    for (int64_t i = 0; i < first; i++)
        dst[i] = 0.0f;
    HT_LONG_FOR (i, last - first)
        dst[first + i] = row[at + (first + i) * j->e];
    for (int64_t i = last; i < j->columns; i++)
        dst[i] = 0.0f;
}

static void split_plane(const job *j, const float *x, float *y)
{
    for (int64_t a = 0; a < j->d; a++)
        for (int64_t i = 0; i < j->rows; i++, y += j->e * j->columns) {
            const int64_t row = a + j->d * i - j->pad_y;
            if (row < 0 || row >= j->height)
                HT_LONG_FOR (k, j->e * j->columns)
                    y[k] = 0.0f;
            else
                for (int64_t b = 0; b < j->e; b++)
                    take(j, x + row * j->width, b - j->pad_x, y + b * j->columns);
        }
}

static void join_plane(const job *j, const float *y, float *x)
{
    for (int64_t row = 0; row < j->height; row++, x += j->width) {
        const float *from = y + (row % j->d * j->rows + row / j->d) * j->e * j->columns;
        for (int64_t b = 0; b < ht_min64(j->e, j->width); b++)
            HT_LONG_FOR (k, ht_ceil_div(j->width - b, j->e))
                x[b + k * j->e] = from[b * j->columns + k];
    }
}

static void phases_part(void *context, int64_t part, int thread)
{
    const job *j = (const job *)context;
    const float *from = (const float *)j->call->in[0]->data;
    float *to = (float *)j->call->out[0]->data;
    const int64_t image = j->height * j->width, split = j->d * j->rows * j->e * j->columns;
    const int64_t end = ht_part_begin(j->planes, j->parts, part + 1);
    (void)thread;
    for (int64_t plane = ht_part_begin(j->planes, j->parts, part); plane < end; plane++)
        if (j->call->ints[0])
            join_plane(j, from + plane * split, to + plane * image);
        else
            split_plane(j, from + plane * image, to + plane * split);
}

int HT_KERNEL(phases)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_out != 1 || call->num_ints != 7)
        return HT_ERR_OPERAND;
    const int64_t back = call->ints[0];
    const ht_tensor *split = back ? call->in[0] : call->out[0], *image = back ? call->out[0] : call->in[0];
    if (split->dtype != HT_FLOAT32 || image->dtype != HT_FLOAT32)
        return HT_ERR_DTYPE;
    for (int i = 1; i < 7; i++)
        if (call->ints[i] < (i < 5) || call->ints[i] > HT_MAX_WINDOW)
            return HT_ERR_OPERAND;
    job j = {.call = call, .d = call->ints[1], .e = call->ints[2], .rows = call->ints[3], .columns = call->ints[4],
             .pad_y = call->ints[5], .pad_x = call->ints[6]};
    if ((back != 0 && back != 1) || split->ndim != 4 || image->ndim != 4 || split->dims[0] != image->dims[0] ||
        split->dims[1] != image->dims[1] || split->dims[2] != j.d * j.rows || split->dims[3] != j.e * j.columns)
        return HT_ERR_OPERAND;
    j.height = image->dims[2];
    j.width = image->dims[3];
    if (back && (j.height > split->dims[2] || j.width > split->dims[3]))
        return HT_ERR_OPERAND;
    j.planes = image->dims[0] * image->dims[1];
    if (call->out[0]->size == 0)
        return HT_OK;
    j.parts = ht_parts(call, j.planes, 2 * ((double)split->size + (double)image->size));
    ht_parallel(call->team, j.parts, phases_part, &j);
    return HT_OK;
}
