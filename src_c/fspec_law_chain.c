/* Chains as laws: constructor, and the queries on arrays. The table answers densities and
 * masses; solved points come from Newton's method, started from the table's states. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fspec_law.h"
#include "fspec_run.h"
#include "fspec_table.h"

#define EPS 2.220446049250313e-16

enum { BATCH = 64 };

/* The law of a chain, which it owns from now on. */
static int solved_chain(fspec_chain *chain, fspec_law **out)
{
    fspec_law *law = fspec_law_new(FSPEC_EQ_CHAIN);
    int status = law ? fspec_table_new(chain, &law->table) : FSPEC_NO_MEMORY;
    if (!law || !law->table) fspec_chain_free(chain);
    if (!law) return status;
    if (status == FSPEC_OK) {
        law->log_mean = chain->log_mean;
        law->continuous_mass = law->table->continuous_mass;
    }
    return fspec_law_finish(law, status, out);
}

int fspec_law_chain(size_t n_blocks, const fspec_block *blocks, double error,
                    fspec_law **out)
{
    fspec_chain *chain;
    *out = NULL;
    int status = fspec_chain_new(n_blocks, blocks, error, &chain);
    return status == FSPEC_OK ? solved_chain(chain, out) : status;
}

int fspec_law_shared_chain(size_t n_blocks, const fspec_block *blocks, size_t n_runs,
                           const fspec_shared *runs, double error, fspec_law **out)
{
    fspec_chain *chain;
    *out = NULL;
    int status = fspec_chain_new(n_blocks, blocks, error, &chain);
    if (status != FSPEC_OK) return status;
    status = fspec_chain_share(chain, blocks, n_runs, runs);
    if (status == FSPEC_OK) return solved_chain(chain, out);
    fspec_chain_free(chain);
    return status;
}

void fspec_law_add_error(fspec_law *law, double error)
{
    if (law->table) law->table->chain->error += error;
}

double fspec_law_mass_error(const fspec_law *law)
{
    return law->table ? law->table->mass_error : 0.0;
}

double fspec_law_unresolved(const fspec_law *law)
{
    return law->table ? law->table->unresolved : 0.0;
}

/* ---- support and atoms --------------------------------------------------------------------- */

int fspec_law_interval_count(const fspec_law *law)
{
    if (law->table) return (int)law->table->support.n_pieces;
    return law->equation != FSPEC_EQ_ATOMS;
}

void fspec_law_interval(const fspec_law *law, int i, int variable, double *low, double *high)
{
    if (!law->table) {
        if (variable == FSPEC_LAMBDA) fspec_law_support(law, low, high);
        else fspec_law_log_support(law, low, high);
        return;
    }
    const fspec_support *s = &law->table->support;
    const fspec_piece *p = &s->pieces[s->n_pieces - 1 - (size_t)i];
    *low = p->low + law->log_mean;
    *high = p->high + law->log_mean;
    if (variable == FSPEC_LAMBDA) {
        *low = exp(*low);
        *high = exp(*high);
    }
}

void fspec_law_interval_m(const fspec_law *law, int i, double *low, double *high)
{
    *low = *high = NAN;
    if (!law->table) return;
    const fspec_support *s = &law->table->support;
    const fspec_piece *p = &s->pieces[s->n_pieces - 1 - (size_t)i];
    if (p->low_end == FSPEC_END_ROOT)
        *low = creal(fspec_support_state(s, p->first + p->count - 1)[0]);
    if (p->high_end == FSPEC_END_ROOT) *high = creal(fspec_support_state(s, p->first)[0]);
}

size_t fspec_law_states(const fspec_law *law, size_t n, double *m_re, double *m_im)
{
    size_t all = law->table ? law->table->support.n_states : 0, count = n < all ? n : all;
    for (size_t i = 0; i < count; i++) {
        size_t k = count == 1 ? 0 : i * (all - 1) / (count - 1);
        double complex m = fspec_support_state(&law->table->support, k)[0];
        m_re[i] = creal(m);
        m_im[i] = cimag(m);
    }
    return count;
}

size_t fspec_law_cell_count(const fspec_law *law) { return law->table ? law->table->n_cells : 0; }

void fspec_law_cell(const fspec_law *law, size_t i, double *low, double *high, double *end,
                    double *power)
{
    const fspec_cell *c = &law->table->cells[i];
    *low = c->low + law->log_mean;
    *high = c->high + law->log_mean;
    *end = c->end + law->log_mean;
    *power = c->half_k;
}

/* Atoms of positive mass. */
int fspec_table_atom_count(const fspec_table *t)
{
    int count = 0;
    for (size_t i = 0; i < t->chain->n_atoms; i++) count += t->chain->atoms[i].mass > 0.0;
    return count;
}

fspec_atom fspec_table_atom(const fspec_table *t, int i)
{
    size_t k = 0;
    for (;; k++)
        if (t->chain->atoms[k].mass > 0.0 && i-- == 0) break;
    const fspec_chain_atom *a = &t->chain->atoms[k];
    return (fspec_atom){a->log_location, a->location, a->mass};
}

/* ---- points --------------------------------------------------------------------------------- */

static double normalised(const fspec_law *law, double x, int variable)
{
    if (variable == FSPEC_LAMBDA) x = x > 0.0 ? log(x) : x == 0.0 ? -INFINITY : NAN;
    else if (variable == FSPEC_TOP_DISTANCE)
        return law->table->support.n_pieces ? law->table->support.pieces[0].high - x : NAN;
    return x - law->log_mean;
}

/* Density of log lambda at an end, or at log lambda = -inf, per unit of the variable. */
static double end_value(const fspec_law *law, double x, double l, int variable)
{
    const fspec_support *s = &law->table->support;
    if (x != x) return x;
    for (size_t i = 0; i < s->n_pieces; i++) {
        const fspec_piece *p = &s->pieces[i];
        if ((l == p->high && p->high_end == FSPEC_END_INVERSE) ||
            (l == p->low && p->low_end == FSPEC_END_INVERSE))
            return INFINITY;
    }
    if (variable == FSPEC_LAMBDA && x == 0.0 && law->table->tail_low > -INFINITY) {
        double power = law->table->tail_slope - 1.0; /* density ~ lambda^power */
        if (fabs(power) < 1e-9) return fspec_table_y(law->table, -700.0) / (FSPEC_PI * exp(-700.0));
        return power < 0.0 ? INFINITY : 0.0;
    }
    return 0.0;
}

static double solved_density(const fspec_law *law, double x, int variable)
{
    double re, im, one, rho, residual, bound;
    int status;
    fspec_solved out = {&re, &im, &one, &rho, &residual, &bound, &status};
    fspec_chain_solve(law, 1, &x, variable, out);
    return status == FSPEC_OK ? rho : NAN;
}

/* The density at one point, ends and tails included; NaN where it cannot be solved. */
double fspec_chain_point(const fspec_law *law, double x, int variable)
{
    double l = normalised(law, x, variable);
    const fspec_table *t = law->table;
    if (isfinite(l) && t->n_cells && l < t->cells[0].low && l > -1e15 &&
        t->tail_low > -INFINITY && !t->tail_is_power)
        return solved_density(law, x, variable);
    double y = isfinite(l) ? fspec_table_y(law->table, l) : 0.0;
    double scale = variable == FSPEC_LAMBDA ? FSPEC_PI * x : FSPEC_PI;
    return y > 0.0 && isfinite(y) ? y / scale : end_value(law, x, l, variable);
}

size_t fspec_chain_density(const fspec_law *law, size_t n, const double *x, int variable,
                           double *density)
{
    if (n > 1 && law->table->n_cells > 0 && variable != FSPEC_TOP_DISTANCE)
        return fspec_kernels_best()->table(law, n, x, variable, density);
    size_t failures = 0;
    for (size_t i = 0; i < n; i++) {
        density[i] = fspec_chain_point(law, x[i], variable);
        failures += density[i] != density[i] && x[i] == x[i];
    }
    return failures;
}

size_t fspec_chain_tails(const fspec_law *law, size_t n, const double *x, int variable,
                         double *cdf, double *ccdf)
{
    const fspec_table *t = law->table;
    int atoms = fspec_table_atom_count(t);
    size_t failures = 0;
    for (size_t i = 0; i < n; i++) {
        double l = normalised(law, x[i], variable), below = 0.0, above = t->continuous_mass;
        if (variable == FSPEC_LAMBDA && x[i] < 0.0) l = -INFINITY;
        if (l == INFINITY) below = above, above = 0.0;
        else if (l > -INFINITY) fspec_table_tails(t, l, &below, &above);
        for (int k = 0; k < atoms; k++) {
            fspec_atom a = fspec_table_atom(t, k);
            double place = variable == FSPEC_LAMBDA ? a.location : a.log_location;
            if (place <= x[i]) below += a.mass;
            else above += a.mass;
        }
        int nan = x[i] != x[i] || below != below;
        if (cdf) cdf[i] = nan ? NAN : fmin(below, 1.0);
        if (ccdf) ccdf[i] = nan ? NAN : fmin(above, 1.0);
        failures += nan && x[i] == x[i];
    }
    return failures;
}

static double from_l(const fspec_law *law, double l, int variable)
{
    double log_lam = l + law->log_mean;
    return variable == FSPEC_LAMBDA ? exp(log_lam) : log_lam;
}

/* Ends of the whole law, atoms included: the quantiles of 0 and 1. */
static double lowest(const fspec_law *law, int variable)
{
    const fspec_table *t = law->table;
    double l = INFINITY;
    if (t->support.n_pieces) l = t->support.pieces[t->support.n_pieces - 1].low + law->log_mean;
    if (fspec_table_atom_count(t)) l = fmin(l, fspec_table_atom(t, 0).log_location);
    return variable == FSPEC_LAMBDA ? exp(l) : l;
}

static double highest(const fspec_law *law, int variable)
{
    const fspec_table *t = law->table;
    int atoms = fspec_table_atom_count(t);
    double l = t->support.n_pieces ? t->support.pieces[0].high + law->log_mean : -INFINITY;
    if (atoms && fspec_table_atom(t, atoms - 1).log_location > l) {
        fspec_atom top = fspec_table_atom(t, atoms - 1);
        return variable == FSPEC_LAMBDA ? top.location : top.log_location;
    }
    return variable == FSPEC_LAMBDA ? exp(l) : l;
}

size_t fspec_chain_quantile(const fspec_law *law, size_t n, const double *p, int variable,
                            double *x)
{
    const fspec_table *t = law->table;
    int atoms = fspec_table_atom_count(t);
    size_t failures = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(p[i] >= 0.0 && p[i] <= 1.0)) {
            x[i] = NAN;
            continue;
        }
        if (p[i] == 0.0 || p[i] == 1.0) {
            x[i] = p[i] == 0.0 ? lowest(law, variable) : highest(law, variable);
            continue;
        }
        /* take off the atoms below; p may fall into one */
        double rest = p[i], found = NAN;
        for (int k = 0; k < atoms; k++) {
            fspec_atom a = fspec_table_atom(t, k);
            double below = 0.0, above;
            if (a.log_location > -INFINITY)
                fspec_table_tails(t, a.log_location - law->log_mean, &below, &above);
            if (rest <= below) break;
            if (rest <= below + a.mass) {
                found = variable == FSPEC_LAMBDA ? a.location : a.log_location;
                break;
            }
            rest -= a.mass;
        }
        if (found == found) {
            x[i] = found;
        } else {
            double l = fspec_table_quantile(t, rest, t->continuous_mass - rest);
            x[i] = from_l(law, l, variable);
            failures += l != l;
        }
    }
    return failures;
}

/* ---- solved points ------------------------------------------------------------------------- */

typedef struct {
    const fspec_law *law;
    fspec_walker walker;
    fspec_state *states;
    int placed; /* the walker stands at a solved point */
} point_solver;

static int solver_init(point_solver *s, const fspec_law *law)
{
    const fspec_chain *c = law->table->chain;
    memset(s, 0, sizeof *s);
    s->law = law;
    s->states = malloc(BATCH * c->size * sizeof *s->states);
    if (!s->states) return FSPEC_NO_MEMORY;
    return fspec_walker_init(&s->walker, c);
}

static void solver_free(point_solver *s)
{
    free(s->states);
    fspec_walker_free(&s->walker);
}

/* First-order bound on |dm|: what the equation is off, and its rounding, over dl/dm. */
static double bound_on_m(const fspec_law *law, double complex residual, double complex slope,
                         double l)
{
    double noise = 8.0 * EPS * (2.0 + fabs(l)) + law->table->chain->error;
    return (cabs(residual) + noise) / cabs(slope);
}

static void put_point(const fspec_law *law, const fspec_state *x, double complex residual,
                      double complex slope, double l, size_t i, fspec_solved out)
{
    out.m_re[i] = creal(x[0]);
    out.m_im[i] = cimag(x[0]);
    out.one_re[i] = creal(x[1]) + (1.0 - law->table->chain->positive);
    out.residual[i] = cabs(residual);
    out.error_bound[i] = bound_on_m(law, residual, slope, l) + 4.0 * EPS * cabs(x[0]);
    out.status[i] = FSPEC_OK;
}

static void put_failure(size_t i, int status, fspec_solved out)
{
    out.m_re[i] = out.m_im[i] = out.one_re[i] = NAN;
    out.residual[i] = status == FSPEC_SINGULAR ? 0.0 : INFINITY;
    out.error_bound[i] = INFINITY;
    out.status[i] = status;
}

/* By walking, from the last point when it is near, else from infinity. */
static void walk_point(point_solver *s, double complex l, int restart, size_t i, fspec_solved out)
{
    fspec_walker *w = &s->walker;
    int status = FSPEC_NOT_CONVERGED;
    if (s->placed && !restart && cabs(l - w->l) < 2.0) status = fspec_walker_to_l(w, l);
    if (status != FSPEC_OK) status = fspec_walker_from_above(w, l);
    s->placed = status == FSPEC_OK && cimag(l) > 0.0;
    if (status == FSPEC_OK) put_point(s->law, w->x, 0.0, w->slope, creal(l), i, out);
    else put_failure(i, status, out);
}

/* Along the support from the nearest solved state, and by the slow route if that fails. */
static void walk_from_table(point_solver *s, double l, size_t i, fspec_solved out)
{
    fspec_walker *w = &s->walker;
    fspec_table_place(s->law->table, l, w);
    if (fspec_walker_to_l(w, l) == FSPEC_OK && cimag(w->x[0]) < 0.0)
        put_point(s->law, w->x, 0.0, w->slope, l, i, out);
    else
        walk_point(s, l, 1, i, out);
}

/* Points inside the support, l real, in one batch. */
static size_t newton_batch(point_solver *s, size_t n, const double *l, fspec_solved out)
{
    const fspec_table *t = s->law->table;
    const fspec_chain *c = t->chain;
    double complex target[BATCH] = {0};
    fspec_chain_result result[BATCH];
    size_t failures = 0;
    for (size_t i = 0; i < n; i++) {
        target[i] = l[i];
        fspec_table_guess(t, l[i], s->states + i * c->size);
    }
    fspec_chain_newton(c, n, target, FSPEC_FREE_M, s->states, NULL, result);
    for (size_t i = 0; i < n; i++) {
        const fspec_state *x = s->states + i * c->size;
        /* the table knows y: another root would show at once */
        double y = fspec_table_y(t, l[i]);
        if (result[i].status == FSPEC_OK && fspec_chain_check(c, x) &&
            (fabs(-cimag(x[0]) - y) < 1e-3 * y || l[i] < t->cells[0].low))
            put_point(s->law, x, result[i].f, result[i].slope, l[i], i, out);
        else
            walk_from_table(s, l[i], i, out);
        failures += out.status[i] != FSPEC_OK;
    }
    return failures;
}

static fspec_solved offset(fspec_solved out, size_t i)
{
    return (fspec_solved){out.m_re + i, out.m_im + i, out.one_re + i, out.density + i,
                          out.residual + i, out.error_bound + i, out.status + i};
}

static int at_atom(const fspec_table *t, double x, int variable)
{
    for (int k = 0; k < fspec_table_atom_count(t); k++) {
        fspec_atom a = fspec_table_atom(t, k);
        if (x == (variable == FSPEC_LAMBDA ? a.location : a.log_location)) return 1;
    }
    return 0;
}

/* Real points that are not strictly inside the support. */
static size_t outside_point(point_solver *s, double x, double l, int variable, size_t i,
                            fspec_solved out)
{
    const fspec_table *t = s->law->table;
    double zero = 1.0 - t->chain->positive;
    out.density[i] = end_value(s->law, x, l, variable);
    if (x != x) {
        put_failure(i, FSPEC_BAD_POINT, out);
    } else if (l == INFINITY || l == -INFINITY) {
        int far = l == INFINITY;
        out.m_re[i] = far ? 0.0 : zero - 1.0;
        out.one_re[i] = far ? 1.0 : zero;
        out.m_im[i] = out.residual[i] = out.error_bound[i] = 0.0;
        out.status[i] = FSPEC_OK;
    } else if (isinf(out.density[i]) || at_atom(t, x, variable)) {
        put_failure(i, FSPEC_SINGULAR, out);
    } else {
        double complex at = l == l ? l : log(-x) - s->law->log_mean + I * FSPEC_PI; /* x < 0 */
        s->placed = 0;
        walk_point(s, at, 1, i, out);
        if (out.status[i] == FSPEC_OK) out.m_im[i] = 0.0;
    }
    return out.status[i] != FSPEC_OK && out.status[i] != FSPEC_BAD_POINT;
}

static size_t solve_real(const fspec_law *law, size_t n, const double *x, int variable, int walk,
                         fspec_solved out)
{
    point_solver s;
    size_t failures = 0;
    if (solver_init(&s, law) != FSPEC_OK) {
        for (size_t i = 0; i < n; i++) put_failure(i, FSPEC_NO_MEMORY, out);
        return n;
    }
    double l[BATCH];
    size_t where[BATCH], count = 0;
    double re[BATCH], im[BATCH], one[BATCH], rho[BATCH], res[BATCH], err[BATCH];
    int st[BATCH];
    fspec_solved part = {re, im, one, rho, res, err, st};
    for (size_t i = 0; i <= n; i++) {
        double at = i < n ? normalised(law, x[i], variable) : 0.0;
        int inside = i < n && isfinite(at) && fspec_table_y(law->table, at) > 0.0;
        if (inside && isfinite(fspec_table_y(law->table, at))) {
            l[count] = at;
            where[count++] = i;
        } else if (i < n) {
            failures += outside_point(&s, x[i], at, variable, i, out);
        }
        if (count < BATCH && i < n) continue;
        if (walk)
            for (size_t j = 0; j < count; j++) {
                walk_point(&s, l[j], 1, j, part);
                failures += st[j] != FSPEC_OK;
            }
        else if (count)
            failures += newton_batch(&s, count, l, part);
        for (size_t j = 0; j < count; j++) {
            size_t k = where[j];
            double per = variable == FSPEC_LAMBDA ? FSPEC_PI * x[k] : FSPEC_PI;
            out.m_re[k] = re[j], out.m_im[k] = im[j], out.one_re[k] = one[j];
            out.residual[k] = res[j], out.status[k] = st[j];
            out.density[k] = -im[j] / per;
            out.error_bound[k] = err[j] / per;
        }
        count = 0;
    }
    solver_free(&s);
    return failures;
}

size_t fspec_chain_solve(const fspec_law *law, size_t n, const double *x, int variable,
                         fspec_solved out)
{
    return solve_real(law, n, x, variable, 0, out);
}

size_t fspec_chain_walk(const fspec_law *law, size_t n, const double *x, int variable,
                        fspec_solved out)
{
    return solve_real(law, n, x, variable, 1, out);
}

/* The upper half plane (y >= 0 is taken for |y|), real points included. */
size_t fspec_chain_plane(const fspec_law *law, size_t n, const double *x, const double *y,
                         fspec_solved out)
{
    point_solver s;
    size_t failures = 0;
    if (solver_init(&s, law) != FSPEC_OK) {
        for (size_t i = 0; i < n; i++) put_failure(i, FSPEC_NO_MEMORY, out);
        return n;
    }
    for (size_t i = 0; i < n; i++) {
        if (y[i] == 0.0 || !isfinite(x[i]) || !isfinite(y[i])) {
            double at = isinf(x[i]) || isinf(y[i]) ? INFINITY : x[i] + y[i];
            failures += solve_real(law, 1, &at, FSPEC_LAMBDA, 0, offset(out, i));
            if (out.status[i] == FSPEC_OK && isfinite(at))
                out.error_bound[i] *= out.m_im[i] != 0.0 ? FSPEC_PI * fabs(at) : 1.0;
            continue;
        }
        double complex l = log(hypot(x[i], y[i])) - law->log_mean + I * atan2(fabs(y[i]), x[i]);
        walk_point(&s, l, 0, i, out);
        failures += out.status[i] != FSPEC_OK;
    }
    solver_free(&s);
    return failures;
}
