/* The panels of a smooth slope law: on each, phi'(h) as a Chebyshev series of t in [-1, 1], where
 * h = mean + sqrt(q) z, z = centre + half t. There are several covers of the same range of h, whose
 * joints differ: a root of phi'(h)^2 = zeta close to a joint of one is inside a panel of another.
 */
#ifndef FSPEC_PANELS_H
#define FSPEC_PANELS_H

#include <stddef.h>

enum {
    FSPEC_RULES = 3,       /* Gauss-Legendre rules of 20, 21 and 22 nodes */
    FSPEC_RULE_SIZE = 20,  /* of the smallest */
    FSPEC_RULE_PAD = 24,   /* nodes are padded to whole lanes, with weight 0 */
    FSPEC_MAX_TERMS = 24,  /* of a Chebyshev series */
    FSPEC_ELLIPSES = 3
};

/* Bernstein ellipses about a panel, as log rho = log 2.6, log 2.95, log 3.35. Poles outside the
 * first leave an error rho^-(2n + 1) = 1e-17 in the n = 20 rule; where a root is too close to it to
 * tell on which side, another one decides. */
static const double FSPEC_LOG_RHO[FSPEC_ELLIPSES] = {0.9555114450274363, 1.0818051703517284,
                                                     1.2089603458369751};

typedef struct {
    double centre, half;
    double series[FSPEC_MAX_TERMS];
    size_t terms;
    double reach;      /* bound of |series - series[0]| on the first ellipse */
    double remainder[FSPEC_ELLIPSES]; /* bounds of the terms beyond the quadratic one */
    int joints;        /* bit 0: the left end is a joint, bit 1: the right end */
    double d[FSPEC_RULE_PAD], weight[FSPEC_RULE_PAD]; /* at the nodes of the smallest rule */
} fspec_panel;

typedef struct {
    double node[FSPEC_RULE_PAD], weight[FSPEC_RULE_PAD];
    size_t size;
} fspec_rule;

struct fspec_panels {
    fspec_rule rules[FSPEC_RULES];
    int exponent;    /* phi' is divided by 2^exponent: nothing over- or underflows */
    size_t n_covers;
    size_t *start;   /* panels start[c] ... start[c + 1] - 1 are cover c */
    fspec_panel *panel;
};

/* d = phi'^2 and the Gaussian weights at the nodes of a rule. */
void fspec_panel_nodes(const fspec_panel *panel, const fspec_rule *rule,
                       double d[FSPEC_RULE_PAD], double weight[FSPEC_RULE_PAD]);

#endif
