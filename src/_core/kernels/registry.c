/* The list of kernels and of instruction sets. _kernels.pyx chooses the instruction set once, at import: the most
 * demanding variant that the machine supports and HETERO_ISA allows. */
#include "registry.h"

#include "kernels.h"
#include "unary_codes.h"

/* Builds for finding data races have only the baseline: threads work in the same way in every variant. */
#if defined(__x86_64__) && !defined(HETERO_RACES)
#define HAS_X86_VARIANTS 1
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
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
HT_PRODUCT_KERNELS(DECLARE_avx512)
HT_WIDE_KERNELS(DECLARE_avx512)
HT_BYTE_KERNELS(DECLARE_avx512)
HT_BYTE_KERNELS(DECLARE_avx_vnni)
HT_BYTE_KERNELS(DECLARE_avx512_vnni)
static const ht_kernel_fn table_avx2[] = {HT_KERNELS(ENTRY_avx2)};
static const ht_kernel_fn table_avx_vnni[] = {HT_OTHER_KERNELS(ENTRY_avx2) HT_BYTE_KERNELS(ENTRY_avx_vnni)};
static const ht_kernel_fn table_avx512[] = {HT_PRODUCT_KERNELS(ENTRY_avx512) HT_WIDE_KERNELS(ENTRY_avx512)
                                            HT_NARROW_KERNELS(ENTRY_avx2) HT_BYTE_KERNELS(ENTRY_avx512)};
static const ht_kernel_fn table_avx512_vnni[] = {HT_PRODUCT_KERNELS(ENTRY_avx512) HT_WIDE_KERNELS(ENTRY_avx512)
                                                 HT_NARROW_KERNELS(ENTRY_avx2) HT_BYTE_KERNELS(ENTRY_avx512_vnni)};
#if defined(HETERO_COMPILES_AMX)
#define DECLARE_avx512_amx(name) int ht_##name##_avx512_amx(const ht_call *);
#define ENTRY_avx512_amx(name) ht_##name##_avx512_amx,
HT_PRODUCT_KERNELS(DECLARE_avx512_amx)
HT_BYTE_KERNELS(DECLARE_avx512_amx)
static const ht_kernel_fn table_avx512_amx[] = {HT_PRODUCT_KERNELS(ENTRY_avx512_amx) HT_WIDE_KERNELS(ENTRY_avx512)
                                                HT_NARROW_KERNELS(ENTRY_avx2) HT_BYTE_KERNELS(ENTRY_avx512_amx)};
#endif
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
#if defined(HETERO_COMPILES_AMX)
    {"avx512_amx", table_avx512_amx},
#endif
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
enum { /* bits of registers that CPUID returns: Intel's Software Developer's Manual, volume 2 */
    LEAF1_ECX_FMA = 1 << 12, LEAF1_ECX_OSXSAVE = 1 << 27, LEAF1_ECX_F16C = 1 << 29,
    LEAF7_EBX_BMI = 1 << 3, LEAF7_EBX_AVX2 = 1 << 5, LEAF7_EBX_BMI2 = 1 << 8,
    LEAF7_EBX_AVX512F = 1 << 16, LEAF7_EBX_AVX512DQ = 1 << 17, LEAF7_EBX_AVX512BW = 1 << 30,
    LEAF7_ECX_AVX512_VNNI = 1 << 11, LEAF7_1_EAX_AVX_VNNI = 1 << 4,
    LEAF7_EDX_AMX = 1 << 22 | 1 << 24 | 1 << 25, /* BF16, TILE and INT8 */
    XCR0_YMM = 0x6, XCR0_ZMM = 0xe6, XCR0_TILES = 0x60000,
};
#define LEAF7_EBX_AVX512VL (1u << 31)

/* Registers that the system saves. Only where CPUID has OSXSAVE. */
static unsigned saved_registers(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* CPUID itself: __builtin_cpu_supports is always false with runtimes that do not fill what it reads, as zig's. */
static int has(unsigned leaf1_ecx, unsigned leaf7_ebx, unsigned leaf7_ecx, unsigned registers)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    leaf1_ecx |= LEAF1_ECX_OSXSAVE;
    if ((c & leaf1_ecx) != leaf1_ecx || (saved_registers() & registers) != registers)
        return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & leaf7_ebx) == leaf7_ebx && (c & leaf7_ecx) == leaf7_ecx;
}

static int has_avx2(void)
{
    return has(LEAF1_ECX_FMA | LEAF1_ECX_F16C, LEAF7_EBX_AVX2 | LEAF7_EBX_BMI | LEAF7_EBX_BMI2, 0, XCR0_YMM);
}

/* The 256-bit form without AVX-512. */
static int has_avx_vnni(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & LEAF7_1_EAX_AVX_VNNI);
}

static int has_avx512(unsigned leaf7_ecx)
{
    const unsigned ebx = LEAF7_EBX_AVX512F | LEAF7_EBX_AVX512BW | LEAF7_EBX_AVX512DQ | LEAF7_EBX_AVX512VL;
    return has_avx2() && has(0, ebx, leaf7_ecx, XCR0_ZMM);
}

/* Linux gives a process the use of AMX's tiles only if it asks, because they make the frames of its signal handlers 8 kB
 * larger; it refuses if a thread's alternative signal stack is too small for that. */
static int may_use_tiles(void)
{
#if defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return 0;
#endif
}

static int has_avx512_amx(void)
{
    unsigned a, b, c, d;
    return has_avx512(LEAF7_ECX_AVX512_VNNI) && (saved_registers() & XCR0_TILES) == XCR0_TILES &&
           __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & LEAF7_EDX_AMX) == LEAF7_EDX_AMX && may_use_tiles();
}
#endif

int ht_variant_runs(int variant)
{
#if HAS_X86_VARIANTS
    switch (variant) {
    case 1: return has_avx2();
    case 2: return has_avx2() && has_avx_vnni();
    case 3: return has_avx512(0);
    case 4: return has_avx512(LEAF7_ECX_AVX512_VNNI);
    case 5: return has_avx512_amx();
    default: break;
    }
#endif
    return variant == 0;
}

int ht_variant_has_tiles(int variant) { return variant == 5; }
