/* The panels of a smooth slope law: on each, phi'(h) as a polynomial of t in [-1, 1], where
 * h = mean + sqrt(q) z, z = centre + half t. There are several covers of the same range of h, whose
 * joints differ: a root of phi'(h)^2 = zeta close to a joint of one is inside a panel of another.
 */
#ifndef FSPEC_PANELS_H
#define FSPEC_PANELS_H

#include <stddef.h>

enum {
    FSPEC_RULES = 3,      /* Gauss-Legendre rules of 20, 21 and 22 nodes */
    FSPEC_RULE_SIZE = 20, /* of the smallest */
    FSPEC_RULE_PAD = 24,  /* of the others, filled up with weight 0 */
    FSPEC_MAX_TERMS = 24, /* of the polynomial */
    FSPEC_CORNERS = 32
};

/* Bernstein ellipse about a panel: a pole outside leaves an error rho^-(2n + 1) = 5e-17 in the
 * n = 20 rule. */
static const double FSPEC_RHO = 2.5;

typedef struct {
    double centre, half;
    size_t terms;
    double power[FSPEC_MAX_TERMS]; /* phi' = sum power[k] t^k */
    double guess[3];               /* its best quadratic, in powers of t */
    int joints;                    /* bit 0: the left end is a joint, bit 1: the right end */
    double corner_re[FSPEC_CORNERS + 1], corner_im[FSPEC_CORNERS + 1]; /* phi' on the ellipse */
} fspec_panel;

typedef struct {
    double node[FSPEC_RULE_PAD], weight[FSPEC_RULE_PAD];
    size_t size, stride; /* of the nodes of one panel */
} fspec_rule;

struct fspec_panels {
    fspec_rule rules[FSPEC_RULES];
    int exponent;    /* phi' is divided by 2^exponent: nothing over- or underflows */
    size_t n_covers;
    size_t *start;   /* panels start[c] ... start[c + 1] - 1 are cover c */
    fspec_panel *panel;
    double *middle, *reach2;  /* |phi' - middle|^2 on the ellipse is at most reach2 */
    double *d[FSPEC_RULES], *weight[FSPEC_RULES]; /* phi'^2 and Gaussian weights at the nodes */
};

#endif
