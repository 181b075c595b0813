/* The support of a chain, found by walking its real axis downwards from z = infinity.
 *
 * In a gap, m is real and grows while l falls, and dl/dm < 0; the gap ends at dl/dm = 0 (a square
 * root edge) or at m = infinity (an atom, or an inverse-root end). On a piece of the support the
 * walk keeps its solved states, from which tables and queries start.
 */
#ifndef FSPEC_WALK_H
#define FSPEC_WALK_H

#include "fspec_path.h"

/* How the density of log lambda behaves at an end of a piece. A tail at the high end is one that
 * vanishes faster than any power (slopes whose supremum is never reached): its states stop where
 * its mass is rounding. So does one at the low end unless the law reaches 0. */
enum fspec_end { FSPEC_END_ROOT, FSPEC_END_INVERSE, FSPEC_END_TAIL };

typedef struct {
    double low, high; /* normalised l; low = -inf for a tail to 0 */
    enum fspec_end low_end, high_end;
    size_t first, count; /* its states, l descending; edge states included */
} fspec_piece;

/* What is kept of a walked chain. States are `size` unknowns and as many rates. */
typedef struct {
    const fspec_chain *chain;
    int unresolved; /* the last piece ends where its slopes are no longer resolved */
    double reach; /* relative change of the unknowns in one step */
    int blurred;  /* take an edge that faint slopes blur for an edge, not for a soft top */
    size_t n_states, room;
    double *l;
    double complex *slopes, *states;
    size_t n_pieces;
    fspec_piece *pieces;
} fspec_support;

void fspec_support_init(fspec_support *s, const fspec_chain *chain, double reach);
void fspec_support_free(fspec_support *s);

/* One more piece below the walker (a real point of a gap; the first call starts from z =
 * infinity). FSPEC_OK and *found = 1; *found = 0 when nothing is left below. */
int fspec_support_next(fspec_support *s, fspec_walker *w, int *found);

static inline const fspec_state *fspec_support_state(const fspec_support *s, size_t i)
{
    return s->states + 2 * s->chain->size * i;
}

#endif
