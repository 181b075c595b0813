/* Residual blocks that follow each other share the coordinates of their slopes: they are not free.
 *
 * Given the coordinates' slopes d_1 .. d_L the chain is scalar, site by site,
 *
 *     P_l = a^2 P_(l-1)/(1 - P_(l-1) beta_l) + alpha_l d_l,           P_0 = 1,
 *     Q_(l-1) = a^2 Q_l/(1 - Q_l alpha_l d_l) + beta_l,               Q_L = 1/z,
 *
 * and alpha_l = gin_l phi_l, beta_l = gout_l phi_l close it over averages, gin_l =
 * <P_(l-1)/(1 - P_(l-1) Q_(l-1))>, gout_l = <d_l Q_l/(1 - P_l Q_l)>. phi(x), x = beta gin =
 * alpha gout, is what stands between the site's slopes and the next ones below: sigma^2 for a
 * Gaussian matrix, sigma^2/(1+x) for an orthogonal one, 1/((1+x) S(x)) for a product of S-transform
 * S. The average over the L^K patterns of slopes is one over P_l and Q_l, which are independent;
 * their laws are kept as complex Gauss rules.
 *
 * All is relative to the free law of the same blocks *at the same m*: with its P_l (`frame`), w =
 * m/(1+m) and P_l = Pfree_l p_l, Q_l = Qfree_l q_l, alpha_l = alphafree_l A_l, beta_l =
 * betafree_l B_l, the unknowns A_l, B_l and E = q_L = zfree/z are 1 for rules of one node, and the
 * rules are those of p/(1 - w p) and q/(1 - w q), in which the averages are power series. What
 * comes out is D(m) = log z - log zfree = -log E: one more term beside the -log S_b(m).
 */
#ifndef FSPEC_RUN_H
#define FSPEC_RUN_H

#include "fspec_chain.h"

struct fspec_run {
    fspec_chain *frame; /* the distinct blocks, slopes as short rules */
    fspec_slopes **rules;
    size_t n_rules;
    size_t n_sites, *sites; /* blocks of the frame, from the input */
    size_t *kinds;          /* ... which are these blocks of the chain */
    size_t nodes;           /* of the rules of p and q; 0: the closed correction */
    size_t first, size;     /* in the chain's state: the frame's, then A_1.., B_1.., E */
};

/* The run of the sites as they are in the chain of `blocks`. */
int fspec_run_init(fspec_run *run, const fspec_block *blocks, const fspec_shared *sites);
void fspec_run_free(fspec_run *run);

/* Lets sites of a chain just made of `blocks` share their coordinates. */
int fspec_chain_share(fspec_chain *chain, const fspec_block *blocks, size_t n_runs,
                      const fspec_shared *runs);

/* Room to solve a run in. */
typedef struct fspec_run_room fspec_run_room;
fspec_run_room *fspec_run_room_new(const fspec_run *run);
void fspec_run_room_free(fspec_run_room *room);

typedef struct {
    double complex d, slope; /* D(m) and D'(m) */
} fspec_run_term;

/* D at m (one = 1 + m), from and to the run's part of a state; with `rates` not NULL also D' and
 * dx/dm of that part. */
int fspec_run_solve(const fspec_run *run, fspec_run_room *room, double complex m,
                    double complex one, fspec_state *x, fspec_state *rates, fspec_run_term *out);

/* A start at small m; the signs Im alpha_l, Im beta_l <= 0 of a solved state. */
void fspec_run_start(const fspec_run *run, double m, fspec_state *x);
int fspec_run_check(const fspec_run *run, const fspec_state *x);
/* The frame's m and what follows from it (see fspec_chain_reconcile). */
void fspec_run_reconcile(const fspec_run *run, double complex m, double complex one,
                         fspec_state *x);

#endif
