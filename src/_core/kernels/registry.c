/* The list of kernels and of instruction sets. _kernels.pyx chooses the instruction set once, at import: the most
 * demanding variant that the machine supports and HETERO_ISA allows. */
#include "registry.h"

#include "kernels.h"
#include "unary_codes.h"

/* Builds for finding data races have only the baseline: threads work in the same way in every variant. */
#if defined(__x86_64__) && !defined(HETERO_RACES)
#define HAS_X86_VARIANTS 1
#include <cpuid.h>
#endif

#define DECLARE_baseline(name) int ht_##name##_baseline(const ht_call *);
#define ENTRY_baseline(name) ht_##name##_baseline,
HT_KERNELS(DECLARE_baseline)
static const ht_kernel_fn table_baseline[] = {HT_KERNELS(ENTRY_baseline)};

#if HAS_X86_VARIANTS
#define DECLARE_avx2(name) int ht_##name##_avx2(const ht_call *);
#define ENTRY_avx2(name) ht_##name##_avx2,
#define DECLARE_avx_vnni(name) int ht_##name##_avx_vnni(const ht_call *);
#define ENTRY_avx_vnni(name) ht_##name##_avx_vnni,
#define DECLARE_avx512(name) int ht_##name##_avx512(const ht_call *);
#define ENTRY_avx512(name) ht_##name##_avx512,
#define DECLARE_avx512_vnni(name) int ht_##name##_avx512_vnni(const ht_call *);
#define ENTRY_avx512_vnni(name) ht_##name##_avx512_vnni,
HT_KERNELS(DECLARE_avx2)
HT_WIDE_KERNELS(DECLARE_avx512)
HT_BYTE_KERNELS(DECLARE_avx512)
HT_BYTE_KERNELS(DECLARE_avx_vnni)
HT_BYTE_KERNELS(DECLARE_avx512_vnni)
static const ht_kernel_fn table_avx2[] = {HT_KERNELS(ENTRY_avx2)};
static const ht_kernel_fn table_avx_vnni[] = {HT_OTHER_KERNELS(ENTRY_avx2) HT_BYTE_KERNELS(ENTRY_avx_vnni)};
static const ht_kernel_fn table_avx512[] = {HT_WIDE_KERNELS(ENTRY_avx512) HT_NARROW_KERNELS(ENTRY_avx2)
                                              HT_BYTE_KERNELS(ENTRY_avx512)};
static const ht_kernel_fn table_avx512_vnni[] = {HT_WIDE_KERNELS(ENTRY_avx512) HT_NARROW_KERNELS(ENTRY_avx2)
                                                   HT_BYTE_KERNELS(ENTRY_avx512_vnni)};
#endif

#define NAME(name) #name,
static const char *const names[] = {HT_KERNELS(NAME)};

#define NUMBER(name) NUMBER_##name,
enum { HT_KERNELS(NUMBER) NUM_KERNELS };
#define IN_PLACE(name, operands, shared) [NUMBER_##name] = {operands, shared},
static const ht_in_place in_place[NUM_KERNELS] = {HT_IN_PLACE(IN_PLACE)};

#define CONSTANT(name) {#name, HT_##name},
#define UNARY_CODE(name, code) {"UNARY_" #name, code},
#define REDUCTION(name) REDUCTION_##name,
#define REDUCTION_CODE(name) {"REDUCE_" #name, REDUCTION_##name},
#define ACTIVATION(name) ACTIVATION_##name,
#define ACTIVATION_CODE(name) {"RECURRENT_" #name, ACTIVATION_##name},
enum { HT_REDUCTIONS(REDUCTION) };
enum { HT_RECURRENT_ACTIVATIONS(ACTIVATION) };
static const struct {
    const char *name;
    int64_t value;
} constants[] = {
    HT_CONSTANTS(CONSTANT)
    HT_UNARY_CODES(UNARY_CODE)
    HT_REDUCTIONS(REDUCTION_CODE)
    HT_RECURRENT_ACTIVATIONS(ACTIVATION_CODE)
};

static const struct {
    const char *name;
    const ht_kernel_fn *table;
} variants[] = {
    {"baseline", table_baseline},
#if HAS_X86_VARIANTS
    {"avx2", table_avx2},
    {"avx_vnni", table_avx_vnni},
    {"avx512", table_avx512},
    {"avx512_vnni", table_avx512_vnni},
#endif
};

int ht_num_kernels(void) { return NUM_KERNELS; }
const char *ht_kernel_name(int kernel)
{
    HT_ASSERT(kernel >= 0 && kernel < NUM_KERNELS);
    return names[kernel];
}
ht_in_place ht_in_place_of(int kernel)
{
    HT_ASSERT(kernel >= 0 && kernel < NUM_KERNELS);
    return in_place[kernel];
}
int ht_num_constants(void) { return (int)(sizeof constants / sizeof constants[0]); }
const char *ht_constant_name(int constant) { return constants[constant].name; }
int64_t ht_constant_value(int constant) { return constants[constant].value; }
int ht_num_variants(void) { return (int)(sizeof variants / sizeof variants[0]); }
const char *ht_variant_name(int variant) { return variants[variant].name; }
ht_kernel_fn ht_kernel(int variant, int kernel)
{
    HT_ASSERT(variant >= 0 && variant < ht_num_variants() && kernel >= 0 && kernel < NUM_KERNELS);
    return variants[variant].table[kernel];
}

#if HAS_X86_VARIANTS
/* AVX-VNNI, the 256-bit form without AVX-512. __builtin_cpu_supports of older compilers does not know it. */
static int has_avx_vnni(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 4 & 1;
}

static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

int ht_variant_runs(int variant)
{
#if HAS_X86_VARIANTS
    __builtin_cpu_init();
    switch (variant) {
    case 1: return has_avx2();
    case 2: return has_avx2() && has_avx_vnni();
    case 3: return has_avx512();
    case 4: return has_avx512() && __builtin_cpu_supports("avx512vnni");
    default: break;
    }
#endif
    return variant == 0;
}
