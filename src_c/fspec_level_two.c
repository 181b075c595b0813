/* Two lanes: the baseline of 64-bit x86 and ARM. */
#if (defined(__GNUC__) || defined(__clang__)) && (defined(__x86_64__) || defined(__aarch64__))
#define FSPEC_LANES 2
#define FSPEC_KERNELS fspec_kernels_two
#define FSPEC_LEVEL_NAME "two lanes"
#include "fspec_kernels.h"
#else
typedef int fspec_level_two_unused;
#endif
