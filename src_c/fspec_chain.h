/* A chain of independent random factors, J = Y_L ... Y_1, as one equation for m = z G(z) - 1:
 *
 *     log z = log((1+m)/m) - sum_b n_b log S_b(m).
 *
 * Every block is normalised by its mean inside the logarithm, l = log z - sum_b n_b log mean_b:
 *
 *     l = log((1+m)/m) + sum_rho c_rho log(1 + rho m) + sum_b n_b T_b.
 *
 * Plain layer D W, seen at r m (r = N_L/N_out; 1 in square chains), unknown zeta:
 *     M(zeta) = r m,   T = log(r m zeta/mu_1);
 *     its other logarithms (1+r m, the weights' S) are the c_rho terms.
 * Residual block a I + X, X = D_J W_J ... D_1 W_1, unknowns u, t = m - u, zeta_1 .. zeta_J:
 *     M_j(zeta_j) = u,   t(1+t)/a^2 = x = u^(1-J) (1+u)^(1+J-g) / prod_j(sigma_j^2 zeta_j),
 *     T = log(m(1+m)/(t(1+t))) - log(1 + kappa/a^2)      (g = number of Gaussian weights).
 * A law given by log S: T = -log S(m) - log mean.
 *
 * z in the closed upper half plane: m, 1+m in the lower one, and the subordinated argument of
 * every block, omega_b = (1+m)/(m S_b), in the upper one. Those signs make the principal
 * logarithms right for any real n_b, and they single out the root (chain_check).
 */
#ifndef FSPEC_CHAIN_H
#define FSPEC_CHAIN_H

#include <complex.h>
#include <stddef.h>

#include "fspec_slopes.h"

#define FSPEC_PI 3.14159265358979323846264338327950288

enum fspec_block_kind { FSPEC_PLAIN, FSPEC_RESIDUAL, FSPEC_GIVEN };

/* A slope law and its weight matrix; the sums over k need these products. */
typedef struct {
    const fspec_slopes *slopes;
    const double *d, *w, *wd, *wd2; /* slopes->count each */
    double log_variance;            /* log sigma^2 */
    int gaussian;
} fspec_factor;

typedef struct {
    enum fspec_block_kind kind;
    double n;         /* repeat, or a compressed layer's weight */
    double r, bound;  /* plain: M = r m, M + P = r (e + bound) */
    double rho;       /* plain: N_L/N_in of its input */
    double widening;  /* plain: (N_out - N_in)/N_L where that is positive */
    double skip2;     /* a^2 */
    double power;     /* 1 + J - g */
    double scale;     /* prod sigma_j^2 / a^2 */
    double log_norm;  /* log(1 + kappa/a^2) */
    double log_mean;
    size_t first_factor, n_factors;
    size_t first; /* of its unknowns: zeta; or u, 1+u, t, 1+t, zeta_1 .. zeta_J */
    fspec_log_s_fn log_s;
    void *data;
} fspec_chain_block;

typedef struct {
    double rho, n, bound; /* n log(1 + rho m), 1 + rho m = rho (e + bound) */
} fspec_chain_term;

/* An atom where mass > 0. The signed value of the rule that gives the mass is kept down to
 * -FSPEC_NEARLY_CRITICAL: at 0 there is an inverse-root point. */
#define FSPEC_NEARLY_CRITICAL 2e-5

typedef struct {
    double log_location, location, mass;
} fspec_chain_atom;

/* Sites next to each other whose slopes share one basis of coordinates (fspec_run.h): residual
 * blocks, perhaps with a plain layer below them. */
typedef struct fspec_run fspec_run;

typedef struct fspec_chain {
    size_t n_blocks, n_factors, n_terms, n_atoms;
    fspec_chain_block *blocks;
    fspec_factor *factors;
    fspec_chain_term *terms;
    fspec_chain_atom *atoms; /* ascending; an atom at 0 has log -inf */
    double slack;            /* |mass| up to which an atom is taken for an inverse-root point */
    double *pool;            /* the factors' arrays */
    size_t size;             /* unknowns: m, e = m + positive, then the blocks' */
    double positive;         /* 1 - mass at 0 */
    double log_mean;
    int given;               /* has a block given by log S */
    int of_m_only;           /* ... as a function of m alone */
    size_t n_source;         /* what it was made of, for the moments */
    fspec_block *source;
    fspec_layer *source_layers;
    double final_width;
    double error; /* of log z, from slope laws that are themselves computed */
    size_t n_runs;
    fspec_run *runs;
    struct fspec_chain *free; /* with runs: the same blocks taken as free, of which `size` is more */
} fspec_chain;

/* log E lambda^k from power series (NaN where they do not apply), and Var/mean^2. */
double fspec_chain_log_moment(const fspec_chain *chain, unsigned k);
double fspec_chain_relative_variance(const fspec_chain *chain);

/* One solved state: `size` complex unknowns; x[0] = m, x[1] = e. */
typedef double complex fspec_state;

typedef struct {
    double complex f;     /* residual of the equation */
    double complex slope; /* dl/dm with the blocks solved */
    double step;          /* last relative change */
    int steps, status;
} fspec_chain_result;

enum { FSPEC_FREE_M = 0, FSPEC_FIXED_M = 1 };

/* fspec_given.c */
#define FSPEC_GIVEN_ACCURACY 1e-11

typedef struct {
    double log_location, excess;
} fspec_given_far;

/* -log S - log mean and its derivative, as (re, im, re, im) */
void fspec_given_value(const fspec_chain_block *block, double m_re, double m_im, double one_re,
                       double value[4]);
/* The atom of a law given by log S: 1 and its place and mass (the signed value of the rule that
 * gives it), or 0 if S has no limit at infinity. */
int fspec_given_atom(const fspec_chain_block *block, fspec_given_far *far);

/* fspec_chain.c */
int fspec_chain_new(size_t n_blocks, const fspec_block *blocks, double error,
                    fspec_chain **out);
void fspec_chain_free(fspec_chain *chain);
/* fspec_chain_atoms.c: fills chain->atoms. */
int fspec_chain_find_atoms(fspec_chain *chain);
/* Whether the state is on the branch of z in the upper half plane (arg z = 0 allowed). */
int fspec_chain_check(const fspec_chain *chain, const fspec_state *x);
/* A state at small m > 0, to start Newton's method from. */
void fspec_chain_start(const fspec_chain *chain, double m, fspec_state *x);
/* Restores e = m + positive, u + t = m, 1 + u, 1 + t after the unknowns were guessed one by one. */
void fspec_chain_reconcile(const fspec_chain *chain, fspec_state *x);

/* Newton's method on n states (n * size unknowns) at normalised l, or at their m. `rates`, if not
 * NULL, receives dx/dm of every unknown of the converged states. */
void fspec_chain_newton(const fspec_chain *chain, size_t n, const double complex *l, int mode,
                        fspec_state *x, fspec_state *rates, fspec_chain_result *out);
/* ... of a chain without runs, on lanes (one state: on none) */
typedef void (*fspec_chain_newton_fn)(const fspec_chain *chain, size_t n, const double complex *l,
                                      int mode, fspec_state *x, fspec_state *rates,
                                      fspec_chain_result *out);
fspec_chain_newton_fn fspec_free_newton(size_t n);

#endif
