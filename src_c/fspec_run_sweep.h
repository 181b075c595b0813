/* The inside of a run (fspec_run.h): its room, and one sweep over its sites. */
#ifndef FSPEC_RUN_SWEEP_H
#define FSPEC_RUN_SWEEP_H

#include "fspec_rule.h"
#include "fspec_run.h"

/* What the recursions need of one block of the frame, solved at m. */
typedef struct {
    const fspec_chain_block *block;
    const fspec_slopes *slopes;      /* next to the skip */
    size_t heavy;                    /* the slope of mass > 1/2, if there is one */
    double complex u, v, phi;        /* v = 1 + u */
    double complex r;                /* Pfree_l/Pfree_(l-1) */
    double complex carried;          /* a^2/r */
    double complex alpha, beta_in;   /* alphafree/Pfree_l; betafree Pfree_(l-1) */
    double complex beta_out;         /* betafree/Qfree_(l-1) */
    double complex gout;             /* gout/(gout of the free law) over <d q/(1 - w p q)> */
} fspec_run_block;

enum { FSPEC_RUN_UPDATES = 40 };

struct fspec_run_room {
    size_t unknowns; /* 2 sites + 1 */
    double complex m, one, w;
    int by_c; /* rules in c = 1/(1 - w p), else in g = p/(1 - w p) = (c - 1)/w */
    fspec_run_block *blocks;
    /* The laws of p and q at 0 .. sites. Coordinates whose slope has been the heavy one throughout
     * make the atoms; they keep a node of their own, the first, where `kept` says so: beside an
     * atom it is far away, and the others' rule is no worse for it. */
    fspec_rule *p, *q;
    int *kept_p, *kept_q;
    double complex *node, *weight, *scratch;
    double complex *matrix, *f, *step, *moved; /* the inverse's LU; updates of it in `moved` */
    double complex *trial, *spare, *minus;
    size_t *pivot;
    int has_matrix; /* of this or a point nearby */
    fspec_state *frame, *beside;
};

/* Block i of a frame whose state is solved at m. */
fspec_run_block fspec_run_block_at(const fspec_chain *frame, size_t i, double complex m,
                                   double complex one, const fspec_state *state);
/* Takes the frame's state, solved at room->m. */
void fspec_run_set_blocks(const fspec_run *run, fspec_run_room *room, const fspec_state *frame);
/* What is left of the equations for A, B and m at x, with rules of so many nodes. */
int fspec_run_sweep(const fspec_run *run, fspec_run_room *room, size_t nodes,
                    const double complex *x, double complex *f);

#endif
