/* The array kernels, written once over lanes and compiled once per instruction level: the
 * including file sets FSPEC_LANES and FSPEC_KERNELS (the name of the table it defines). */
#include "fspec_law_bernoulli.h"
#include "fspec_law_plain.h"
#include "fspec_law_resnet.h"
#include "fspec_plane.h"
#include "fspec_chain_lanes.h"
#include "fspec_table_lanes.h"

/* delta = log(lambda_top/lambda) of a block of points (log(lambda/lambda_bottom) for the lower
 * half of a symmetric law). Near the edge it comes from the exact difference to the edge, which
 * is kept to twice the digits of a double. Returns the lanes strictly inside the support. */
FSPEC_INLINE vi fspec_lane_distance(const fspec_law *law, vd x, int variable,
                                    fspec_lane_delta *delta, vi *below)
{
    vd zero = v_set(0.0), one = v_set(1.0);
    const fspec_edge *top = &law->top, *bottom = law->two_edges ? &law->bottom : &law->top;
    vd centre = v_set(variable == FSPEC_LAMBDA ? law->center : law->log_center);
    *below = law->two_edges ? v_lt(x, centre) : v_lt(one, zero);
    vd sign = v_select(*below, v_set(-1.0), one);
    delta->phi = zero;
    if (variable == FSPEC_TOP_DISTANCE) {
        /* the lower half of a two-edged law is measured from its own end */
        vd width = v_set(2.0 * law->guess_length);
        *below = law->two_edges ? v_lt(v_set(law->guess_length), x) : v_lt(one, zero);
        delta->dk = zero;
        delta->df = v_select(*below, width - x, x);
    } else if (variable == FSPEC_LOG_LAMBDA) {
        vd hi = v_select(*below, v_set(bottom->log), v_set(top->log));
        vd lo = v_select(*below, v_set(bottom->log_lo), v_set(top->log_lo));
        delta->dk = zero;
        delta->df = sign * ((hi - x) + lo);
    } else {
        vi subnormal = v_lt(x, v_set(2.2250738585072014e-308));
        vd usable = v_select(v_lt(zero, x), x, one);
        usable = usable * v_select(subnormal, v_set(18014398509481984.0), one);
        vd k, m = v_split(usable, &k);
        k -= v_select(subnormal, v_set(54.0), zero);
        vd ke = v_select(*below, v_set(bottom->exponent), v_set(top->exponent));
        vd hi = v_select(*below, v_set(bottom->mantissa), v_set(top->mantissa));
        vd lo = v_select(*below, v_set(bottom->mantissa_lo), v_set(top->mantissa_lo));
        vd kr, r = v_split(hi / m, &kr);
        vd shift = ke - k;
        vd scale = v_select(v_eq(shift, zero), one,
                            v_select(v_lt(zero, shift), v_set(2.0), v_set(0.5)));
        vd excess = ((hi * scale - m) + lo * scale) / m;
        vi near_edge = v_eq(shift + kr, zero);
        vd num = v_select(near_edge, excess, r - 1.0);
        vd den = v_select(near_edge, excess + 2.0, r + 1.0);
        delta->dk = sign * (shift + kr);
        delta->df = sign * v_two_atanh(num / den);
    }
    vd gap = delta->dk * FSPEC_LN2 + delta->df;
    vd largest = v_set(1.7976931348623157e308);
    vi inside = v_lt(zero, gap) & v_le(gap, v_set(law->gap_max)) & v_le(v_abs(x), largest);
    if (variable == FSPEC_LAMBDA) inside &= v_lt(zero, x);
    vd safe = v_set(law->guess_length);
    delta->dk = v_select(inside, delta->dk, zero);
    delta->df = v_select(inside, delta->df, safe);
    return inside;
}

/* -Im m of the root: t itself, or t/(kappa - t). */
FSPEC_INLINE vd fspec_lane_y(const fspec_law *law, const fspec_lane_root *r)
{
    vd y = v_abs(r->t.im);
    if (!law->mobius) return y;
    vd gap = law->kappa_gap - r->d.re;
    return y * law->kappa / (gap * gap + r->d.im * r->d.im);
}

/* The value at points that are not strictly inside: see "Values at special points" in the
 * public header. */
static double fspec_end_value(const fspec_law *law, double x, int variable)
{
    if (x != x) return x;
    if (variable == FSPEC_LAMBDA && x == 0.0 && law->bottom.log == -INFINITY) return INFINITY;
    double top = variable == FSPEC_LAMBDA ? fspec_edge_lambda(&law->top)
                 : variable == FSPEC_LOG_LAMBDA ? law->top.log : 0.0;
    return law->mobius && law->kappa_gap == 0.0 && x == top ? INFINITY : 0.0;
}

typedef struct {
    vi inside, failed;
    vd y, m_re, one_re, residual, error;
} fspec_lane_result;

/* Bound on |dy|: an error of F at most |F| + rounding moves m by g'(t) dt, dt = -dF u/(uF'). */
FSPEC_INLINE void fspec_lane_error(const fspec_law *law, fspec_eval_fn eval,
                                   const fspec_lane_root *root, const fspec_lane_delta *delta,
                                   fspec_lane_result *out)
{
    const double eps = 2.220446049250313e-16;
    fspec_lane_eval v = eval(law, root, delta);
    vc slope = vc_mul(v.unit, vc_inv(v.g1));
    if (law->mobius) {
        vc s = vc_inv(fspec_lane_gap(law, root));
        slope = vc_scale(vc_mul(slope, vc_mul(s, s)), v_set(law->kappa));
    }
    out->residual = v_sqrt(vc_norm2(v.f));
    out->error = v_abs(slope.im) * (v_abs(v.f.re) + 8 * eps * v.size_re) +
                 v_abs(slope.re) * (v_abs(v.f.im) + 8 * eps * v.size_im) + 4 * eps * out->y;
}

typedef fspec_lane_root (*fspec_guess_fn)(const fspec_law *, const fspec_lane_delta *);

FSPEC_INLINE fspec_lane_result fspec_lane_axis(fspec_guess_fn guess, fspec_eval_fn eval,
                                               const fspec_law *law, vd x, int variable,
                                               int with_error)
{
    fspec_lane_result out;
    fspec_lane_delta delta;
    vi below;
    out.inside = fspec_lane_distance(law, x, variable, &delta, &below);
    fspec_lane_root root = guess(law, &delta);
    vi good = fspec_newton(eval, law, &root, &delta, out.inside, 1, FSPEC_MAX_STEPS);
    out.failed = out.inside & ~good;
    out.y = fspec_lane_y(law, &root);
    if (with_error) {
        vd m_re = fspec_lane_m(law, &root).re, one_re = fspec_lane_one(law, &root).re;
        /* the lower half of the resnet law is the mirror image m -> -1 - conj(m) */
        out.m_re = v_select(below, -one_re, m_re);
        out.one_re = v_select(below, -m_re, one_re);
        fspec_lane_error(law, eval, &root, &delta, &out);
    }
    return out;
}

FSPEC_INLINE size_t fspec_axis_density(fspec_guess_fn guess, fspec_eval_fn eval,
                                       const fspec_law *law, size_t n, const double *x,
                                       int variable, double *density)
{
    size_t failures = 0;
    for (size_t i = 0; i < n; i += FSPEC_LANES) {
        double part[FSPEC_LANES], out[FSPEC_LANES];
        size_t count = n - i < FSPEC_LANES ? n - i : FSPEC_LANES;
        for (size_t j = 0; j < FSPEC_LANES; j++) part[j] = x[i + (j < count ? j : 0)];
        vd at = v_load(part);
        fspec_lane_result r = fspec_lane_axis(guess, eval, law, at, variable, 0);
        vd rho = r.y * (1.0 / FSPEC_PI);
        if (variable == FSPEC_LAMBDA) rho = rho / at;
        rho = v_select(r.failed, v_set(NAN), rho);
        v_store(out, rho);
        if (v_any(~r.inside | r.failed)) {
            double inside[FSPEC_LANES], failed[FSPEC_LANES];
            v_store(inside, v_select(r.inside, v_set(1.0), v_set(0.0)));
            v_store(failed, v_select(r.failed, v_set(1.0), v_set(0.0)));
            for (size_t j = 0; j < count; j++) {
                if (inside[j] == 0.0) out[j] = fspec_end_value(law, part[j], variable);
                failures += failed[j] != 0.0;
            }
        }
        memcpy(density + i, out, count * sizeof *out);
    }
    return failures;
}

FSPEC_INLINE size_t fspec_axis_solve(fspec_guess_fn guess, fspec_eval_fn eval,
                                     const fspec_law *law, size_t n, const double *x,
                                     int variable, fspec_solved out)
{
    size_t failures = 0;
    for (size_t i = 0; i < n; i += FSPEC_LANES) {
        double part[FSPEC_LANES], y[FSPEC_LANES], re[FSPEC_LANES], one[FSPEC_LANES],
            res[FSPEC_LANES], err[FSPEC_LANES], inside[FSPEC_LANES], failed[FSPEC_LANES];
        size_t count = n - i < FSPEC_LANES ? n - i : FSPEC_LANES;
        for (size_t j = 0; j < FSPEC_LANES; j++) part[j] = x[i + (j < count ? j : 0)];
        fspec_lane_result r = fspec_lane_axis(guess, eval, law, v_load(part), variable, 1);
        v_store(y, r.y);
        v_store(re, r.m_re);
        v_store(one, r.one_re);
        v_store(res, r.residual);
        v_store(err, r.error);
        v_store(inside, v_select(r.inside, v_set(1.0), v_set(0.0)));
        v_store(failed, v_select(r.failed, v_set(1.0), v_set(0.0)));
        for (size_t j = 0; j < count; j++) {
            size_t o = i + j;
            double per = variable == FSPEC_LAMBDA ? FSPEC_PI * part[j] : FSPEC_PI;
            int in = inside[j] != 0.0, bad = failed[j] != 0.0;
            int hidden = bad || !in;
            out.status[o] = bad ? FSPEC_NOT_CONVERGED
                                : part[j] != part[j] ? FSPEC_BAD_POINT : FSPEC_OK;
            out.density[o] = bad ? NAN
                             : in ? y[j] / per : fspec_end_value(law, part[j], variable);
            out.m_re[o] = hidden ? NAN : re[j];
            out.m_im[o] = hidden ? NAN : -y[j];
            out.one_re[o] = hidden ? NAN : one[j];
            out.residual[o] = in ? res[j] : 0.0;
            out.error_bound[o] = bad ? INFINITY : in ? err[j] / per : 0.0;
            failures += (size_t)bad;
        }
    }
    return failures;
}

static size_t fspec_level_density(const fspec_law *law, size_t n, const double *x, int variable,
                                  double *density)
{
    switch (law->equation) {
    case FSPEC_EQ_RESNET:
        return fspec_axis_density(fspec_resnet_guess, fspec_resnet_eval, law, n, x, variable,
                                  density);
    case FSPEC_EQ_PLAIN:
        return fspec_axis_density(fspec_plain_guess, fspec_plain_eval, law, n, x, variable,
                                  density);
    default:
        return fspec_axis_density(fspec_bernoulli_guess, fspec_bernoulli_eval, law, n, x,
                                  variable, density);
    }
}

static size_t fspec_level_solve(const fspec_law *law, size_t n, const double *x, int variable,
                                fspec_solved out)
{
    switch (law->equation) {
    case FSPEC_EQ_RESNET:
        return fspec_axis_solve(fspec_resnet_guess, fspec_resnet_eval, law, n, x, variable, out);
    case FSPEC_EQ_PLAIN:
        return fspec_axis_solve(fspec_plain_guess, fspec_plain_eval, law, n, x, variable, out);
    default:
        return fspec_axis_solve(fspec_bernoulli_guess, fspec_bernoulli_eval, law, n, x, variable,
                                out);
    }
}

static size_t fspec_level_plane(const fspec_law *law, size_t n, const double *log_abs,
                                const double *arg, fspec_solved out)
{
    switch (law->equation) {
    case FSPEC_EQ_RESNET:
        return fspec_plane(fspec_resnet_eval_plane, law, n, log_abs, arg, out);
    case FSPEC_EQ_PLAIN:
        return fspec_plane(fspec_plain_eval, law, n, log_abs, arg, out);
    default:
        return fspec_plane(fspec_bernoulli_eval, law, n, log_abs, arg, out);
    }
}

const fspec_kernels FSPEC_KERNELS = {FSPEC_LEVEL_NAME, fspec_level_density, fspec_level_solve,
                                     fspec_level_plane, fspec_level_chain,
                                     fspec_level_table};
