/* Four lanes, compiled for AVX2 and FMA whatever the build's flags; run only where they are. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define FSPEC_LANES 4
#define FSPEC_KERNELS fspec_kernels_avx2
#define FSPEC_LEVEL_NAME "avx2"
#include "fspec_kernels.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int fspec_level_avx2_unused;
#endif
