/* Recurrent layers of float32: lstm, gru, rnn, over all time steps and both directions in one call.
 *
 * Beforehand, one matrix product over all steps has computed the input's share of the gates, x * W' + bias. Each step
 * computes h * R' (H x gates * H; R is packed once; a vector product for up to three sequences, tiles of gemm_micro.c
 * for more) and the cell: gates, activations and the new state in one pass over H, in registers. At batch size 1 the
 * time is that of reading R once per step, 4 * gates * H^2 bytes, plus the activations.
 *
 * in: z[rows][dirs][gates][H], rows by (step, sequence), or (sequence, step) if batch_first;
 *   r packed by pack_b with ints (dirs * gates, H, H, 1); lengths int32[batch] or NULL (all `steps`);
 *   h0 or NULL (zeros); then
 *   lstm: c0 or NULL; peepholes[dirs][3][H] (input, output, forget) or NULL; scales or NULL. Gates: input, output,
 *   forget, cell. With scales[dirs][4][H], r holds bytes, packed by pack_quads with ints (dirs * 4, H, H), and each
 *   step rounds the states of all sequences to uint8 as dynamic_quantize does; the product has exact sums.
 *   gru: bias[dirs][H] of the hidden gate's recurrent product or NULL (linear_before_reset only). Gates: update, reset,
 *   hidden.
 * out: y, the state at each step (zero past the end of a sequence), [steps][dirs][batch][H], or [batch][steps][dirs][H]
 *   if batch_first; last h; lstm: last c. States: [dirs][batch][H], or [batch][dirs][H].
 * ints: steps, batch, H, dirs, reversed (the first direction runs backward; the second always does), batch_first,
 *   option (lstm: input_forget; gru: linear_before_reset; rnn: 0), then per direction the codes of the activations:
 *   lstm 3, gru 2, rnn 1.
 * floats: clip of the activations' arguments (infinity: none), then per direction and activation its two parameters.
 * scratch: 4 * batch * (gates + 2) * 16 * ceil(H / 16) bytes.
 */
#include "gemm_micro.h"
#include "integer_micro.h"
#include "rows.h"
#include "vmath.h"

#define CODE(name) name,
enum { HT_RECURRENT_ACTIVATIONS(CODE) NUM_ACTIVATIONS };
#undef CODE

enum { LSTM, GRU, RNN };
enum { MAX_FUNCTIONS = 3 }; /* activations of a direction: lstm has the most */

typedef struct {
    int code;
    float p0, p1;
} activation;

typedef struct {
    int64_t steps, batch, hidden, padded, dirs; /* padded: H in whole panels */
    int gates, num_functions, batch_first, option;
    float clip;
    activation functions[MAX_FUNCTIONS]; /* of the current direction */
    const float *peepholes, *bias;       /* of the current direction, or NULL */
    float *gate_sums;                    /* [batch][gates][padded]: h * R' */
    float *h;                            /* [batch][padded] */
    float *reset_h;                      /* [batch][padded]: gru's reset gate times h; lstm's h in bytes: byte_row */
    const float *scales;                 /* of the current direction's R in bytes, or NULL */
} layer;

/* One sequence at one step. `z`: the input's share of the gates, `sums`: h * R'; `c`, `h`: its state, overwritten; `y`:
 * a second copy of the state. `plain`: default functions, no clip and no option, as compile-time facts. */
typedef struct {
    const float *z;
    float *sums, *c, *h, *y, *reset_h;
} cell;

/* Instruction sets for bytes link these. */
#define ht_lstm_row HT_SHARED(lstm_row)
void ht_lstm_row(const layer *l, const cell *at, int plain);
#define ht_gru_gates_row HT_SHARED(gru_gates_row)
void ht_gru_gates_row(const layer *l, const cell *at, int plain);
#define ht_gru_row HT_SHARED(gru_row)
void ht_gru_row(const layer *l, const cell *at, int plain);
#define ht_rnn_row HT_SHARED(rnn_row)
void ht_rnn_row(const layer *l, const cell *at, int plain);
#define ht_recurrent_multiply HT_SHARED(recurrent_multiply)
void ht_recurrent_multiply(const float *h, int64_t h_row, int64_t rows, int64_t k, const float *r, int64_t panels,
                           float *sums, int64_t sums_row);

#if HT_DEFINES_SHARED
HT_INLINE vf activation_of(const int code, const activation *f, vf v)
{
    const vf zero = vf_set1(0.0f), one = vf_set1(1.0f), a = vf_set1(f->p0), b = vf_set1(f->p1);
    switch (code) {
    case RELU: return vf_max(zero, v);
    case TANH: return vf_tanh(v);
    case SIGMOID: return vf_sigmoid(v);
    case AFFINE: return vf_fma(a, v, b);
    case LEAKY_RELU: return vf_select(vf_lt(v, zero), a * v, v);
    case THRESHOLDED_RELU: return vf_select(vf_lt(a, v), v, zero);
    case SCALED_TANH: return a * vf_tanh(b * v);
    case HARD_SIGMOID: return vf_min(one, vf_max(zero, vf_fma(a, v, b)));
    case ELU: return vf_select(vf_lt(v, zero), a * vf_expm1(v), v);
    case SOFTSIGN: return vf_softsign(v);
    default: return vf_softplus(v);
    }
}

/* One copy for all activations that are not known here: several would take long to compile. */
static __attribute__((noinline)) vf any_activation(int code, const activation *f, vf v)
{
    return activation_of(code, f, v);
}

HT_INLINE vf activate(const int plain, const int code, const activation *f, vf v)
{
    return plain ? activation_of(code, f, v) : any_activation(code, f, v);
}

HT_INLINE vf clipped(const layer *l, const int plain, vf v)
{
    return plain ? v : vf_min(vf_set1(l->clip), vf_max(vf_set1(-l->clip), v));
}

HT_INLINE vf load(const float *p, int64_t n, const int full) { return full ? vf_load(p) : vf_load_n(p, n); }
HT_INLINE void store(float *p, int64_t n, const int full, vf v)
{
    if (full)
        vf_store(p, v);
    else
        vf_store_n(p, n, v);
}

HT_INLINE vf gate_of(const layer *l, const cell *at, int gate, int64_t j, int64_t n, const int full)
{
    return load(at->z + gate * l->hidden + j, n, full) + vf_load(at->sums + gate * l->padded + j);
}

HT_INLINE void lstm_block(const layer *l, const cell *at, int64_t j, int64_t n, const int full, const int plain)
{
    const activation *f = l->functions;
    const int f0 = plain ? SIGMOID : f[0].code, f1 = plain ? TANH : f[1].code, f2 = plain ? TANH : f[2].code;
    const float *p = plain ? NULL : l->peepholes;
    vf c = load(at->c + j, n, full);
    vf in = gate_of(l, at, 0, j, n, full), out = gate_of(l, at, 1, j, n, full);
    vf forget = gate_of(l, at, 2, j, n, full);
    const vf candidate = activate(plain, f1, f + 1, clipped(l, plain, gate_of(l, at, 3, j, n, full)));
    if (p) {
        in = vf_fma(load(p + j, n, full), c, in);
        forget = vf_fma(load(p + 2 * l->hidden + j, n, full), c, forget);
    }
    in = activate(plain, f0, f, clipped(l, plain, in));
    if (!plain && l->option)
        forget = vf_set1(1.0f) - in;
    else
        forget = activate(plain, f0, f, clipped(l, plain, forget));
    c = vf_fma(forget, c, in * candidate);
    if (p)
        out = vf_fma(load(p + l->hidden + j, n, full), c, out);
    out = activate(plain, f0, f, clipped(l, plain, out));
    const vf h = out * activate(plain, f2, f + 2, c);
    store(at->c + j, n, full, c);
    store(at->h + j, n, full, h);
    store(at->y + j, n, full, h);
}

/* First half of a gru step without linear_before_reset: the update gate, kept in `sums`, and reset * h. */
HT_INLINE void gru_gates_block(const layer *l, const cell *at, int64_t j, int64_t n, const int full, const int plain)
{
    const activation *f = l->functions;
    const int f0 = plain ? SIGMOID : f[0].code;
    const vf update = activate(plain, f0, f, clipped(l, plain, gate_of(l, at, 0, j, n, full)));
    const vf reset = activate(plain, f0, f, clipped(l, plain, gate_of(l, at, 1, j, n, full)));
    vf_store(at->sums + j, update);
    store(at->reset_h + j, n, full, reset * load(at->h + j, n, full));
}

HT_INLINE void gru_block(const layer *l, const cell *at, int64_t j, int64_t n, const int full, const int plain)
{
    const activation *f = l->functions;
    const int f0 = plain ? SIGMOID : f[0].code, f1 = plain ? TANH : f[1].code;
    const vf h = load(at->h + j, n, full);
    vf update, candidate;
    if (l->option) {
        update = activate(plain, f0, f, clipped(l, plain, gate_of(l, at, 0, j, n, full)));
        const vf reset = activate(plain, f0, f, clipped(l, plain, gate_of(l, at, 1, j, n, full)));
        vf product = vf_load(at->sums + 2 * l->padded + j);
        if (l->bias)
            product += load(l->bias + j, n, full);
        candidate = vf_fma(reset, product, load(at->z + 2 * l->hidden + j, n, full));
    } else {
        update = vf_load(at->sums + j);
        candidate = gate_of(l, at, 2, j, n, full);
    }
    candidate = activate(plain, f1, f + 1, clipped(l, plain, candidate));
    const vf next = vf_fma(update, h - candidate, candidate); /* (1 - update) * candidate + update * h */
    store(at->h + j, n, full, next);
    store(at->y + j, n, full, next);
}

HT_INLINE void rnn_block(const layer *l, const cell *at, int64_t j, int64_t n, const int full, const int plain)
{
    const activation *f = l->functions;
    const vf next = activate(plain, plain ? TANH : f->code, f, clipped(l, plain, gate_of(l, at, 0, j, n, full)));
    store(at->h + j, n, full, next);
    store(at->y + j, n, full, next);
}

#define ROW(name)                                                                                                     \
    void ht_##name##_row(const layer *l, const cell *at, int plain)                                                   \
    {                                                                                                                 \
        int64_t j = 0;                                                                                                \
        if (plain) {                                                                                                  \
            for (; j + VF_LANES <= l->hidden; j += VF_LANES)                                                          \
                name##_block(l, at, j, VF_LANES, 1, 1);                                                               \
            if (j < l->hidden)                                                                                        \
                name##_block(l, at, j, l->hidden - j, 0, 1);                                                          \
        } else {                                                                                                      \
            for (; j < l->hidden; j += VF_LANES)                                                                      \
                name##_block(l, at, j, ht_min64(VF_LANES, l->hidden - j), 0, 0);                                      \
        }                                                                                                             \
    }
ROW(lstm)
ROW(gru_gates)
ROW(gru)
ROW(rnn)

/* `panels` panels of packed R times one to three rows of h. Their accumulators, panels * vectors * unroll per row, hide
 * the latency of the multiply-adds; h is broadcast once for all panels. */
HT_INLINE void vector_panels(const float *h, int64_t h_row, int64_t k, const float *r, float *sums, int64_t sums_row,
                             const int rows, const int panels, const int unroll)
{
    enum { VECTORS = HT_PANEL / VF_LANES };
    const int64_t panel = k * HT_PANEL;
    vf acc[2][3][4 * VECTORS];
#pragma GCC unroll 2
    for (int u = 0; u < unroll; u++)
#pragma GCC unroll 3
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
            for (int v = 0; v < panels * VECTORS; v++)
                acc[u][i][v] = vf_set1(0.0f);
    int64_t at = 0;
    for (; at + unroll <= k; at += unroll)
#pragma GCC unroll 2
        for (int u = 0; u < unroll; u++)
#pragma GCC unroll 16
            for (int v = 0; v < panels * VECTORS; v++) {
                const vf b = vf_load(r + v / VECTORS * panel + (at + u) * HT_PANEL + v % VECTORS * VF_LANES);
#pragma GCC unroll 3
                for (int i = 0; i < rows; i++)
                    acc[u][i][v] = vf_fma(vf_set1(h[i * h_row + at + u]), b, acc[u][i][v]);
            }
    for (; at < k; at++)
#pragma GCC unroll 16
        for (int v = 0; v < panels * VECTORS; v++) {
            const vf b = vf_load(r + v / VECTORS * panel + at * HT_PANEL + v % VECTORS * VF_LANES);
#pragma GCC unroll 3
            for (int i = 0; i < rows; i++)
                acc[0][i][v] = vf_fma(vf_set1(h[i * h_row + at]), b, acc[0][i][v]);
        }
#pragma GCC unroll 3
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
        for (int v = 0; v < panels * VECTORS; v++) {
            if (unroll == 2)
                acc[0][i][v] += acc[1][i][v];
            vf_store(sums + i * sums_row + v * VF_LANES, acc[0][i][v]);
        }
}

/* Panels at a time and their unrolling, for one row and for two or three rows: they fill the register file. */
#if VF_LANES == 16
#define ONE_ROW 4, 2
#define ONE_ROW_PANELS 4
#define FEW_ROWS_PANELS 4
#elif VF_LANES == 8
#define ONE_ROW 4, 1
#define ONE_ROW_PANELS 4
#define FEW_ROWS_PANELS 2
#else
#define ONE_ROW 2, 1
#define ONE_ROW_PANELS 2
#define FEW_ROWS_PANELS 1
#endif

/* sums[rows][panels * HT_PANEL] = h[rows][k] times `panels` panels of R. */
void ht_recurrent_multiply(const float *h, int64_t h_row, int64_t rows, int64_t k, const float *r, int64_t panels,
                           float *sums, int64_t sums_row)
{
    if (rows > 3) {
        const int64_t blocks = ht_max64(1, ht_ceil_div(k, HT_BLOCK_K)), step = ht_ceil_div(k, blocks);
        for (int64_t k0 = 0, block = 0; block < blocks; block++, k0 += step) {
            const ht_tile t = {.a = h + k0, .a_row = h_row, .a_k = 1, .b = r + k0 * HT_PANEL, .b_k = HT_PANEL,
                               .b_panel = k * HT_PANEL, .c = sums, .c_row = sums_row, .k = ht_min64(step, k - k0),
                               .accumulate = block > 0};
            ht_gemm_block(&t, 0, rows, panels * HT_PANEL);
        }
        return;
    }
    const int64_t panel = k * HT_PANEL;
    int64_t p = 0;
    if (rows == 1) {
        for (; p + ONE_ROW_PANELS <= panels; p += ONE_ROW_PANELS)
            vector_panels(h, h_row, k, r + p * panel, sums + p * HT_PANEL, sums_row, 1, ONE_ROW);
        for (; p < panels; p++)
            vector_panels(h, h_row, k, r + p * panel, sums + p * HT_PANEL, sums_row, 1, 1, 2);
    } else if (rows == 2) {
        for (; p + FEW_ROWS_PANELS <= panels; p += FEW_ROWS_PANELS)
            vector_panels(h, h_row, k, r + p * panel, sums + p * HT_PANEL, sums_row, 2, FEW_ROWS_PANELS, 1);
        for (; p < panels; p++)
            vector_panels(h, h_row, k, r + p * panel, sums + p * HT_PANEL, sums_row, 2, 1, 1);
    } else {
        for (; p + FEW_ROWS_PANELS <= panels; p += FEW_ROWS_PANELS)
            vector_panels(h, h_row, k, r + p * panel, sums + p * HT_PANEL, sums_row, 3, FEW_ROWS_PANELS, 1);
        for (; p < panels; p++)
            vector_panels(h, h_row, k, r + p * panel, sums + p * HT_PANEL, sums_row, 3, 1, 1);
    }
}

#endif

/* A row of h in bytes; it takes 4 bytes for each element that the row is wide. */
typedef struct {
    uint8_t *quads, *bytes;
    int32_t *sum;
} byte_row;

static byte_row byte_row_of(const layer *l, int64_t row)
{
    uint8_t *at = (uint8_t *)(l->reset_h + row * l->padded);
    _Static_assert(HT_A_QUAD <= 2 * HT_QUAD, "quads take half of the row");
    return (byte_row){at, at + 2 * l->padded, (int32_t *)(void *)(at + 3 * l->padded)};
}

/* Rounds h of all sequences to bytes with one scale, which it returns, and one zero point. */
static float to_bytes(const layer *l, int32_t *zero)
{
    float high = 0, low = 0;
    for (int64_t row = 0; row < l->batch; row++) {
        const float most = ht_row_max(l->h + row * l->padded, l->hidden, 1), least = ht_row_min(l->h + row * l->padded, l->hidden);
        high = most < high ? high : most;
        low = least > low ? low : least;
    }
    const float scale = high == low ? 1.0f : (high - low) / 255.0f, start = -low / scale;
    const float z = start < 255 ? start > 0 ? rintf(start) : 0 : 255; /* NaN: 255 */
    *zero = (int32_t)z;
    for (int64_t row = 0; row < l->batch; row++) {
        const byte_row to = byte_row_of(l, row);
        const float *h = l->h + row * l->padded;
        for (int64_t i = 0; i < l->hidden; i += VF_LANES) {
            int32_t whole[VF_LANES];
            const int64_t left = ht_min64(VF_LANES, l->hidden - i);
            const vf q = vf_round(vf_load_n(h + i, left) / vf_set1(scale));
            const vf inside = vf_min(vf_max(q, vf_set1(-z)), vf_set1(255.0f - z)); /* in this order NaN is 0 */
            vf_store((float *)(void *)whole, vi_as_float(vf_to_int(inside + vf_set1(z))));
            for (int64_t j = 0; j < left; j++)
                to.bytes[i + j] = (uint8_t)whole[j];
        }
        *to.sum = ht_prepare_quads(to.bytes, l->hidden, 0, 0, 0, to.quads);
    }
    return scale;
}

/* sums[batch][panels * HT_PANEL] = h in bytes times `panels` panels of R, from panel `first` of the direction on. */
static void multiply_bytes(const layer *l, float scale, int32_t zero, const uint8_t *r, int64_t first, int64_t panels,
                           float *sums, int64_t sums_row)
{
    const int64_t quads = ht_quads(l->hidden), panel_bytes = (quads + 2) * HT_PANEL_BYTES;
    const int64_t of_gate = l->padded / HT_PANEL;
    for (int64_t row = 0; row < l->batch; row += HT_INTEGER_ROWS)
        for (int64_t p = 0; p < panels; p += HT_INTEGER_PANELS) {
            int32_t c[HT_INTEGER_ROWS * HT_INTEGER_WIDTH];
            const int64_t rows = ht_min64(HT_INTEGER_ROWS, l->batch - row), wide = ht_min64(HT_INTEGER_PANELS, panels - p);
            const uint8_t *panel = r + (first + p) * panel_bytes;
            const ht_integer_tile t = {.a = byte_row_of(l, row).quads, .a_row = l->padded * (int64_t)sizeof(float),
                                       .b = panel, .b_panel = panel_bytes, .quads = quads, .c = c};
            for (int64_t v = 0; v < wide; v++) {
                uint32_t of_columns[2][HT_PANEL];
                memcpy(of_columns, panel + v * panel_bytes + quads * HT_PANEL_BYTES, sizeof of_columns);
                for (int64_t i = 0; i < rows; i++) {
                    const uint32_t sum = (uint32_t)*byte_row_of(l, row + i).sum - (uint32_t)l->hidden * (uint32_t)zero;
                    uint32_t *start = (uint32_t *)c + i * HT_INTEGER_WIDTH + v * HT_PANEL;
                    for (int64_t j = 0; j < HT_PANEL; j++)
                        start[j] = 0u - (uint32_t)zero * of_columns[0][j] - sum * (uint32_t)ht_zero_point((int32_t)of_columns[1][j]);
                }
            }
            ht_integer_rows(ht_product_tiles, &t, rows, wide * HT_PANEL);
            for (int64_t v = 0; v < wide; v++) {
                const int64_t gate = (first + p + v) / of_gate, column = (first + p + v) % of_gate * HT_PANEL;
                const float *scales = l->scales + gate * l->hidden + column;
                const int64_t columns = ht_min64(HT_PANEL, l->hidden - column);
                for (int64_t i = 0; i < rows; i++) {
                    const int32_t *from = c + i * HT_INTEGER_WIDTH + v * HT_PANEL;
                    float *to = sums + (row + i) * sums_row + (p + v) * HT_PANEL;
                    for (int64_t j = 0; j < columns; j++)
                        to[j] = (float)from[j] * (scale * scales[j]);
                    for (int64_t j = columns; j < HT_PANEL; j++)
                        to[j] = 0;
                }
            }
        }
}

/* The same split over a team, if any, into whole groups of panels, so that the order of each panel's sums does not
 * change. */
typedef struct {
    const layer *l;
    const float *h;
    const void *r; /* of the direction: float32 or bytes */
    float *sums, scale;
    int32_t zero;
    int64_t panels, parts;
} step_product;

enum { GROUP = 4 }; /* panels; a multiple of ONE_ROW_PANELS and FEW_ROWS_PANELS */

static void multiply_part(void *context, int64_t part, int thread)
{
    (void)thread;
    const step_product *p = (const step_product *)context;
    const int64_t groups = ht_ceil_div(p->panels, GROUP), first = ht_part_begin(groups, p->parts, part) * GROUP;
    const int64_t last = ht_min64(p->panels, ht_part_begin(groups, p->parts, part + 1) * GROUP);
    const layer *l = p->l;
    if (l->scales)
        multiply_bytes(l, p->scale, p->zero, p->r, first, last - first, p->sums + first * HT_PANEL, l->gates * l->padded);
    else
        ht_recurrent_multiply(p->h, l->padded, l->batch, l->hidden, (const float *)p->r + first * l->hidden * HT_PANEL,
                              last - first, p->sums + first * HT_PANEL, l->gates * l->padded);
}

static void multiply_split(ht_team *team, int64_t parts, const layer *l, const float *h, const void *r, int64_t panels,
                           float *sums)
{
    step_product p = {.l = l, .h = h, .r = r, .sums = sums, .panels = panels,
                      .parts = ht_min64(parts, ht_ceil_div(panels, GROUP))};
    if (l->scales)
        p.scale = to_bytes(l, &p.zero);
    ht_parallel(team, p.parts, multiply_part, &p);
}

static int is_plain(const layer *l, int kind)
{
    static const int defaults[3][MAX_FUNCTIONS] = {{SIGMOID, TANH, TANH}, {SIGMOID, TANH}, {TANH}};
    if (l->clip < INFINITY || (kind == LSTM && (l->peepholes || l->option)))
        return 0;
    for (int i = 0; i < l->num_functions; i++)
        if (l->functions[i].code != defaults[kind][i])
            return 0;
    return 1;
}

static int fits(const ht_tensor *x, int32_t dtype, int64_t size, int optional)
{
    return x ? x->dtype == dtype && x->size == size : optional;
}

/* The whole call. Either its directions run on different threads, or each step's product is split over threads. */
typedef struct {
    const ht_call *call;
    layer l; /* except for the members of one direction */
    int64_t longest, step_parts;
} job_of_run;

/* Runs direction d over all steps. team: for the products, or NULL. */
HT_INLINE void walk(const job_of_run *job, const int kind, int64_t d, float *scratch, ht_team *team)
{
    const int num_functions = kind == LSTM ? 3 : kind == GRU ? 2 : 1, gates = kind == LSTM ? 4 : kind == GRU ? 3 : 1;
    const ht_call *call = job->call;
    layer l = job->l;
    const int64_t *ints = call->ints, batch = l.batch, hidden = l.hidden, dirs = l.dirs, longest = job->longest;
    const ht_tensor *z = call->in[0], *r = call->in[1], *h0 = call->in[3], *c0 = kind == LSTM ? call->in[4] : NULL;
    const ht_tensor *peepholes = kind == LSTM ? call->in[5] : NULL, *bias = kind == GRU ? call->in[4] : NULL;
    const ht_tensor *scales = kind == LSTM ? call->in[6] : NULL;
    const int32_t *length = call->in[2] ? call->in[2]->data : NULL;
    float *y = call->out[0]->data, *last_h = call->out[1]->data, *last_c = kind == LSTM ? call->out[2]->data : NULL;
    l.gate_sums = scratch;
    l.h = l.gate_sums + batch * gates * l.padded;
    l.reset_h = l.h + batch * l.padded;
    const int64_t panels = l.padded / HT_PANEL, sums_row = gates * l.padded;
    const int64_t state_step = l.batch_first ? dirs * hidden : hidden; /* from one sequence to the next */
    const size_t state_bytes = (size_t)hidden * sizeof(float);
    const int reversed = d > 0 || ints[4] != 0;
    const char *weights = (const char *)r->data + r->size / dirs * d * (scales ? 1 : (int64_t)sizeof(float));
    const int64_t state = l.batch_first ? d * hidden : d * batch * hidden;
    for (int i = 0; i < num_functions; i++) {
        const int64_t at = d * num_functions + i;
        l.functions[i] = (activation){(int)ints[7 + at], (float)call->floats[1 + 2 * at],
                                      (float)call->floats[2 + 2 * at]};
    }
    l.peepholes = peepholes ? (const float *)peepholes->data + d * 3 * hidden : NULL;
    l.bias = bias ? (const float *)bias->data + d * hidden : NULL;
    l.scales = scales ? (const float *)scales->data + d * gates * hidden : NULL;
    const int plain = is_plain(&l, kind);
    for (int64_t b = 0; b < batch; b++) {
        const int64_t at = state + b * state_step;
        if (h0)
            memcpy(l.h + b * l.padded, (const float *)h0->data + at, state_bytes);
        else
            memset(l.h + b * l.padded, 0, state_bytes);
        memset(l.reset_h + b * l.padded, 0, state_bytes); /* rows of empty sequences take part in the product too */
        if (c0)
            memcpy(last_c + at, (const float *)c0->data + at, state_bytes);
        else if (kind == LSTM)
            memset(last_c + at, 0, state_bytes);
    }
    int64_t left = HT_PACE;
    for (int64_t step = 0; step < longest; step++) {
        if (ht_paced_stop(&left, batch * gates * l.padded * hidden))
            return;
        const int two_products = kind == GRU && !l.option;
        if (step == 0 && !h0)
            memset(l.gate_sums, 0, (size_t)(batch * sums_row) * sizeof(float));
        else
            multiply_split(team, job->step_parts, &l, l.h, weights, (two_products ? 2 : gates) * panels, l.gate_sums);
        for (int half = two_products ? 0 : 1; half < 2; half++) {
            for (int64_t b = 0; b < batch; b++) {
                if (length && step >= length[b])
                    continue;
                const int64_t t = !reversed ? step : (length ? length[b] : l.steps) - 1 - step;
                const int64_t row = l.batch_first ? b * l.steps + t : t * batch + b;
                const int64_t to = l.batch_first ? row * dirs + d : (t * dirs + d) * batch + b;
                const cell at = {.z = (const float *)z->data + (row * dirs + d) * gates * hidden,
                                 .sums = l.gate_sums + b * sums_row,
                                 .c = kind == LSTM ? last_c + state + b * state_step : NULL,
                                 .h = l.h + b * l.padded, .y = y + to * hidden, .reset_h = l.reset_h + b * l.padded};
                if (kind == LSTM)
                    ht_lstm_row(&l, &at, plain);
                else if (kind == RNN)
                    ht_rnn_row(&l, &at, plain);
                else if (half == 0)
                    ht_gru_gates_row(&l, &at, plain);
                else
                    ht_gru_row(&l, &at, plain);
            }
            if (half == 0 && !(step == 0 && !h0))
                multiply_split(team, job->step_parts, &l, l.reset_h, (const float *)weights + 2 * l.padded * hidden, panels,
                               l.gate_sums + 2 * l.padded);
        }
    }
    for (int64_t b = 0; b < batch; b++) {
        memcpy(last_h + state + b * state_step, l.h + b * l.padded, state_bytes);
        for (int64_t t = length ? length[b] : l.steps; t < l.steps; t++) {
            const int64_t to = l.batch_first ? (b * l.steps + t) * dirs + d : (t * dirs + d) * batch + b;
            memset(y + to * hidden, 0, state_bytes);
        }
    }
}

#define DIRECTION(name, kind)                                                                     \
    static void name(void *context, int64_t part, int thread)                                     \
    {                                                                                             \
        const job_of_run *job = (const job_of_run *)context;                                      \
        walk(job, kind, part, (float *)ht_scratch(job->call, thread), NULL);                      \
    }

HT_INLINE int run(const ht_call *call, const int kind, void (*direction)(void *, int64_t, int))
{
    const int num_functions = kind == LSTM ? 3 : kind == GRU ? 2 : 1, gates = kind == LSTM ? 4 : kind == GRU ? 3 : 1;
    const int num_in = kind == LSTM ? 7 : kind == GRU ? 5 : 4;
    if (call->num_in != num_in || call->num_out != (kind == LSTM ? 3 : 2) || call->num_ints < 7)
        return HT_ERR_OPERAND;
    const int64_t *ints = call->ints;
    layer l = {.steps = ints[0], .batch = ints[1], .hidden = ints[2], .dirs = ints[3], .gates = gates,
               .num_functions = num_functions, .batch_first = ints[5] != 0, .option = ints[6] != 0};
    if (l.steps < 0 || l.batch < 0 || l.hidden < 1 || l.dirs < 1 || l.dirs > 2)
        return HT_ERR_OPERAND;
    const int64_t batch = l.batch, hidden = l.hidden, dirs = l.dirs, states = dirs * batch * hidden;
    l.padded = ht_ceil_div(hidden, HT_PANEL) * HT_PANEL;
    if (call->num_ints != 7 + dirs * num_functions || call->num_floats != 1 + 2 * dirs * num_functions)
        return HT_ERR_OPERAND;
    for (int64_t i = 0; i < dirs * num_functions; i++)
        if (ints[7 + i] < 0 || ints[7 + i] >= NUM_ACTIVATIONS)
            return HT_ERR_OPERAND;
    const ht_tensor *z = call->in[0], *r = call->in[1], *lengths = call->in[2], *h0 = call->in[3];
    const ht_tensor *c0 = kind == LSTM ? call->in[4] : NULL, *peepholes = kind == LSTM ? call->in[5] : NULL;
    const ht_tensor *bias = kind == GRU ? call->in[4] : NULL, *scales = kind == LSTM ? call->in[6] : NULL;
    if (!fits(z, HT_FLOAT32, l.steps * states * gates, 0) || !fits(scales, HT_FLOAT32, dirs * gates * hidden, 1) ||
        !(scales ? fits(r, HT_UINT8, dirs * gates * ht_quad_bytes(hidden, hidden), 0)
                 : fits(r, HT_FLOAT32, dirs * gates * l.padded * hidden, 0)) || !fits(lengths, HT_INT32, batch, 1) ||
        !fits(h0, HT_FLOAT32, states, 1) || !fits(c0, HT_FLOAT32, states, 1) ||
        !fits(peepholes, HT_FLOAT32, dirs * 3 * hidden, 1) || !fits(bias, HT_FLOAT32, dirs * hidden, 1) ||
        !fits(call->out[0], HT_FLOAT32, l.steps * states, 0) || !fits(call->out[1], HT_FLOAT32, states, 0) ||
        (kind == LSTM && !fits(call->out[2], HT_FLOAT32, states, 0)) ||
        call->scratch_bytes < ht_scratch_recurrent(batch, gates, hidden))
        return HT_ERR_OPERAND;
    const int32_t *length = lengths ? lengths->data : NULL;
    int64_t longest = lengths ? 0 : l.steps;
    for (int64_t b = 0; length && b < batch; b++) {
        if (length[b] < 0 || length[b] > l.steps)
            return HT_ERR_INDEX;
        longest = ht_max64(longest, length[b]);
    }
    if (states == 0)
        return HT_OK;

    l.clip = (float)call->floats[0];
    job_of_run job = {.call = call, .l = l, .longest = longest, .step_parts = 1};
    const double cost = (double)batch * gates * (double)l.padded * (double)hidden;
    if (dirs > 1 && ht_wanted(call, cost * (double)longest * (double)dirs) > 1) {
        ht_parallel(call->team, dirs, direction, &job);
        return HT_OK;
    }
    /* One part per thread in each step, because a region costs a microsecond. */
    job.step_parts = ht_wanted(call, cost) > 1 ? ht_team_threads(call->team) : 1;
    for (int64_t d = 0; d < dirs; d++)
        walk(&job, kind, d, (float *)call->scratch, call->team);
    return HT_OK;
}

DIRECTION(lstm_direction, LSTM)
int HT_KERNEL(lstm)(const ht_call *call) { return run(call, LSTM, lstm_direction); }
#if HT_DEFINES_SHARED
DIRECTION(gru_direction, GRU)
int HT_KERNEL(gru)(const ht_call *call) { return run(call, GRU, gru_direction); }
DIRECTION(rnn_direction, RNN)
int HT_KERNEL(rnn)(const ht_call *call) { return run(call, RNN, rnn_direction); }
#endif
