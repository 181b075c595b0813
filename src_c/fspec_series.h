/* Moments of a chain from power series. */
#ifndef FSPEC_SERIES_H
#define FSPEC_SERIES_H

#include <stddef.h>

#include "fastspec.h"

/* log E lambda^k of the chain for k = 1 .. order, into log_moments[0 .. order - 1]. final_width is
 * the output width of the last block, in the unit of the layers' widths. A smooth slope law counts
 * as its Gauss rule: order must not exceed twice the rule's number of nodes.
 * FSPEC_BAD_ARGUMENT: no block, order = 0, a block given by log_s, a plain block of several layers,
 * slopes without moments. FSPEC_NOT_CONVERGED: a moment that rounding may have spoilt, which
 * happens beyond k = 20, is NaN; the others stand, to 2e-12. */
int fspec_chain_log_moments(size_t n_blocks, const fspec_block *blocks, double final_width,
                            unsigned order, double *log_moments);

#endif
