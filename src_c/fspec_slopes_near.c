/* The slope transform for every processor, and the choice of AVX2 where there is one. */
#if (defined(__GNUC__) || defined(__clang__)) && (defined(__x86_64__) || defined(__aarch64__))
#define FSPEC_LANES 2
#else
#define FSPEC_LANES 1
#endif
#define FSPEC_NEAR near_baseline
#include "fspec_slopes_near.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
fspec_slopes_value fspec_slopes_near_avx2(const fspec_slopes *slopes, double re, double im);

fspec_slopes_value fspec_slopes_near(const fspec_slopes *slopes, double re, double im)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
               ? fspec_slopes_near_avx2(slopes, re, im)
               : near_baseline(slopes, re, im);
}
#else
fspec_slopes_value fspec_slopes_near(const fspec_slopes *slopes, double re, double im)
{
    return near_baseline(slopes, re, im);
}
#endif
