/* Following one root of a chain's equation: along l (complex or real), and along m.
 *
 * A point carries the state, dx/dm and dl/dm. Steps are predicted in log x (unknowns run over
 * decades), corrected by Newton's method and accepted only if the corrector stayed near the
 * prediction and the state is on the branch (fspec_chain_check); otherwise they are shortened.
 */
#ifndef FSPEC_PATH_H
#define FSPEC_PATH_H

#include "fspec_chain.h"

typedef struct {
    const fspec_chain *chain;
    double complex l;     /* normalised log z */
    double complex slope; /* dl/dm */
    fspec_state *x, *rates;
    fspec_state *memory;  /* x, rates and a trial copy of x */
    int unchecked;        /* 1 while searching critical points off the branch, along m only */
} fspec_walker;

int fspec_walker_init(fspec_walker *w, const fspec_chain *chain);
void fspec_walker_free(fspec_walker *w);
void fspec_walker_copy(fspec_walker *to, const fspec_walker *from);

/* The state at m + dm, every other unknown as x exp(dm x'/x). */
void fspec_chain_predict(const fspec_chain *chain, const fspec_state *x, const fspec_state *rates,
                         double complex dm, fspec_state *out);
/* dm of a step dl, from b exp(dl b'/b), b the smaller of m and e. */
double complex fspec_chain_log_step(const fspec_state *x, double complex slope, double complex dl);

/* max |d log x/dm| over all unknowns, m against the smaller of m and e */
double fspec_walker_rate(const fspec_walker *w);

/* A real point above the top edge, m small. */
int fspec_walker_start(fspec_walker *w);
/* To another m, along the segment from the present one. */
int fspec_walker_to_m(fspec_walker *w, double complex m);
/* To another l, along the segment from the present one (im l in [0, pi]). */
int fspec_walker_to_l(fspec_walker *w, double complex l);
/* To the real critical point dl/dm = 0 near m = guess. */
int fspec_walker_to_edge(fspec_walker *w, double low, double high);
/* Drops imaginary parts that are rounding, and solves again at real m. */
int fspec_walker_land(fspec_walker *w);
/* By a polygon on the half circle below real m, from the present m to its mirror image in `centre`:
 * over a singular point, or, about 0 and wide, past an atom, where m runs through infinity. */
int fspec_walker_over(fspec_walker *w, double centre);
/* l at |z|, arg z from z = infinity: the slow route that needs nothing but the chain. */
int fspec_walker_from_above(fspec_walker *w, double complex l);

#endif
