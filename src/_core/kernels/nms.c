/* nms: non-maximum suppression. Per batch and class, boxes are visited in descending order of score (ties in ascending
 * order of index). Each is chosen unless it overlaps a chosen one by more than a threshold.
 *
 * Operands: in boxes[batches][n][4], scores[batches][classes][n] (float32), most[1] (int64: boxes chosen per class, at
 * most; NULL: 0), overlap[1] (float32, NULL: 0), least[1] (float32: boxes with lower scores are skipped; NULL: none);
 * out chosen[room][3] (int64: batch, class, box; zeros after the last), count[1] (int64). ints: center (boxes are x, y
 * of the center, width, height; else y1, x1, y2, x2 of two opposite corners). room must suffice for every result.
 * Scratch: ht_scratch_nms(n) bytes. Cost: n log n for sorting, then at most n times the number chosen per class.
 */
#include "elements.h"
#include "vec.h"

static int before(const float *score, int32_t a, int32_t b) { return score[a] > score[b] || (score[a] == score[b] && a < b); }

/* Merge sort of item[0, n); `room` holds n more. */
static void sort_by_score(const float *score, int32_t *item, int32_t *room, int64_t n)
{
    int64_t left = HT_PIECE;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t low = 0; low < n; low += 2 * width) {
            const int64_t middle = ht_min64(low + width, n), high = ht_min64(low + 2 * width, n);
            int64_t a = low, b = middle;
            for (int64_t k = low; k < high; k++) {
                if (ht_paced_stop(&left, 15))
                    return; /* the order of item is then undefined */
                room[k] = b >= high || (a < middle && before(score, item[a], item[b])) ? item[a++] : item[b++];
            }
        }
        memcpy(item, room, (size_t)n * sizeof *item);
    }
}

typedef struct {
    float x0, y0, x1, y1, area;
} corners;

static corners with_area(float x0, float y0, float x1, float y1)
{
    return (corners){x0, y0, x1, y1, (x1 - x0) * (y1 - y0)};
}

static corners corners_of(const float *box, int center)
{
    if (center) {
        const float w = box[2] / 2, h = box[3] / 2;
        return with_area(box[0] - w, box[1] - h, box[0] + w, box[1] + h);
    }
    return with_area(fminf(box[1], box[3]), fminf(box[0], box[2]), fmaxf(box[1], box[3]), fmaxf(box[0], box[2]));
}

/* Chosen boxes, one array of floats per number, so that a candidate is compared with a vector of them at a time. */
typedef struct {
    float *x0, *y0, *x1, *y1, *area;
} chosen_boxes;

HT_INLINE vm overlaps(const vf own[5], vf x0, vf y0, vf x1, vf y1, vf area, vf threshold)
{
    const vf none = vf_set1(0), w = vf_min(own[2], x1) - vf_max(own[0], x0), h = vf_min(own[3], y1) - vf_max(own[1], y0);
    const vm sized = vm_and(vm_and(vf_lt(none, w), vf_lt(none, h)), vm_and(vf_lt(none, own[4]), vf_lt(none, area)));
    const vf both = w * h;
    return vm_and(sized, vf_lt(threshold, both / (own[4] + area - both)));
}

static int overlaps_any(const corners *box, const chosen_boxes *kept, int64_t taken, float threshold)
{
    const vf own[5] = {vf_set1(box->x0), vf_set1(box->y0), vf_set1(box->x1), vf_set1(box->y1), vf_set1(box->area)};
    const vf limit = vf_set1(threshold);
    int64_t k = 0;
    for (; k + VF_LANES <= taken; k += VF_LANES)
        if (vm_any(overlaps(own, vf_load(kept->x0 + k), vf_load(kept->y0 + k), vf_load(kept->x1 + k),
                            vf_load(kept->y1 + k), vf_load(kept->area + k), limit)))
            return 1;
    const int64_t rest = taken - k; /* lanes beyond it have area 0, which overlaps nothing */
    return rest > 0 && vm_any(overlaps(own, vf_load_n(kept->x0 + k, rest), vf_load_n(kept->y0 + k, rest),
                                       vf_load_n(kept->x1 + k, rest), vf_load_n(kept->y1 + k, rest),
                                       vf_load_n(kept->area + k, rest), limit));
}

int HT_KERNEL(nms)(const ht_call *call)
{
    if (call->num_in != 5 || call->num_out != 2 || call->num_ints != 1)
        return HT_ERR_OPERAND;
    const ht_tensor *boxes = call->in[0], *scores = call->in[1], *chosen = call->out[0], *count = call->out[1];
    if (boxes->ndim != 3 || scores->ndim != 3 || boxes->dims[2] != 4 || boxes->dims[0] != scores->dims[0] ||
        boxes->dims[1] != scores->dims[2] || boxes->dtype != HT_FLOAT32 || scores->dtype != HT_FLOAT32 ||
        chosen->dtype != HT_INT64 || count->dtype != HT_INT64 || count->size != 1)
        return HT_ERR_OPERAND;
    for (int i = 2; i < 5; i++)
        if (call->in[i] && (call->in[i]->size != 1 || call->in[i]->dtype != (i == 2 ? HT_INT64 : HT_FLOAT32)))
            return HT_ERR_OPERAND;
    const int64_t batches = scores->dims[0], classes = scores->dims[1], n = scores->dims[2];
    const int64_t asked = call->in[2] ? *(const int64_t *)call->in[2]->data : 0;
    const int64_t most = ht_max64(0, ht_min64(asked, n));
    const float overlap = call->in[3] ? *(const float *)call->in[3]->data : 0.0f;
    const float least = call->in[4] ? *(const float *)call->in[4]->data : -INFINITY;
    const int center = call->ints[0] != 0;
    if (n > INT32_MAX || call->scratch_bytes < ht_scratch_nms(n) || chosen->size % 3 != 0 ||
        chosen->size < batches * classes * most * 3)
        return HT_ERR_OPERAND;
    int32_t *order = (int32_t *)call->scratch, *room = order + n;
    float *floats = (float *)(room + n);
    const chosen_boxes kept = {floats, floats + n, floats + 2 * n, floats + 3 * n, floats + 4 * n};
    int64_t *out = (int64_t *)chosen->data, found = 0;
    int64_t left = HT_PACE;
    for (int64_t batch = 0; batch < batches; batch++) {
        const float *box = (const float *)boxes->data + batch * n * 4;
        for (int64_t class = 0; class < classes; class++) {
            const float *score = (const float *)scores->data + (batch * classes + class) * n;
            int64_t candidates = 0, taken = 0;
            for (int64_t i = 0; i < n; i++)
                if (call->in[4] ? score[i] > least : score[i] == score[i])
                    order[candidates++] = (int32_t)i;
            if (most == 0)
                candidates = 0;
            sort_by_score(score, order, room, candidates);
            for (int64_t i = 0; i < candidates && taken < most; i++) {
                const corners own = corners_of(box + 4 * order[i], center);
                if (ht_paced_stop(&left, taken))
                    return HT_OK;
                if (overlaps_any(&own, &kept, taken, overlap))
                    continue;
                kept.x0[taken] = own.x0;
                kept.y0[taken] = own.y0;
                kept.x1[taken] = own.x1;
                kept.y1[taken] = own.y1;
                kept.area[taken++] = own.area;
                out[3 * found] = batch;
                out[3 * found + 1] = class;
                out[3 * found + 2] = order[i];
                found++;
            }
        }
    }
    *(int64_t *)count->data = found;
    if (chosen->size > 3 * found)
        memset(out + 3 * found, 0, (size_t)(chosen->size - 3 * found) * sizeof *out);
    return HT_OK;
}
