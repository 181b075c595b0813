/* fastspec: singular-value spectra of deep networks at random initialisation.
 *
 * A law is the limiting distribution of the eigenvalues lambda of J J^T (squared singular values
 * of the input-output Jacobian J). Laws are opaque, immutable handles: made by one of the
 * constructors, shared freely between threads, freed once. No function keeps global state.
 *
 * Conventions. Every function that can fail returns an int: FSPEC_OK (0) or a status code, which
 * fspec_status_message() turns into a sentence; codes are never renumbered. Arrays are caller
 * owned, contiguous doubles of the length given by n; an output pointer documented as "or NULL"
 * may be NULL. z = x + iy is passed as separate arrays of x and y.
 *
 *     m(z) = z G(z) - 1 = sum_k m_k z^-k,  G(z) = int rho(t) dt / (z - t),
 *     rho(lambda) = -Im m(lambda + i0) / (pi lambda).
 */
#ifndef FASTSPEC_H
#define FASTSPEC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FSPEC_VERSION "0.1.0"

/* ---- status codes ------------------------------------------------------------------------ */
enum {
    FSPEC_OK = 0,
    FSPEC_NOT_CONVERGED = 1, /* the iteration did not reach its accuracy: the value is NaN */
    FSPEC_WRONG_BRANCH = 2,  /* converged to a root outside the lower half plane: NaN */
    FSPEC_BAD_POINT = 3,     /* the point is NaN */
    FSPEC_SINGULAR = 4,      /* the function is infinite there (an atom, a hard edge) */
    FSPEC_BAD_ARGUMENT = 5,  /* a constructor or query argument is out of range */
    FSPEC_NO_MEMORY = 6
};

/* One sentence for a status code; never NULL. */
const char *fspec_status_message(int status);

/* ---- slope laws and chains ------------------------------------------------------------------ */
enum { FSPEC_GAUSSIAN = 0, FSPEC_ORTHOGONAL = 1 };

/* The law of d = phi'(h)^2 of a layer: immutable, shared by any number of layers and laws. It
 * must outlive the laws made of it. */
typedef struct fspec_slopes fspec_slopes;

/* Finitely many values >= 0 with their probabilities > 0 (summing to 1 within 1e-9). */
int fspec_slopes_discrete(size_t n, const double *values, const double *probabilities,
                          fspec_slopes **slopes);

/* A smooth law, described by its Gauss rule and by phi' on panels (fastspec.slopes makes both).
 * h = mean + sqrt(q) z; on panel i, z = centre[i] + half[i] t, |t| <= 1, and phi' is the Chebyshev
 * series coefficients[i * n_terms ... + n_terms - 1] in t (n_terms <= 24). The panels form n_covers
 * covers of one range of z, cover after cover; joints[i] has bit 0 set where the left end of panel
 * i is a mere joint (not a kink, not the end of the range), bit 1 for the right end. */
typedef struct {
    size_t count;               /* Gauss rule of the law of d > 0: values ascending, > 0 */
    const double *value, *mass;
    double zero;                /* P(d = 0) */
    double mean, second;        /* E d, E d^2 */
    double bottom, top;         /* inf and sup of d > 0 on the panels and atoms */
    double least, largest;      /* ... over all h; largest may be INFINITY */
    double resolved;            /* the panels serve |zeta| >= resolved; below it M is NaN */
    size_t n_atoms;             /* atoms d > 0; the panels leave them out, the rule has them */
    const double *atom_value, *atom_mass;
    size_t n_critical;          /* extrema > 0 of phi'^2 inside panels, ascending */
    const double *critical;
    size_t n_covers;
    const size_t *cover_panels; /* number of panels of each cover */
    size_t n_terms;
    const double *centre, *half, *coefficients;
    const int *joints;
} fspec_smooth_slopes;

int fspec_slopes_smooth(const fspec_smooth_slopes *law, fspec_slopes **slopes);
void fspec_slopes_free(fspec_slopes *slopes);

/* M(zeta) = E d/(zeta - d), M + P(d > 0) and dM/dzeta; on the real axis the limit from above where
 * zeta_im = +0, from below where it is -0. Outputs are n complex numbers as (re, im) pairs. */
void fspec_slopes_transform(const fspec_slopes *slopes, size_t n, const double *zeta_re,
                            const double *zeta_im, double *m, double *excess, double *dm);

/* What is known of a slope law: E d, E d^2, sup d, P(d > 0), P(d = 0), the guard (the rule
 * serves where |zeta - sup d| + |zeta| is at least that; 0 for a discrete law), and the number of
 * values of d, 0 included, of a discrete law or of the rule. */
void fspec_slopes_summary(const fspec_slopes *slopes, double summary[7]);

/* One layer D W: N_in Var(W_ij) = weight_variance; widths relative to any common unit. */
typedef struct {
    const fspec_slopes *slopes;
    double weight_variance;
    int ensemble; /* FSPEC_GAUSSIAN or FSPEC_ORTHOGONAL */
    double width_out, width_in;
} fspec_layer;

/* log S(m) and d log S/dm of a positive law of mean 1/S(0), at m in the open lower half plane (m_im
 * is -1e-300 where a limit on the real axis is meant). one_re = Re(1 + m), kept apart because m may
 * be near -1. */
typedef void (*fspec_log_s_fn)(double m_re, double m_im, double one_re, double log_s[2],
                               double dlog_s[2], void *data);

/* S = exp(-data[0] - data[1] m): the residual and the smooth universality class. */
void fspec_log_s_exponential(double m_re, double m_im, double one_re, double log_s[2],
                             double dlog_s[2], void *data);
/* S = exp(-data[0] m/(1+m)): the Bernoulli universality class. */
void fspec_log_s_bernoulli(double m_re, double m_im, double one_re, double log_s[2],
                           double dlog_s[2], void *data);

/* One factor of J: a plain layer (skip = 0, one layer), a residual block skip I + product of the
 * layers (layers[0] next to the input), or a law given by its S-transform (log_s not NULL). A
 * repeat that is not whole is the weight of a layer that stands for several similar ones. */
typedef struct {
    size_t n_layers;
    const fspec_layer *layers;
    double skip;
    double repeat;
    fspec_log_s_fn log_s;
    void *data;
    double log_mean, positive; /* of the log_s law: log of its mean, 1 - its mass at 0 */
    int of_m_only; /* log_s does not use one_re, so it loses the digits of 1 + m */
} fspec_block;

/* ---- laws -------------------------------------------------------------------------------- */
typedef struct fspec_law fspec_law;

/* Residual networks, depth -> infinity: z = a^(2L) ((1+m)/m) exp((c/a^2)(1+2m)).
 * c > 0 the effective cumulant, skip = a > 0, depth = L >= 0 (only a^(2L) depends on it). */
int fspec_law_resnet_limit(double c, double skip, double depth, fspec_law **law);

/* Smooth universality class of feed-forward nets: z = ((1+m)/m) exp(variance m), variance > 0. */
int fspec_law_smooth_limit(double variance, fspec_law **law);

/* Bernoulli universality class: z = ((1+m)/m) exp(variance m/(1+m)), variance > 0. */
int fspec_law_bernoulli_limit(double variance, fspec_law **law);

/* Product of depth >= 1 equal plain layers D W: slopes 1 with probability p and 0 with
 * probability q = 1 - p (give both: the smaller one carries the accuracy), N Var(W_ij) =
 * weight_variance, ensemble FSPEC_GAUSSIAN or FSPEC_ORTHOGONAL. p = 1, weight_variance = 1,
 * Gaussian is the Fuss-Catalan law. */
int fspec_law_plain_chain(double depth, double p, double q, double weight_variance, int ensemble,
                          fspec_law **law);

/* The exact law of a chain of blocks, blocks[0] next to the input. It is that of the output side,
 * N_L x N_L, N_L the width of the last block. error >= 0: what is known to be wrong with log z
 * (slope laws that are themselves computed); it enters the error bounds. The chain is solved here,
 * once: see fspec_law_mass_error. FSPEC_BAD_ARGUMENT: a variance, width, repeat or skip out of
 * range, a plain block of several layers, a residual block of another width than N_L. */
int fspec_law_chain(size_t n_blocks, const fspec_block *blocks, double error, fspec_law **law);

/* Blocks of a chain that follow each other and share the coordinates of their slopes, as residual
 * blocks of a network do (and a plain layer below them, as the first site). blocks[sites[0]] is
 * nearest to the input. Slopes of many values become Gauss rules of slope_nodes <= 64 values in
 * what the sharing changes; the laws over the coordinates are rules of nodes <= 64 (1: the free
 * law; exact once the nodes are as many as the patterns of slopes of all sites but one), and nodes
 * = 0 stands for the closed correction. */
typedef struct {
    size_t n_sites;
    const size_t *sites;
    size_t slope_nodes, nodes;
} fspec_shared;

/* The law of a chain of which some blocks share coordinates. A block of repeat n occurs n times,
 * in and outside of such runs. FSPEC_BAD_ARGUMENT also if a site is given by log S or has not the
 * output's width. */
int fspec_law_shared_chain(size_t n_blocks, const fspec_block *blocks, size_t n_runs,
                           const fspec_shared *runs, double error, fspec_law **law);

/* Adds to what is known to be wrong with log z. To be called before the law is shared. */
void fspec_law_add_error(fspec_law *law, double error);

/* What the sharing adds at given m (in the closed lower half plane), one row of
 * FSPEC_SHARING_TERMS complex numbers each: D = log z(m) - log z of the free law there; dU, dU' of
 * the closed correction (D is about -dU'), and the size of what that leaves out of dU. */
enum { FSPEC_SHARING_TERMS = 4 };
int fspec_sharing(size_t n_blocks, const fspec_block *blocks, size_t n_runs,
                  const fspec_shared *runs, size_t n, const double *m_re, const double *m_im,
                  double *out, int *status);

/* The atoms of fspec_law_shared_chain without solving it: at most n of them, ascending. */
size_t fspec_shared_atoms(size_t n_blocks, const fspec_block *blocks, size_t n_runs,
                          const fspec_shared *runs, size_t n, double *location, double *mass);

/* m at the ends of an interval of a chain's law; NaN where that is not a square-root edge. */
void fspec_law_interval_m(const fspec_law *law, int i, double *low, double *high);

/* m at the points a chain's law was solved at, at most n of them, spread over all: their number. */
size_t fspec_law_states(const fspec_law *law, size_t n, double *m_re, double *m_im);

/* |1 - (continuous mass found + atoms)|, the test that catches what else could go wrong in solving
 * a chain: above 1e-10 the law is incomplete. 0 for the other laws. */
double fspec_law_mass_error(const fspec_law *law);

/* Mass of a chain's law so near 0 (slopes below 1e-76 of the typical one) that it is not resolved:
 * queries there give NaN. Usually 0. */
double fspec_law_unresolved(const fspec_law *law);

/* Slopes whose infimum or supremum is never reached make a chain's density vanish there faster than
 * any power. Whether an outer end of the support lies beyond the cells for that reason; and
 * FSPEC_OK, or why such an end could not be found. */
int fspec_law_has_thin_ends(const fspec_law *law);
int fspec_law_ends_status(const fspec_law *law);
/* For a law whose blocks stand in for more of them: takes such ends from the chain of all `blocks`.
 * To be called before the law is shared. */
int fspec_law_take_ends(fspec_law *law, size_t n_blocks, const fspec_block *blocks);

void fspec_law_free(fspec_law *law);

/* ---- what is known in closed form ---------------------------------------------------------- */
/* Ends of the continuous part in log lambda (low may be -inf); returns 0 when there is none,
 * else 1. */
int fspec_law_log_support(const fspec_law *law, double *low, double *high);

/* The same in lambda, correctly rounded (low is 0 where its log is -inf). */
int fspec_law_support(const fspec_law *law, double *low, double *high);

/* The same as intervals, in increasing order: a law may have gaps. */
int fspec_law_interval_count(const fspec_law *law);
void fspec_law_interval(const fspec_law *law, int i, int variable, double *low, double *high);

/* The cells of a chain's table, in increasing order: on [low, high] the density of log lambda is
 * |log lambda - end|^power times a smooth function (power 1/2, -1/2 or 0). Quadrature over the
 * law is Gauss quadrature over them. */
size_t fspec_law_cell_count(const fspec_law *law);
void fspec_law_cell(const fspec_law *law, size_t i, double *low, double *high, double *end,
                    double *power);

/* Number of atoms; location, its logarithm (-inf for an atom at 0) and mass of atom i < that
 * number, in increasing location. */
int fspec_law_atom_count(const fspec_law *law);
void fspec_law_atom(const fspec_law *law, int i, double *location, double *log_location,
                    double *mass);

/* Mass of the continuous part. */
double fspec_law_continuous_mass(const fspec_law *law);

/* The k-th moment E lambda^k, k >= 0, from the Lagrange series (all terms positive), and its
 * logarithm, which never overflows. */
double fspec_law_moment(const fspec_law *law, unsigned k);
double fspec_law_log_moment(const fspec_law *law, unsigned k);

/* Var(lambda)/E(lambda)^2, which adds over layers. */
double fspec_law_relative_variance(const fspec_law *law);

/* E where the density behaves like lambda^(1/E - 1) at 0: 0 without a hard end there, +inf where
 * it is 1/(lambda log^2 lambda). */
double fspec_law_hard_exponent(const fspec_law *law);

/* ---- queries on arrays --------------------------------------------------------------------- */
/* How the argument array is read: lambda, log lambda, or the distance log(lambda_top/lambda) >= 0
 * below the top edge, which keeps its digits where lambda has none left (density only). */
enum { FSPEC_LAMBDA = 0, FSPEC_LOG_LAMBDA = 1, FSPEC_TOP_DISTANCE = 2 };

/* Density of the continuous part at x: of lambda (FSPEC_LAMBDA) or of log lambda (the others).
 * 0 outside the support and at a square-root end, +inf at a hard end; NaN in, NaN out. Returns the
 * number of points that failed (their density is NaN). */
size_t fspec_law_density(const fspec_law *law, size_t n, const double *x, int variable,
                         double *density);

/* The solved points: m(lambda + i0) (real outside the support), the density, and per point a
 * status, the residual |log z(m) - log lambda| and a bound on the density's absolute error.
 * Any output may be NULL. */
size_t fspec_law_solve(const fspec_law *law, size_t n, const double *x, int variable,
                       double *m_re, double *m_im, double *density, int *status,
                       double *residual, double *error_bound);

/* The slow twin of fspec_law_solve for chains: every point walked to from z = infinity, using
 * nothing that was solved before. */
size_t fspec_law_walk(const fspec_law *law, size_t n, const double *x, int variable, double *m_re,
                      double *m_im, double *density, int *status);

/* Distribution function P(lambda' <= lambda) with atoms, and its complement (either or NULL). */
size_t fspec_law_cdf(const fspec_law *law, size_t n, const double *x, int variable, double *cdf,
                     double *ccdf);

/* Smallest x with cdf(x) >= p, for p in [0, 1]; NaN for p outside it. */
size_t fspec_law_quantile(const fspec_law *law, size_t n, const double *p, int variable,
                          double *x);

/* G(z) and m(z) for any complex z; on the real axis the limit from above. Any output may be
 * NULL; error_bound is for |m|. */
size_t fspec_law_green(const fspec_law *law, size_t n, const double *z_re, const double *z_im,
                       double *g_re, double *g_im, double *m_re, double *m_im, int *status,
                       double *residual, double *error_bound);

#ifdef __cplusplus
}
#endif

#endif
