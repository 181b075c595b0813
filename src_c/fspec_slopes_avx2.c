/* The slope transform compiled for AVX2 and FMA whatever the build's flags; run where they are. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#include "fspec_slopes.h"

fspec_slopes_value fspec_slopes_near_avx2(const fspec_slopes *slopes, double re, double im);

#define FSPEC_LANES 4
#define FSPEC_NEAR near_avx2
#include "fspec_slopes_near.h"

fspec_slopes_value fspec_slopes_near_avx2(const fspec_slopes *slopes, double re, double im)
{
    return near_avx2(slopes, re, im);
}
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int fspec_slopes_avx2_unused;
#endif
