#include "onnx_index.h"
typedef int ht_placeholder;
