// Included before every kernel. S: the element type in memory, float or half (HALF). Kernels compute in float, so they
// need no cl_khr_fp16: vload_half and vstore_half are part of OpenCL itself.
//
// Tensors have fewer than 2^31 elements (planner.py refuses larger ones), so positions fit into uint.
#pragma OPENCL FP_CONTRACT OFF

#ifdef HALF
typedef half S;
#define LOAD(i, p) vload_half(i, p)
#define LOAD8(p) vload_half8(0, p)
#define LOAD16(p) vload_half16(0, p)
#define STORE(v, i, p) vstore_half_rte(v, i, p)
#define STORE16(v, p) vstore_half16_rte(v, 0, p)
#else
typedef float S;
#define LOAD(i, p) ((p)[i])
#define LOAD8(p) vload8(0, p)
#define LOAD16(p) vload16(0, p)
#define STORE(v, i, p) ((p)[i] = (v))
#define STORE16(v, p) vstore16(v, 0, p)
#endif
