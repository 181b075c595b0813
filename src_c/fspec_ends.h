/* The outer ends of a chain's support where its density vanishes faster than any power.
 *
 * Slopes whose infimum or supremum is approached only as |h| -> infinity take the end of the law
 * with them: far out the density falls below rounding, and a walk down the support cannot see
 * where it ends. From the other side it can: outside of the support m is real, from m = 0 upwards
 * above it (z = infinity), from m = -P(lambda > 0) downwards below it (z = 0), and dl/dm < 0. The
 * gap ends at dl/dm = 0 (a square root) or where one zeta meets the hull of its slopes, whichever
 * comes first.
 */
#ifndef FSPEC_ENDS_H
#define FSPEC_ENDS_H

#include "fspec_walk.h"

/* Puts the ends of a walked support where they are. FSPEC_OK, or what kept from telling. */
int fspec_support_find_ends(fspec_support *s);

/* Normalised l of the upper end (INFINITY: slopes without bound). */
int fspec_chain_high_end(const fspec_chain *chain, double *end);
/* ... of the lower end below `l`; -INFINITY where the law reaches 0. */
int fspec_chain_low_end(const fspec_chain *chain, double l, double *end);

#endif
