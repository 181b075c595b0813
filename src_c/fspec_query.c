/* Array queries: which kernel answers which law, and the special points of the plane. */
#include <complex.h>
#include <math.h>

#include "fspec_law.h"

#define PI 3.14159265358979323846
#define EPS 2.220446049250313e-16

enum { BLOCK = 256 };

static int has_lane_kernel(const fspec_law *law)
{
    return law->equation != FSPEC_EQ_MARCHENKO && law->equation != FSPEC_EQ_ATOMS;
}

/* One real point of a law with a closed form. */
static void solve_closed(const fspec_law *law, double x, int variable, size_t i, fspec_solved out)
{
    double per = variable == FSPEC_LAMBDA ? PI * x : PI;
    out.m_re[i] = out.m_im[i] = out.one_re[i] = NAN;
    out.residual[i] = out.error_bound[i] = 0.0;
    out.density[i] = x == x ? 0.0 : x;
    out.status[i] = x == x ? FSPEC_OK : FSPEC_BAD_POINT;
    if (law->equation != FSPEC_EQ_MARCHENKO) return;
    fspec_point at = fspec_locate(law, x, variable);
    if (at.side == 0.0) return;
    fspec_root r = fspec_marchenko_root(law, at);
    out.m_re[i] = r.t_re;
    out.m_im[i] = r.t_im;
    out.one_re[i] = 1.0 + r.t_re;
    out.density[i] = -r.t_im / per;
    out.error_bound[i] = 8 * EPS * out.density[i];
}

static size_t solve_block(const fspec_law *law, size_t n, const double *x, int variable,
                          fspec_solved out)
{
    if (has_lane_kernel(law)) return fspec_kernels_best()->solve(law, n, x, variable, out);
    for (size_t i = 0; i < n; i++) solve_closed(law, x[i], variable, i, out);
    return 0;
}

/* m = sum mass/(z/a - 1), 1 + m = sum mass/(1 - a/z). */
static void plane_atoms(const fspec_law *law, double log_abs, double arg, size_t i,
                        fspec_solved out)
{
    double complex m = 0, one = 0;
    for (int j = 0; j < law->n_atoms; j++) {
        double size = exp(log_abs - law->atoms[j].log_location);
        double complex ratio = size * cos(arg) + I * (arg == 0.0 ? 0.0 : size * sin(arg));
        if (isfinite(size)) m += law->atoms[j].mass / (ratio - 1.0);
        one += law->atoms[j].mass * (isfinite(size) ? ratio / (ratio - 1.0) : 1.0);
    }
    out.m_re[i] = creal(m);
    out.m_im[i] = cimag(m);
    out.one_re[i] = creal(one);
}

/* m at log z = log_abs + i arg, arg in [0, pi], not on the support. */
static size_t plane_block(const fspec_law *law, size_t n, const double *log_abs,
                          const double *arg, fspec_solved out)
{
    if (has_lane_kernel(law)) return fspec_kernels_best()->plane(law, n, log_abs, arg, out);
    for (size_t i = 0; i < n; i++) {
        if (law->equation == FSPEC_EQ_MARCHENKO) {
            fspec_marchenko_plane(law, log_abs[i], arg[i], out.m_re + i, out.m_im + i);
            out.one_re[i] = 1.0 + out.m_re[i];
        } else {
            plane_atoms(law, log_abs[i], arg[i], i, out);
        }
        out.status[i] = FSPEC_OK;
        out.residual[i] = 0.0;
        out.error_bound[i] = 16 * EPS * (fabs(out.m_re[i]) + fabs(out.m_im[i]));
    }
    return 0;
}

size_t fspec_law_density(const fspec_law *law, size_t n, const double *x, int variable,
                         double *density)
{
    if (law->table) return fspec_chain_density(law, n, x, variable, density);
    if (has_lane_kernel(law)) return fspec_kernels_best()->density(law, n, x, variable, density);
    double m_re, m_im, one, residual, bound;
    int status;
    for (size_t i = 0; i < n; i++) {
        fspec_solved out = {&m_re, &m_im, &one, density + i, &residual, &bound, &status};
        solve_closed(law, x[i], variable, 0, out);
    }
    return 0;
}

/* ---- the whole plane ---------------------------------------------------------------------- */

/* Mass of the atom at 0. */
static double zero_atom(const fspec_law *law)
{
    return law->n_atoms && law->atoms[0].log_location == -INFINITY ? law->atoms[0].mass : 0.0;
}

static int is_atom(const fspec_law *law, double x)
{
    for (int j = 0; j < law->n_atoms; j++)
        if (law->atoms[j].location == x) return 1;
    return 0;
}

static void set_real(fspec_solved out, size_t i, double m, double one, int status)
{
    out.m_re[i] = m;
    out.m_im[i] = 0.0;
    out.one_re[i] = one;
    out.residual[i] = 0.0;
    out.error_bound[i] = status == FSPEC_OK ? 4 * EPS * fabs(m) : INFINITY;
    out.status[i] = status;
}

/* Points with a value of their own: 0, infinity, atoms, edges. Returns 1 when x + iy is one.
 * m(0) = (mass of the atom at 0) - 1; G(0) is finite only over a gap (the caller divides). */
static int special_point(const fspec_law *law, double x, double y, size_t i, fspec_solved out)
{
    if (x != x || y != y) {
        set_real(out, i, NAN, NAN, FSPEC_BAD_POINT);
    } else if (isinf(x) || isinf(y)) {
        set_real(out, i, 0.0, 1.0, FSPEC_OK);
    } else if (x == 0.0 && y == 0.0) {
        double atom = zero_atom(law);
        set_real(out, i, atom - 1.0, atom, FSPEC_OK);
    } else if (y == 0.0 && is_atom(law, x)) {
        set_real(out, i, NAN, NAN, FSPEC_SINGULAR);
    } else {
        return 0;
    }
    return 1;
}

/* Real m at an end of the support, where both neighbours are excluded: t = t_e, or its mirror. */
static int edge_point(const fspec_law *law, double x, size_t i, fspec_solved out)
{
    if (law->equation == FSPEC_EQ_ATOMS) return 0;
    double t = law->t_edge;
    if (x == fspec_edge_lambda(&law->top)) {
        if (law->mobius && law->kappa_gap == 0.0)
            set_real(out, i, NAN, NAN, FSPEC_SINGULAR);
        else if (law->mobius)
            set_real(out, i, t / law->kappa_gap, law->kappa / law->kappa_gap, FSPEC_OK);
        else
            set_real(out, i, t, 1.0 + t, FSPEC_OK);
        return 1;
    }
    if (law->two_edges && x == fspec_edge_lambda(&law->bottom)) {
        int mirror = law->equation == FSPEC_EQ_RESNET;
        set_real(out, i, mirror ? -1.0 - t : -t, mirror ? -t : 1.0 - t, FSPEC_OK);
        return 1;
    }
    return 0;
}

/* log|z|, with the relative accuracy of |z| - 1 near the unit circle. */
static double log_modulus(double x, double y)
{
    double r = hypot(x, y);
    if (r > 0.5 && r < 2.0) return 0.5 * log1p((fabs(x) - 1.0) * (fabs(x) + 1.0) + y * y);
    return log(r);
}

static size_t plane_point(const fspec_law *law, double x, double y, size_t i, fspec_solved out)
{
    fspec_solved one = {out.m_re + i, out.m_im + i, out.one_re + i, out.density + i,
                        out.residual + i, out.error_bound + i, out.status + i};
    if (special_point(law, x, y, i, out)) return out.status[i] == FSPEC_SINGULAR;
    if (y == 0.0 && x > 0.0) {
        if (edge_point(law, x, i, out)) return out.status[i] == FSPEC_SINGULAR;
        if (law->equation != FSPEC_EQ_ATOMS && fspec_locate(law, x, FSPEC_LAMBDA).side != 0.0) {
            double error_scale = PI * x; /* density -> |Im m| */
            size_t failures = solve_block(law, 1, &x, FSPEC_LAMBDA, one);
            *one.error_bound *= error_scale;
            return failures;
        }
    }
    double log_abs = log_modulus(x, y), arg = atan2(fabs(y), x);
    return plane_block(law, 1, &log_abs, &arg, one);
}

static size_t solve_plane(const fspec_law *law, size_t n, const double *x, const double *y,
                          fspec_solved out)
{
    if (law->table) return fspec_chain_plane(law, n, x, y, out);
    double log_abs[BLOCK], arg[BLOCK];
    size_t failures = 0, off_axis = 0;
    for (size_t i = 0; i < n; i++) off_axis += y[i] != 0.0 && isfinite(x[i]) && isfinite(y[i]);
    if (off_axis == n) { /* the common case: whole lanes */
        for (size_t i = 0; i < n; i++) {
            log_abs[i] = log_modulus(x[i], y[i]);
            arg[i] = atan2(fabs(y[i]), x[i]);
        }
        return plane_block(law, n, log_abs, arg, out);
    }
    for (size_t i = 0; i < n; i++) failures += plane_point(law, x[i], y[i], i, out);
    return failures;
}

/* G(0) over a gap at 0: -E[1/lambda], which the mirror symmetry of the resnet law makes
 * -E[lambda]/centre^2; over Marchenko-Pastur -p/(sigma^2 q) - atom, infinite with the atom. */
static double green_at_zero(const fspec_law *law)
{
    if (law->equation == FSPEC_EQ_RESNET) return -exp(law->log_mean - 2.0 * law->log_center);
    return NAN;
}

size_t fspec_law_green(const fspec_law *law, size_t n, const double *z_re, const double *z_im,
                       double *g_re, double *g_im, double *m_re, double *m_im, int *status,
                       double *residual, double *error_bound)
{
    size_t failures = 0;
    for (size_t start = 0; start < n; start += BLOCK) {
        double re[BLOCK], im[BLOCK], one[BLOCK], rho[BLOCK], res[BLOCK], err[BLOCK];
        int st[BLOCK];
        size_t count = n - start < BLOCK ? n - start : BLOCK;
        fspec_solved out = {re, im, one, rho, res, err, st};
        failures += solve_plane(law, count, z_re + start, z_im + start, out);
        for (size_t j = 0; j < count; j++) {
            size_t i = start + j;
            double x = z_re[i], y = z_im[i];
            double m_imag = y < 0.0 ? -im[j] : im[j];
            double complex g = (one[j] + I * m_imag) / (x + I * y);
            if (isinf(x) || isinf(y)) g = 0.0;
            if (x == 0.0 && y == 0.0) {
                g = law->table ? NAN : green_at_zero(law);
                if (isnan(creal(g)) && g_re) {
                    st[j] = FSPEC_SINGULAR;
                    failures++;
                }
            }
            if (g_re) g_re[i] = creal(g);
            if (g_im) g_im[i] = cimag(g);
            if (m_re) m_re[i] = re[j];
            if (m_im) m_im[i] = m_imag;
            if (status) status[i] = st[j];
            if (residual) residual[i] = res[j];
            if (error_bound) error_bound[i] = err[j];
        }
    }
    return failures;
}

/* Real points outside the support, where m is real: their place on the axis of the plane. */
static size_t fill_outside(const fspec_law *law, size_t n, const double *x, int variable,
                           fspec_solved out)
{
    size_t failures = 0;
    for (size_t i = 0; i < n; i++) {
        if (out.m_re[i] == out.m_re[i] || out.status[i] != FSPEC_OK) continue;
        double zero = 0.0, rho = out.density[i], bound = out.error_bound[i];
        if (variable == FSPEC_LAMBDA) {
            failures += plane_point(law, x[i], 0.0, i, out);
        } else {
            fspec_solved one = {out.m_re + i, out.m_im + i, out.one_re + i, out.density + i,
                                out.residual + i, out.error_bound + i, out.status + i};
            if (isinf(x[i]))
                special_point(law, x[i] > 0 ? INFINITY : 0.0, 0.0, i, out);
            else if (x[i] == law->top.log || (law->two_edges && x[i] == law->bottom.log))
                edge_point(law, fspec_edge_lambda(x[i] == law->top.log ? &law->top : &law->bottom),
                           i, out);
            else
                failures += plane_block(law, 1, &x[i], &zero, one);
        }
        out.density[i] = rho;
        out.error_bound[i] = bound;
    }
    return failures;
}

size_t fspec_law_solve(const fspec_law *law, size_t n, const double *x, int variable,
                       double *m_re, double *m_im, double *density, int *status,
                       double *residual, double *error_bound)
{
    size_t failures = 0;
    for (size_t i = 0; i < n; i += BLOCK) {
        double re[BLOCK], im[BLOCK], one[BLOCK], rho[BLOCK], res[BLOCK], err[BLOCK];
        int st[BLOCK];
        size_t count = n - i < BLOCK ? n - i : BLOCK;
        fspec_solved out = {re, im, one, rho, res, err, st};
        if (law->table) failures += fspec_chain_solve(law, count, x + i, variable, out);
        else failures += solve_block(law, count, x + i, variable, out);
        if (!law->table && (m_re || m_im))
            failures += fill_outside(law, count, x + i, variable, out);
        for (size_t j = 0; j < count; j++) {
            if (m_re) m_re[i + j] = re[j];
            if (m_im) m_im[i + j] = im[j];
            if (density) density[i + j] = rho[j];
            if (status) status[i + j] = st[j];
            if (residual) residual[i + j] = res[j];
            if (error_bound) error_bound[i + j] = err[j];
        }
    }
    return failures;
}

size_t fspec_law_walk(const fspec_law *law, size_t n, const double *x, int variable, double *m_re,
                      double *m_im, double *density, int *status)
{
    if (!law->table)
        return fspec_law_solve(law, n, x, variable, m_re, m_im, density, status, NULL, NULL);
    size_t failures = 0;
    for (size_t i = 0; i < n; i++) {
        double re, im, one, rho, res, err;
        int st;
        failures += fspec_chain_walk(law, 1, x + i, variable,
                                     (fspec_solved){&re, &im, &one, &rho, &res, &err, &st});
        if (m_re) m_re[i] = re;
        if (m_im) m_im[i] = im;
        if (density) density[i] = st == FSPEC_OK ? rho : NAN;
        if (status) status[i] = st;
    }
    return failures;
}
