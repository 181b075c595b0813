/* Gauss rules for complex weights: n nodes that integrate polynomials of degree < 2n as a longer
 * sum does. There is no positivity: nodes and weights are complex, and orthogonality is that of
 * the bilinear form sum w f g.
 */
#ifndef FSPEC_RULE_H
#define FSPEC_RULE_H

#include <complex.h>
#include <stddef.h>

enum { FSPEC_RULE_NODES = 64 };

typedef struct {
    size_t n; /* 0: not found */
    double complex x[FSPEC_RULE_NODES], w[FSPEC_RULE_NODES];
    size_t guessed; /* where the rule before this one had its nodes, in its own units */
    double complex guess[FSPEC_RULE_NODES];
} fspec_rule;

/* The rule of at most `most` <= FSPEC_RULE_NODES nodes; the weights sum to 1. `scratch` holds
 * (most + 1) count numbers. */
void fspec_rule_compress(size_t count, const double complex *node, const double complex *weight,
                         size_t most, double complex *scratch, fspec_rule *rule);

#endif
