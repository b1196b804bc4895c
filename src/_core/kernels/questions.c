#include "questions.h"

#include "layouts.h"

static int64_t ask_panel_floats(const int64_t *a) { return ht_panel_floats(a[0], a[1]); }

static int64_t ask_quad_bytes(const int64_t *a) { return ht_quad_bytes(a[0], a[1]); }

static int64_t ask_nbits_bytes(const int64_t *a)
{
    return a[2] < 1 || a[3] < 1 || a[3] > HT_NBITS_MAX_BLOCK ? -1 : ht_nbits_bytes(a[0], a[1], a[2], a[3], a[4] != 0);
}

static int64_t ask_pixel_bytes(const int64_t *a)
{
    ht_quad_layout l;
    return ht_quad_layout_of(&l, a + 1, HT_CONV_INTEGER_INTS) ? ht_pixel_bytes(&l, a[0]) : -1;
}

static int64_t ask_filter_bytes(const int64_t *a)
{
    ht_quad_layout l;
    return ht_quad_layout_of(&l, a + 1, HT_CONV_INTEGER_INTS) ? ht_filter_bytes(&l, a[0]) : -1;
}

static int64_t ask_depthwise_bytes(const int64_t *a)
{
    ht_depthwise_layout l;
    const int64_t in[2] = {1, 1}; /* the weights' layout does not depend on it */
    return ht_depthwise_layout_of(&l, a + 1, HT_CONV_INTEGER_INTS, in) ? ht_depthwise_bytes(&l, a[0] / l.channels) : -1;
}

static int64_t ask_depthwise_pays(const int64_t *a)
{
    ht_depthwise_layout l;
    return ht_depthwise_layout_of(&l, a + 2, HT_CONV_INTEGER_INTS, a) && ht_depthwise_pays(&l);
}

static int64_t ask_integer_columns(const int64_t *a)
{
    ht_quad_layout l;
    if (!ht_quad_layout_of(&l, a, HT_CONV_INTEGER_INTS))
        return -1;
    if (l.pointwise)
        ht_as_one_row(&l);
    return ht_panel_columns(ht_numbered_pixels(&l));
}

static int64_t ask_winograd_floats(const int64_t *a) { return ht_winograd_floats(a[0], a[1], a[2]); }

/* ---- The tile of Winograd's filtering. Costs are in vector operations of HT_PANEL lanes, fitted to measurements with
 * AVX-512; the ratios of the other instruction sets are similar. */

static int64_t tiles_of(int64_t height, int64_t width, int64_t m)
{
    return ht_size_product(ht_size_quotient(height, m), ht_size_quotient(width, m));
}

/* The cost of conv_winograd.c: its product, or reading the weights for each block of tiles; then its transforms, which
 * load and store the tiles of a row together; then calls of tiles of the product, which are short with few channels. */
static double winograd_cost(int64_t channels, int64_t maps, int64_t height, int64_t width, int64_t m)
{
    const double transform = m == 4 ? 330 : 130; /* of a panel of tiles of one channel, one way */
    const double move = m == 4 ? 150 : 60;       /* of a vector of tiles of a row */
    const double call = 150;
    const double rows = (double)(ht_size_quotient(height, m) * ht_size_quotient(ht_size_quotient(width, m), HT_PANEL));
    const int64_t positions = (m + 2) * (m + 2), columns = ht_winograd_columns(channels, m);
    const int64_t tiles = tiles_of(height, width, m), blocks = ht_winograd_blocks(tiles, columns);
    const int64_t last = tiles - (blocks - 1) * columns;
    const double panels = (double)((blocks - 1) * (columns / HT_PANEL) + ht_size_quotient(last, HT_PANEL));
    const double products = (double)positions * (double)channels * (double)maps, bytes = 4 * products;
    const double bytes_per_operation = bytes < 1 << 24 ? 10 : 4; /* from caches, from memory */
    const double product = products * panels / 0.85, read = bytes * (double)blocks / bytes_per_operation;
    const double transformed = (double)tiles / HT_PANEL;
    return (product > read ? product : read) +
           (double)(channels + maps) * (transform * (transformed > 1 ? transformed : 1) + move * rows) +
           call * (double)positions * (double)ht_size_quotient(maps, 8) * (double)blocks;
}

/* Pairs of an output and a kernel position inside the input, along an axis with three kernel positions and stride 1. */
static double products_inside(int64_t in, int64_t out, int64_t dilation, int64_t pad)
{
    double products = 0;
    for (int64_t tap = 0; tap < 3; tap++) {
        const int64_t offset = tap * dilation - pad; /* outputs o with 0 <= o + offset < in */
        const int64_t first = offset < 0 ? -offset : 0, last = out < in - offset ? out : in - offset;
        products += last > first ? (double)(last - first) : 0;
    }
    return products;
}

/* The cost of the other algorithms, with `taps` products per pixel and channel: vectors run along output channels
 * (conv_direct.c) or pixels of a row (conv_rows.c). */
static double plain_cost(int64_t channels, int64_t maps, int64_t height, int64_t width, double taps)
{
    const double panels = (double)width * (double)ht_size_quotient(maps, HT_PANEL);
    const double vectors = (double)ht_size_quotient(width, HT_PANEL) * (double)maps;
    return (double)height * ((double)channels * taps / 0.8 * (panels < vectors ? panels : vectors) +
                             (double)width * (double)maps / 2);
}

/* Phases begin at tiles of m. x with its padding before, and the outputs, lie in them. Outputs read up to two elements
 * beyond: padding, with which the next phase begins, or which makes this one longer. */
static int64_t phase_length(int64_t in, int64_t out, int64_t dilation, int64_t pad, int64_t m)
{
    const int64_t begins_with = pad / dilation, holds = ht_size_quotient(pad + in, dilation);
    const int64_t reads = ht_size_quotient(out, dilation) + (begins_with < 2 ? 2 - begins_with : 0);
    return m * ht_size_quotient(holds > reads ? holds : reads, m);
}

static int64_t ask_phase_length(const int64_t *a)
{
    return a[2] < 1 || a[4] < 1 ? -1 : phase_length(a[0], a[1], a[2], a[3], a[4]);
}

int ht_winograd_supports(int64_t in_channels, const int64_t *in, const int64_t *out, const int64_t *kernel,
                         const int64_t *stride, const int64_t *pad, const int64_t *dilation)
{
    enum { MAX_CHANNELS = 1 << 16, LARGEST = 1 << 20 }; /* pads and dilations; sums of products stay far from overflow */
    if (in[0] != 1 || out[0] != 1 || pad[0] != 0 || kernel[0] != 1 || kernel[1] != 3 || kernel[2] != 3 ||
        in[2] > HT_WINOGRAD_WIDTH || out[2] > HT_WINOGRAD_WIDTH || in_channels > MAX_CHANNELS)
        return 0;
    for (int d = 1; d < 3; d++)
        if (stride[d] != 1 || dilation[d] > LARGEST || pad[d] > LARGEST)
            return 0;
    return 1;
}

static int64_t ask_winograd_tile(const int64_t *a)
{
    enum {
        MAX_CHANNELS = 8192,  /* bounds the scratch memory of a thread: 19 MB */
        MAX_BYTES = 12 << 20, /* of weights for tiles of 4 x 4: four times those of the plain weights */
        MAX_PHASES = 1 << 10  /* dilations and pads; with larger ones nearly all is padding */
    };
    const double gain = 0.9; /* of the plain cost, at most, because the weights take more memory */
    const double copy = 1.5; /* of an element of phases.c */
    const int64_t channels = a[0], maps = a[1], *out = a + 5, *dilation = a + 17;
    if (!ht_winograd_supports(channels, a + 2, out, a + 8, a + 11, a + 14, dilation) || channels < 1 ||
        channels > MAX_CHANNELS || maps < 1 || out[1] < 1 || out[2] < 1)
        return 0;
    const int is_dilated = dilation[1] > 1 || dilation[2] > 1;
    if (is_dilated && (a[15] > MAX_PHASES || a[16] > MAX_PHASES || dilation[1] > MAX_PHASES || dilation[2] > MAX_PHASES))
        return 0;
    double taps = 9;
    if (is_dilated)
        taps = products_inside(a[3], out[1], dilation[1], a[15]) * products_inside(a[4], out[2], dilation[2], a[16]) /
               ((double)out[1] * (double)out[2]);
    double cost = gain * plain_cost(channels, maps, out[1], out[2], taps);
    int64_t tile = 0;
    for (int64_t m = 4; m >= 2; m -= 2) {
        int64_t height = out[1], width = out[2];
        if (is_dilated) {
            height = dilation[1] * phase_length(a[3], out[1], dilation[1], a[15], m);
            width = dilation[2] * phase_length(a[4], out[2], dilation[2], a[16], m);
            if (width > HT_WINOGRAD_WIDTH)
                continue;
        }
        if (m == 4 && 4.0 * 36 * (double)channels * (double)maps > MAX_BYTES)
            continue;
        double of_tile = winograd_cost(channels, maps, height, width, m);
        if (is_dilated)
            of_tile += copy * (double)(channels + maps) * (double)height * (double)width;
        if (of_tile < cost) {
            cost = of_tile;
            tile = m;
        }
    }
    return tile;
}

static int64_t ask_parts_floats(const int64_t *a) { return ht_parts_floats(a[0], a[1]); }
static int64_t ask_gemm_parts(const int64_t *a) { return ht_tiled_pays_parts(a[0], a[1], a[2]); }
static int64_t ask_conv_kept(const int64_t *a) { return ht_conv_kept(a, a + 3, a + 6, a + 9, a + 12, a + 15); }
static int64_t ask_conv_tiled(const int64_t *a) { return ht_conv_tiled(a[0], a[1], a[2], a[3], a[4], a[5]); }
static int64_t ask_conv_parts(const int64_t *a) { return ht_conv_pays_parts(a[0], a[1], a[2], a[3], a[4], a[5]); }

/* ---- dft */

static int is_smooth(int64_t length)
{
    for (int64_t factor = 2; factor <= HT_DFT_LARGEST_FACTOR; factor++)
        while (length % factor == 0)
            length /= factor;
    return length == 1;
}

int64_t ht_dft_points(int64_t length)
{
    if (length < 1 || length > HT_MAX_BYTES)
        return -1;
    if (is_smooth(length))
        return length;
    int64_t points = 1;
    while (points < 2 * length - 1)
        points *= 2;
    return points;
}

static int64_t ask_dft_points(const int64_t *a) { return ht_dft_points(a[0]); }

/* ---- */

#define QUESTION(name, count) {#name, count, ask_##name},
#define CHECK(name, count) _Static_assert(count <= HT_MAX_ARGUMENTS, "arguments of " #name);
HT_QUESTIONS(CHECK)
static const struct {
    const char *name;
    int arguments;
    int64_t (*answer)(const int64_t *);
} questions[] = {HT_QUESTIONS(QUESTION)};

int ht_num_questions(void) { return (int)(sizeof questions / sizeof questions[0]); }
const char *ht_question_name(int question) { return questions[question].name; }
int ht_question_arguments(int question) { return questions[question].arguments; }

int64_t ht_ask(int question, const int64_t *arguments)
{
    HT_ASSERT(question >= 0 && question < ht_num_questions());
    return questions[question].answer(arguments);
}
