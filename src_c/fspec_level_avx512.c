/* Eight lanes, compiled for AVX-512 F and DQ whatever the build's flags. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,fma")
#endif
#define FSPEC_LANES 8
#define FSPEC_KERNELS fspec_kernels_avx512
#define FSPEC_LEVEL_NAME "avx512"
#include "fspec_kernels.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int fspec_level_avx512_unused;
#endif
