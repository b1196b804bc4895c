/* dft: discrete Fourier transforms along an axis of x[outer][size][inner][parts], parts = 1 (real) or 2 (complex).
 *
 * y[o][k][i] = factor * sum over t of x[o][t][i] * exp(-+ 2 pi i k t / length), for k = 0 .. kept - 1. x is truncated
 * or zero-padded to length.
 * Sources: Stockham's transform with factors 4, 2 and odd primes (Cooley and Tukey, 1965; Cochran et al., 1967), which
 * needs no reordering. For lengths with a prime factor above 61, the chirp transform (Bluestein, 1970), a convolution
 * by transforms of a power of two. All computation is in float64.
 * Cost: n * (sum of the prime factors) operations, at most 61 n log n; the chirp transform about 12 m log m, m < 4 n.
 *
 * Operands: in x (float32 or float64); roots, float64[m][2]: exp(-+ 2 pi i k / m), where m is length, or for the chirp
 * transform a power of two of at least 2 * length - 1. The chirp transform has two more inputs: chirp,
 * float64[length][2]: c[k] = exp(-+ pi i k k / length), and spectrum, float64[m][2]: the transform (with the sign of
 * roots) of conj(c), extended by symmetry to negative indices, which wrap around to the end, and divided by m. out
 * y[outer][kept][inner][2].
 * ints: outer, size, inner, parts, length, kept (at most length), inverse (1: the exponent is positive and factor is 1
 * / length; 0: factor is 1), real (1: x is the first half, length / 2 + 1 bins, of the spectrum of a real signal, and y
 * is the real part, [outer][kept][inner]).
 * Scratch: 32 * m bytes. With eight times as much, eight lines are transformed side by side, so that every loop runs
 * across them. Threads take lines.
 */
#include "elements.h"
#include "questions.h"
#include "vec.h"

enum { SIDE_BY_SIDE = HT_DFT_LINES, LARGEST_FACTOR = HT_DFT_LARGEST_FACTOR };

/* Real and imaginary parts of `lanes` lines: element k of line l at k * lanes + l. */
typedef struct {
    double *re, *im;
} lines;

static int64_t factor_of(int64_t n)
{
    if (n % 4 == 0)
        return 4;
    if (n % 2 == 0)
        return 2;
    for (int64_t odd = 3; odd <= LARGEST_FACTOR; odd += 2)
        if (n % odd == 0)
            return odd;
    return 0;
}

#define STORE(to, at, w, real, imaginary)                                                                           \
    do {                                                                                                            \
        const double re_ = (real), im_ = (imaginary);                                                               \
        (to).re[at] = re_ * (w)[0] - im_ * (w)[1];                                                                  \
        (to).im[at] = re_ * (w)[1] + im_ * (w)[0];                                                                  \
    } while (0)

/* The groups of each stage below: `run` adjacent elements of each of r inputs, `gap` apart, give r outputs, `run`
 * apart. Output j is multiplied by w[j]. */
static void two(const double *re, const double *im, int64_t gap, lines to, int64_t run, const double *const *w)
{
    const double *w1 = w[1];
    double *HT_RESTRICT to_re = to.re, *HT_RESTRICT to_im = to.im;
    HT_LONG_FOR (i, run) {
        const double re_ = re[i] - re[gap + i], im_ = im[i] - im[gap + i];
        to_re[i] = re[i] + re[gap + i];
        to_im[i] = im[i] + im[gap + i];
        to_re[run + i] = re_ * w1[0] - im_ * w1[1];
        to_im[run + i] = re_ * w1[1] + im_ * w1[0];
    }
}

/* sign: the sign of the exponent. */
static void four(const double *re, const double *im, int64_t gap, lines to, int64_t run, const double *const *w, double sign)
{
    const double a1 = w[1][0], b1 = w[1][1], a2 = w[2][0], b2 = w[2][1], a3 = w[3][0], b3 = w[3][1];
    double *HT_RESTRICT to_re = to.re, *HT_RESTRICT to_im = to.im;
    HT_LONG_FOR (i, run) {
        const double sum_re = re[i] + re[2 * gap + i], sum_im = im[i] + im[2 * gap + i];
        const double less_re = re[i] - re[2 * gap + i], less_im = im[i] - im[2 * gap + i];
        const double odd_re = re[gap + i] + re[3 * gap + i], odd_im = im[gap + i] + im[3 * gap + i];
        const double turned_re = -sign * (im[gap + i] - im[3 * gap + i]), turned_im = sign * (re[gap + i] - re[3 * gap + i]);
        const double one_re = less_re + turned_re, one_im = less_im + turned_im;
        const double two_re = sum_re - odd_re, two_im = sum_im - odd_im;
        const double three_re = less_re - turned_re, three_im = less_im - turned_im;
        to_re[i] = sum_re + odd_re;
        to_im[i] = sum_im + odd_im;
        to_re[run + i] = one_re * a1 - one_im * b1;
        to_im[run + i] = one_re * b1 + one_im * a1;
        to_re[2 * run + i] = two_re * a2 - two_im * b2;
        to_im[2 * run + i] = two_re * b2 + two_im * a2;
        to_re[3 * run + i] = three_re * a3 - three_im * b3;
        to_im[3 * run + i] = three_re * b3 + three_im * a3;
    }
}

/* An odd factor r. Terms k and r - k share their cosines, and their sines except for the sign. turns[k]: exp(-+ 2 pi i
 * k / r), `turn_step` numbers apart. */
HT_INLINE void odd_part(const double *re, const double *im, int64_t gap, lines to, int64_t run, const double *const *w,
                        int64_t r, const double *turns, int64_t turn_step, const int64_t count)
{
    enum { HALF = LARGEST_FACTOR / 2 };
    double sum_re[HALF][SIDE_BY_SIDE], sum_im[HALF][SIDE_BY_SIDE], less_re[HALF][SIDE_BY_SIDE], less_im[HALF][SIDE_BY_SIDE];
    double all_re[SIDE_BY_SIDE], all_im[SIDE_BY_SIDE];
    const int64_t half = r / 2;
    for (int64_t i = 0; i < count; i++) {
        all_re[i] = re[i];
        all_im[i] = im[i];
    }
    for (int64_t k = 1; k <= half; k++)
        for (int64_t i = 0; i < count; i++) {
            const double a = re[k * gap + i], b = re[(r - k) * gap + i], c = im[k * gap + i], d = im[(r - k) * gap + i];
            sum_re[k - 1][i] = a + b;
            sum_im[k - 1][i] = c + d;
            less_re[k - 1][i] = a - b;
            less_im[k - 1][i] = c - d;
            all_re[i] += a + b;
            all_im[i] += c + d;
        }
    for (int64_t i = 0; i < count; i++) {
        to.re[i] = all_re[i];
        to.im[i] = all_im[i];
    }
    for (int64_t j = 1; j <= half; j++) {
        double even_re[SIDE_BY_SIDE], even_im[SIDE_BY_SIDE], odd_re[SIDE_BY_SIDE], odd_im[SIDE_BY_SIDE];
        for (int64_t i = 0; i < count; i++) {
            even_re[i] = re[i];
            even_im[i] = im[i];
            odd_re[i] = odd_im[i] = 0;
        }
        for (int64_t k = 1, at = j; k <= half; k++, at = at + j >= r ? at + j - r : at + j) {
            const double cosine = turns[at * turn_step], sine = turns[at * turn_step + 1];
            for (int64_t i = 0; i < count; i++) {
                even_re[i] += cosine * sum_re[k - 1][i];
                even_im[i] += cosine * sum_im[k - 1][i];
                odd_re[i] -= sine * less_im[k - 1][i];
                odd_im[i] += sine * less_re[k - 1][i];
            }
        }
        for (int64_t i = 0; i < count; i++) {
            STORE(to, j * run + i, w[j], even_re[i] + odd_re[i], even_im[i] + odd_im[i]);
            STORE(to, (r - j) * run + i, w[r - j], even_re[i] - odd_re[i], even_im[i] - odd_im[i]);
        }
    }
}

static void odd(const double *re, const double *im, int64_t gap, lines to, int64_t run, const double *const *w, int64_t r,
                const double *turns, int64_t turn_step)
{
    for (int64_t i = 0; i < run && !ht_stops_at(i); i += SIDE_BY_SIDE) {
        const lines at = {to.re + i, to.im + i};
        if (run - i >= SIDE_BY_SIDE)
            odd_part(re + i, im + i, gap, at, run, w, r, turns, turn_step, SIDE_BY_SIDE);
        else
            odd_part(re + i, im + i, gap, at, run, w, r, turns, turn_step, run - i);
    }
}

/* Transforms `lanes` lines of n elements, n smooth. Returns the one of `v` and `spare` that holds the result. */
static lines transform(lines v, lines spare, const double *root, int64_t n, int64_t lanes)
{
    int64_t pace = HT_PIECE;
    int64_t done = 1; /* product of the factors so far: this many neighbors have the same twiddle factor */
    for (int64_t left = n; left > 1;) {
        const int64_t r = factor_of(left), groups = left / r, run = done * lanes, gap = groups * run;
        const double *w[LARGEST_FACTOR];
        for (int64_t group = 0; group < groups && !ht_paced_stop(&pace, r * run); group++) {
            const double *re = v.re + group * run, *im = v.im + group * run;
            const lines to = {spare.re + r * group * run, spare.im + r * group * run};
            for (int64_t j = 0; j < r; j++)
                w[j] = root + 2 * group * j * done;
            if (r == 4)
                four(re, im, gap, to, run, w, root[2 * (n / 4) + 1] < 0 ? -1.0 : 1.0);
            else if (r == 2)
                two(re, im, gap, to, run, w);
            else
                odd(re, im, gap, to, run, w, r, root, 2 * (n / r));
        }
        const lines swapped = v;
        v = spare;
        spare = swapped;
        left = groups;
        done *= r;
    }
    return v;
}

/* Multiplies elements [0, n) of v by those of w, or of its conjugate. */
static void turn(lines v, const double *w, int64_t n, int64_t lanes, double sign)
{
    HT_LONG_FOR (k, n) {
        const double re = w[2 * k], im = sign * w[2 * k + 1];
        for (int64_t i = k * lanes; i < (k + 1) * lanes; i++) {
            const double a = v.re[i], b = v.im[i];
            v.re[i] = a * re - b * im;
            v.im[i] = a * im + b * re;
        }
    }
}

static void conjugate(lines v, int64_t n)
{
    HT_LONG_FOR (i, n)
        v.im[i] = -v.im[i];
}

typedef struct {
    const ht_call *call;
    int64_t m, lanes, units, parts; /* m: length of the transforms performed */
} job;

/* Loads x[o][.][i] as lane l of v and sets the other elements to zero. */
#define DEFINE_LINES(T)                                                                                                \
    static void read_##T(const job *j, int64_t line, int64_t lane, lines v)                                            \
    {                                                                                                                  \
        const int64_t size = j->call->ints[1], inner = j->call->ints[2], parts = j->call->ints[3];                     \
        const int64_t n = j->call->ints[4], real = j->call->ints[7] != 0, lanes = j->lanes;                            \
        const int64_t present = ht_min64(size, real ? n / 2 + 1 : n);                                                  \
        const T *x = (const T *)j->call->in[0]->data + (line / inner * size * inner + line % inner) * parts;           \
        HT_LONG_FOR (t, present) {                                                                                     \
            v.re[t * lanes + lane] = (double)x[t * inner * parts];                                                     \
            v.im[t * lanes + lane] = parts == 2 ? (double)x[t * inner * parts + 1] : 0;                                \
        }                                                                                                              \
        for (int64_t t = present; t < j->m && !ht_stops_at(t); t++)                                                    \
            v.re[t * lanes + lane] = v.im[t * lanes + lane] = 0;                                                       \
        for (int64_t t = 1; real && t < present && n - t >= present && !ht_stops_at(t); t++) { /* the mirrored half */ \
            v.re[(n - t) * lanes + lane] = v.re[t * lanes + lane];                                                     \
            v.im[(n - t) * lanes + lane] = -v.im[t * lanes + lane];                                                    \
        }                                                                                                              \
    }                                                                                                                  \
    static void write_##T(const job *j, int64_t line, int64_t lane, lines v)                                           \
    {                                                                                                                  \
        const int64_t inner = j->call->ints[2], n = j->call->ints[4], kept = j->call->ints[5], lanes = j->lanes;       \
        const int64_t out_parts = j->call->ints[7] ? 1 : 2;                                                            \
        const double factor = j->call->ints[6] ? 1.0 / (double)n : 1;                                                  \
        T *y = (T *)j->call->out[0]->data + (line / inner * kept * inner + line % inner) * out_parts;                  \
        HT_LONG_FOR (k, kept) {                                                                                        \
            y[out_parts * k * inner] = (T)(v.re[k * lanes + lane] * factor);                                           \
            if (out_parts == 2)                                                                                        \
                y[2 * k * inner + 1] = (T)(v.im[k * lanes + lane] * factor);                                           \
        }                                                                                                              \
    }
DEFINE_LINES(float)
DEFINE_LINES(double)

static void dft_part(void *context, int64_t part, int thread)
{
    const job *j = (const job *)context;
    const ht_call *call = j->call;
    const int64_t all = call->ints[0] * call->ints[2], n = call->ints[4], lanes = j->lanes, m = j->m;
    const int is_float = call->in[0]->dtype == HT_FLOAT32, chirps = call->num_in == 4;
    const double *root = call->in[1]->data;
    double *scratch = ht_scratch(call, thread);
    const lines v = {scratch, scratch + m * lanes}, spare = {scratch + 2 * m * lanes, scratch + 3 * m * lanes};
    const int64_t end = ht_part_begin(j->units, j->parts, part + 1);
    for (int64_t unit = ht_part_begin(j->units, j->parts, part); unit < end; unit++) {
        const int64_t first = unit * lanes, count = ht_min64(lanes, all - first);
        for (int64_t lane = 0; lane < lanes; lane++) /* past the last line, repeat it */
            (is_float ? read_float : read_double)(j, first + ht_min64(lane, count - 1), lane, v);
        lines transformed;
        if (chirps) { /* y = c * (conj(c) convolved with c * x); the inverse is the transform of the conjugate */
            const double *chirp = call->in[2]->data;
            turn(v, chirp, n, lanes, 1);
            const lines there = transform(v, spare, root, m, lanes), other = there.re == v.re ? spare : v;
            turn(there, call->in[3]->data, m, lanes, 1);
            conjugate(there, m * lanes);
            transformed = transform(there, other, root, m, lanes);
            conjugate(transformed, n * lanes);
            turn(transformed, chirp, n, lanes, 1);
        } else {
            transformed = transform(v, spare, root, m, lanes);
        }
        for (int64_t lane = 0; lane < count; lane++)
            (is_float ? write_float : write_double)(j, first + lane, lane, transformed);
    }
}

int HT_KERNEL(dft)(const ht_call *call)
{
    if ((call->num_in != 2 && call->num_in != 4) || call->num_out != 1 || call->num_ints != 8)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *roots = call->in[1], *y = call->out[0];
    const int64_t outer = call->ints[0], size = call->ints[1], inner = call->ints[2], parts = call->ints[3];
    const int64_t n = call->ints[4], kept = call->ints[5], m = roots->size / 2;
    if (outer < 0 || size < 0 || inner < 0 || parts < 1 || parts > 2 || n < 1 || kept < 0 || kept > n ||
        x->size != outer * size * inner * parts || y->size != outer * kept * inner * (call->ints[7] ? 1 : 2) ||
        (call->ints[7] && parts != 2) || x->dtype != y->dtype)
        return HT_ERR_OPERAND;
    if ((x->dtype != HT_FLOAT32 && x->dtype != HT_FLOAT64) || roots->dtype != HT_FLOAT64)
        return HT_ERR_DTYPE;
    if (roots->size != 2 * m || ht_dft_points(m) != m || call->scratch_bytes < ht_scratch_dft(1, m) || (call->num_in == 2 && m != n))
        return HT_ERR_OPERAND;
    if (call->num_in == 4) {
        const ht_tensor *chirp = call->in[2], *spectrum = call->in[3];
        if (chirp->dtype != HT_FLOAT64 || spectrum->dtype != HT_FLOAT64)
            return HT_ERR_DTYPE;
        if (m < 2 * n - 1 || chirp->size != 2 * n || spectrum->size != 2 * m)
            return HT_ERR_OPERAND;
    }
    if (y->size == 0)
        return HT_OK;
    job j = {.call = call, .m = m, .lanes = 1};
    if (outer * inner > 1 && call->scratch_bytes >= ht_scratch_dft(SIDE_BY_SIDE, m))
        j.lanes = SIDE_BY_SIDE;
    j.units = ht_ceil_div(outer * inner, j.lanes);
    j.parts = ht_parts(call, j.units, 40.0 * (double)m * (double)(outer * inner));
    ht_parallel(call->team, j.parts, dft_part, &j);
    return HT_OK;
}
