/* What freeness of residual blocks leaves out when their slopes share the coordinate basis.
 *
 * In the chain of a_l I + D_l W_l the diagonal matrices commute, so the blocks are not free. The
 * exact law has the potential U = int log(z - t) rho(dt), of which the free chain is the one-site
 * approximation; the first corrections, at given m, are sums over pairs and triples of sites:
 *
 *     dU_1 = -1/2 sum_{i<j} omega_i omega_j Y_ij^2,
 *     dU_3 = -4 sum_{i<j<k} omega_i omega_j omega_k Y_ik^2,   Y_ij = prod_{k=i+1..j} y_k.
 *
 *     omega = Var w/(E w)^2,  w = zeta/(zeta - d),   E w = 1 + u  (no conjugation),
 *     y = (1+m) t/(m (1+t)),  0 for a plain layer,
 *
 * u, t and zeta as in fspec_chain.h; of a block with several factors, d and zeta are those of the
 * last one, whose slopes stand next to the skip. Of the law: the distribution function moves by
 * -Im dU/pi at given lambda, and log z = log((1+m)/m) - sum_b n_b log S_b(m) - dU'(m).
 */
#ifndef FSPEC_CLOSED_H
#define FSPEC_CLOSED_H

#include "fspec_chain.h"

typedef struct {
    /* dU = dU_1 + dU_3 and its first three derivatives with respect to m. The error of derivative k
     * is rounding in k! dU/e^k, e the distance of m from the nearer hard end. */
    double complex u[4];
    double complex two, three; /* dU_1 and dU_3 */
    /* The largest in modulus of three estimates of what is left out: the pairs' cubic term
     * -1/3 sum E r_i^3 E r_j^3 Y_ij^3 and quartic term -1/4 sum E r_i^4 E r_j^4 Y_ij^4,
     * r = w/(E w) - 1, and dU_3^2/dU_1. */
    double complex next;
} fspec_closed;

/* The correction of sites that share a basis: sites[0] next to the input, each a plain or residual
 * block of `frame` (whose slopes are all discrete), x a state of `frame` (size unknowns) solved at
 * m = x[0]. Everything is NaN if there was no memory. */
void fspec_closed_correction(const fspec_chain *frame, size_t n_sites, const size_t *sites,
                             const fspec_state *x, fspec_closed *out);

#endif
