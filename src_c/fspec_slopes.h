/* The law of the squared slope d = phi'(h)^2 of one layer, as the chain sees it:
 *
 *     M(zeta) = E d/(zeta - d),   M + P(d > 0) = zeta E_{d>0} 1/(zeta - d).
 *
 * A discrete law is its atoms. A smooth one is the Gauss rule of its law, good to rounding where
 * |zeta - top| + |zeta| >= guard (a Bernstein ellipse about [0, top]), and a set of panels in h
 * that serves every other zeta up to the real axis.
 */
#ifndef FSPEC_SLOPES_H
#define FSPEC_SLOPES_H

#include <stddef.h>

#include "fastspec.h"

typedef struct fspec_panels fspec_panels; /* fspec_panels.h */

struct fspec_slopes {
    size_t count;         /* atoms, or nodes of the Gauss rule: ascending, all > 0 */
    double *value, *mass; /* (mass sums to positive) */
    double positive;      /* P(d > 0) */
    double zero;          /* P(d = 0) */
    double mean, second;  /* E d, E d^2 */
    double bottom, top;   /* inf and sup of d > 0 where it has mass */
    double least, largest; /* ... over all h, also where the mass is rounding */
    double guard;         /* 0 for a discrete law */
    double resolved;      /* the panels serve |zeta| >= this */
    size_t n_atoms;       /* atoms d > 0 of the law itself (not of the rule) */
    double *atom_value, *atom_mass;
    size_t n_critical; /* values where the density of d is infinite like an inverse root */
    double *critical;
    fspec_panels *panels; /* NULL for a discrete law */
};

typedef struct {
    double m_re, m_im;     /* M */
    double e_re, e_im;     /* M + P(d > 0), with its own relative accuracy */
    double dm_re, dm_im;   /* dM/dzeta */
} fspec_slopes_value;

/* M at any zeta, by the panels inside the guard and by the rule outside; on the real axis the
 * limit from above (im = +0) or from below (im = -0). Not finite at an atom, a critical value or
 * NaN. All of it is NaN where the panels are not fine enough: for 0 < |zeta| < resolved, inside
 * the guard, of a law that comes as near to 0. */
fspec_slopes_value fspec_slopes_near(const fspec_slopes *slopes, double re, double im);

#endif
