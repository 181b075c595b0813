/* Which instruction level runs: decided by the processor, without state of our own. */
#include "fspec_law.h"

#if (defined(__GNUC__) || defined(__clang__)) && (defined(__x86_64__) || defined(__aarch64__))
extern const fspec_kernels fspec_kernels_two;
#define FSPEC_HAS_TWO 1
#endif
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
extern const fspec_kernels fspec_kernels_avx2, fspec_kernels_avx512;
#define FSPEC_HAS_X86 1
#endif

const fspec_kernels *fspec_kernels_level(int level)
{
    switch (level) {
    case 0: return &fspec_kernels_portable;
#ifdef FSPEC_HAS_TWO
    case 1: return &fspec_kernels_two;
#endif
#ifdef FSPEC_HAS_X86
    case 2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
                   ? &fspec_kernels_avx2 : NULL;
    case 3:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
                   ? &fspec_kernels_avx512 : NULL;
#endif
    default: return NULL;
    }
}

const fspec_kernels *fspec_kernels_best(void)
{
    for (int level = FSPEC_LEVELS - 1; level > 0; level--) {
        const fspec_kernels *kernels = fspec_kernels_level(level);
        if (kernels) return kernels;
    }
    return &fspec_kernels_portable;
}

/* One state gains nothing from lanes. */
fspec_chain_newton_fn fspec_free_newton(size_t n)
{
    return n == 1 ? fspec_kernels_portable.chain : fspec_kernels_best()->chain;
}
