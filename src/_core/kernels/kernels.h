/* The list of all kernels: X(name). registry.c builds its tables from it; <name>.c or the file of its family defines the
 * kernel.
 *
 * An instruction set for products of bytes compiles only HT_BYTE_KERNELS again, and AMX also HT_PRODUCT_KERNELS; they share
 * the others with the variant that they extend. AVX-512 shares HT_NARROW_KERNELS with AVX2, because wider vectors make
 * them no faster (bench/kernels.py). The list in CMakeLists.txt has their files. */
#define HT_BYTE_KERNELS(X) \
    X(pack_quads) \
    X(matmul_integer) \
    X(conv_integer) \
    X(pack_depthwise) \
    X(matmul_nbits_bytes) \
    X(depthwise_integer) \
    X(lstm)

#define HT_PRODUCT_KERNELS(X) \
    X(pack_b) \
    X(pack_parts) \
    X(gemm) \
    X(matmul) \
    X(conv)

#define HT_WIDE_KERNELS(X) \
    X(pack_pixels) \
    X(pack_filters) \
    X(pack_nbits) \
    X(matmul_nbits) \
    X(unary) \
    X(chain) \
    X(attention) \
    X(append_cache) \
    X(grouped_attention) \
    X(where) \
    X(cast) \
    X(copy_strided) \
    X(col2im) \
    X(col2im_lanes) \
    X(pointwise_depthwise) \
    X(pack_winograd) \
    X(max_pool) \
    X(average_pool) \
    X(softmax) \
    X(reduce) \
    X(arg_extreme) \
    X(hardmax) \
    X(quantize) \
    X(dequantize) \
    X(dynamic_quantize) \
    X(requantize) \
    X(quantized_add) \
    X(quantized_mul) \
    X(gru) \
    X(rnn) \
    X(squared_distances) \
    X(svm_scores) \
    X(svm_votes)

#define HT_NARROW_KERNELS(X) \
    X(topk) \
    X(max_pool_any) \
    X(lp_pool) \
    X(nms) \
    X(add) \
    X(sub) \
    X(mul) \
    X(div) \
    X(mod) \
    X(fmod) \
    X(pow) \
    X(min) \
    X(max) \
    X(prelu) \
    X(equal) \
    X(less) \
    X(less_or_equal) \
    X(greater) \
    X(greater_or_equal) \
    X(and) \
    X(or) \
    X(xor) \
    X(bitwise_and) \
    X(bitwise_or) \
    X(bitwise_xor) \
    X(shift_left) \
    X(shift_right) \
    X(resample) \
    X(pick) \
    X(resize_nearest) \
    X(resize_filter) \
    X(resize_outside) \
    X(phases) \
    X(grid_sample) \
    X(roi_align) \
    X(unique) \
    X(det) \
    X(group_norm) \
    X(batch_norm) \
    X(layer_norm) \
    X(lrn) \
    X(lookup) \
    X(split_bytes) \
    X(one_hot) \
    X(encode) \
    X(tree_ensemble) \
    X(custom) \
    X(identity) \
    X(bitcast) \
    X(gather) \
    X(gather_elements) \
    X(gather_nd) \
    X(gather_nbits) \
    X(rotary) \
    X(scatter_elements) \
    X(scatter_nd) \
    X(concat) \
    X(append) \
    X(fill) \
    X(range) \
    X(pad) \
    X(cumsum) \
    X(nonzero) \
    X(dft) \
    X(cumprod) \
    X(sum_filters)

#define HT_OTHER_KERNELS(X) HT_PRODUCT_KERNELS(X) HT_WIDE_KERNELS(X) HT_NARROW_KERNELS(X)

#define HT_KERNELS(X) HT_OTHER_KERNELS(X) HT_BYTE_KERNELS(X)

/* Kernels whose first result may be written over an operand: X(name, operands, shared).
 *
 * operands: one bit for each operand that may be overwritten. The operand must start at the result's first byte and have
 * as many elements as the result, of the same size. It is then not broadcast, and each of its elements is read before the
 * element that replaces it is written. The same number of bytes is not enough: bool[8, 8] over int64[8, 1] would
 * overwrite elements that later rows read.
 * shared: 1 if other operands may be the same memory under the same conditions, 0 if they must be elsewhere.
 * A result may not overlap an operand in any other way. _program.pyx checks this for every call. */
#define HT_IN_PLACE(X) \
    X(unary, 1, 1) \
    X(where, 6, 1) \
    X(lookup, 1, 0) \
    X(rotary, 1, 0) \
    X(quantized_add, 9, 1) \
    X(quantized_mul, 9, 1) \
    X(add, 3, 1) \
    X(sub, 3, 1) \
    X(mul, 3, 1) \
    X(div, 3, 1) \
    X(mod, 3, 1) \
    X(fmod, 3, 1) \
    X(pow, 3, 1) \
    X(min, 3, 1) \
    X(max, 3, 1) \
    X(prelu, 3, 1) \
    X(equal, 3, 1) \
    X(less, 3, 1) \
    X(less_or_equal, 3, 1) \
    X(greater, 3, 1) \
    X(greater_or_equal, 3, 1) \
    X(and, 3, 1) \
    X(or, 3, 1) \
    X(xor, 3, 1) \
    X(bitwise_and, 3, 1) \
    X(bitwise_or, 3, 1) \
    X(bitwise_xor, 3, 1) \
    X(shift_left, 3, 1) \
    X(shift_right, 3, 1) \
    X(softmax, 1, 0) \
    X(layer_norm, 9, 0) \
    X(group_norm, 1, 0) \
    X(batch_norm, 1, 0) \
    X(scatter_elements, 1, 0) \
    X(scatter_nd, 1, 0)
