/* The inside of a law: one analytic equation, its ends, its atoms.
 *
 * Every law here is a sum of logarithms in one complex unknown t, anchored at its top edge t_e
 * (a real critical point). With d = t - t_e and E = 1 + k t,
 *
 *     F(d) = -log(t/t_e) + n1 log((1+t)/(1+t_e)) + n log(E/E_e) + alpha d + delta = 0,
 *     delta = log(lambda_top) - log z,
 *
 * so that nothing large has to cancel near the edge. The unknown is carried three times, as
 * t, E and d: whichever is small keeps its relative accuracy (t far out, E at a hard edge, d at
 * the top). m = t, or t/(kappa - t) where the equation is simplest in w = m/(1+m).
 */
#ifndef FSPEC_LAW_H
#define FSPEC_LAW_H

#include <stdint.h>

#include "fspec_chain.h"

enum fspec_equation {
    FSPEC_EQ_RESNET,    /* n1 = 0, n = k = 1, alpha > 0; symmetric about its log centre */
    FSPEC_EQ_PLAIN,     /* n1 in {0, 1}, n >= 2, k >= 1, alpha = 0 */
    FSPEC_EQ_BERNOULLI, /* n1 = n = 0, alpha = 1 */
    FSPEC_EQ_MARCHENKO, /* one Gaussian layer, quadratic */
    FSPEC_EQ_ATOMS,     /* no continuous part */
    FSPEC_EQ_CHAIN      /* fspec_chain.h: everything is in the table */
};

/* A finite end of the support: lambda = (mantissa + mantissa_lo) 2^exponent and its log, each
 * with the part that a double drops. A hard end at 0 has log = -inf. */
typedef struct {
    double mantissa, mantissa_lo, exponent;
    double log, log_lo;
} fspec_edge;

/* A known point of the curve along the support, for starting guesses: s = sqrt(delta), log|E|
 * and -arg E there, and their derivatives in s. */
typedef struct {
    double s, log_e, arg_e, dlog_e, darg_e;
} fspec_node;

typedef struct {
    double log_location, location, mass;
} fspec_atom;

enum { FSPEC_MAX_NODES = 512, FSPEC_INDEX = 1024 };

struct fspec_law {
    enum fspec_equation equation;
    fspec_edge top, bottom;
    /* two soft edges: points below the centre are measured from the bottom edge (the resnet law
     * is symmetric about its centre, so that the same equation serves both halves) */
    int two_edges;
    double log_center, center;
    double gap_max; /* distance from the top beyond which y = -Im m underflows: density 0 */

    double t_edge, e_edge, k, k_minus_1, n1, n, alpha;
    int mobius; /* 1: m = t/(kappa - t); 0: m = t */
    double kappa, kappa_gap; /* kappa_gap = kappa - t_edge */

    /* Phi(t) = int (1+m) dlog z, whose imaginary part is pi times the mass above:
     * -log t + c_kappa log(kappa - t) + c_e log E + b1 t + b2 t^2 */
    double c_kappa, c_e, b1, b2;
    double slope_one, slope_zero; /* P(slope = 1), P(slope = 0) */
    int ensemble;

    double continuous_mass;
    int n_atoms;
    fspec_atom atoms[2];

    double depth, log_mean; /* log of the first moment */
    struct fspec_table *table; /* of a chain, else NULL */

    /* starting guesses */
    double guess_g0, guess_g1, guess_length; /* resnet: closed form; length = half width in log */
    int n_nodes;                             /* plain: a walk along the support */
    double index_scale;
    int16_t *index;
    fspec_node *nodes;
};

/* fspec_law.c */
fspec_law *fspec_law_new(enum fspec_equation equation);
int fspec_law_finish(fspec_law *law, int status, fspec_law **out);
void fspec_law_set_edge(fspec_edge *edge, long double log_lambda);
double fspec_edge_lambda(const fspec_edge *edge);
void fspec_law_add_atom(fspec_law *law, double log_location, double mass);

/* fspec_level_portable.c */
int fspec_plain_walk(fspec_law *law);

/* A point of the support: side +1 measures delta down from the top edge, -1 up from the
 * bottom; delta = dk ln 2 + df. */
typedef struct {
    double side, dk, df;
} fspec_point;

/* The solved unknown there (imaginary parts <= 0). */
typedef struct {
    double t_re, t_im, e_re, e_im, d_re, d_im;
    int status;
} fspec_root;

fspec_point fspec_locate(const fspec_law *law, double x, int variable);
fspec_root fspec_solve_point(const fspec_law *law, fspec_point at);

/* The masses of the continuous part above and below a solved point, and y = pi lambda rho. */
typedef struct {
    double above, below, y;
    int status;
} fspec_tails;

fspec_tails fspec_law_tails(const fspec_law *law, fspec_point at);

/* Where array kernels put solved points. one_re is Re(1 + m), kept apart because m may be near
 * -1; density is not set by `plane`. */
typedef struct {
    double *m_re, *m_im, *one_re, *density, *residual, *error_bound;
    int *status;
} fspec_solved;

/* One set of array kernels per instruction level (fspec_level_*.c), chosen in fspec_dispatch.c.
 * `plane` takes log|z| and arg z in (0, pi], or arg z = 0 outside the support. */
typedef struct {
    const char *name;
    size_t (*density)(const fspec_law *, size_t, const double *, int, double *);
    size_t (*solve)(const fspec_law *, size_t, const double *, int, fspec_solved);
    size_t (*plane)(const fspec_law *, size_t, const double *, const double *, fspec_solved);
    fspec_chain_newton_fn chain;
    size_t (*table)(const fspec_law *, size_t, const double *, int, double *);
} fspec_kernels;

/* fspec_law_chain.c: the queries of a chain */
int fspec_table_atom_count(const struct fspec_table *table);
fspec_atom fspec_table_atom(const struct fspec_table *table, int i);
double fspec_chain_point(const fspec_law *law, double x, int variable);
size_t fspec_chain_density(const fspec_law *law, size_t n, const double *x, int variable,
                           double *density);
size_t fspec_chain_tails(const fspec_law *law, size_t n, const double *x, int variable,
                         double *cdf, double *ccdf);
size_t fspec_chain_quantile(const fspec_law *law, size_t n, const double *p, int variable,
                            double *x);
size_t fspec_chain_solve(const fspec_law *law, size_t n, const double *x, int variable,
                         fspec_solved out);
size_t fspec_chain_walk(const fspec_law *law, size_t n, const double *x, int variable,
                        fspec_solved out);
size_t fspec_chain_plane(const fspec_law *law, size_t n, const double *x, const double *y,
                         fspec_solved out);

extern const fspec_kernels fspec_kernels_portable;
enum { FSPEC_LEVELS = 4 };
/* Kernels of a level in [0, FSPEC_LEVELS); NULL where the build or the processor lacks it. */
const fspec_kernels *fspec_kernels_level(int level);
const fspec_kernels *fspec_kernels_best(void);

/* fspec_law_marchenko.c: one Gaussian layer in closed form */
void fspec_marchenko_init(fspec_law *law, double weight_variance);
fspec_root fspec_marchenko_root(const fspec_law *law, fspec_point at);
void fspec_marchenko_plane(const fspec_law *law, double log_abs, double arg, double *m_re,
                           double *m_im);

#endif
