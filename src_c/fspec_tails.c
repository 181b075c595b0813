/* Distribution function and quantiles, in closed form from the solved unknown.
 *
 * G dz = (1+m) dlog z, and every equation here is explicit, so that the antiderivative
 *     Phi(t) = -log t + c_kappa log(kappa - t) + c_e log E + b1 t + b2 t^2
 * is too: mass above = Im(Phi(t) - Phi(t_e))/pi. No quadrature. */
#include <complex.h>
#include <math.h>

#include "fspec_law.h"

#define PI 3.14159265358979323846
#define LN2 0.693147180559945309417

/* log(1 + x) - x for |x| <= 0.1, by its series. */
static double complex log1p_minus(double complex x)
{
    double complex power = x * x, sum = 0;
    for (int j = 2; j <= 18; j++) {
        sum += (j % 2 ? power : -power) / j;
        power *= x;
    }
    return sum;
}

/* Near the top edge Phi - Phi(t_e) starts at d^2: its linear terms cancel identically. */
static double above_near_edge(const fspec_law *law, double complex d)
{
    double complex phi = law->b2 * d * d - log1p_minus(d / law->t_edge);
    if (law->c_e != 0.0) phi += law->c_e * log1p_minus(d * law->k / law->e_edge);
    if (law->c_kappa != 0.0) phi += law->c_kappa * log1p_minus(-d / law->kappa_gap);
    return cimag(phi) / PI;
}

static double nearest_singularity(const fspec_law *law)
{
    double r = law->t_edge;
    if (law->mobius) r = fmin(r, fabs(law->kappa_gap)); /* where m itself is infinite */
    if (law->c_e != 0.0) r = fmin(r, law->e_edge / law->k);
    return r;
}

fspec_tails fspec_law_tails(const fspec_law *law, fspec_point at)
{
    fspec_root r = fspec_solve_point(law, at);
    double y = -r.t_im, p = law->slope_one;
    double theta = atan2(y, r.t_re), from_pi = atan2(y, -r.t_re);
    double arg_e = atan2(-r.e_im, r.e_re);
    double linear = y * (law->b1 + 2 * law->b2 * r.t_re);
    /* arg(kappa - t), and the same counted from its value at the edge */
    double gap = law->kappa_gap - r.d_re, arg_k = 0.0, turn_k = 0.0;
    if (law->c_kappa != 0.0) {
        arg_k = atan2(y, gap);
        turn_k = law->kappa_gap > 0 ? arg_k : -atan2(y, -gap);
    }
    fspec_tails out;
    out.status = r.status;
    out.above = (theta + law->c_kappa * turn_k - law->c_e * arg_e - linear) / PI;
    if (hypot(r.d_re, r.d_im) < 0.1 * nearest_singularity(law))
        out.above = above_near_edge(law, r.d_re + I * r.d_im);

    if (law->equation == FSPEC_EQ_RESNET) {
        out.below = 1.0 - out.above;
        if (at.side < 0) {
            double swap = out.above;
            out.above = out.below;
            out.below = swap;
        }
    } else {
        /* the same, with the constraint Im log z = 0 used to collect terms of one sign */
        double low = p * from_pi + linear - law->c_kappa * arg_k;
        if (law->n1 != 0.0) {
            double arg_q = atan2(y, (r.e_re + law->k_minus_1) / law->k);
            low -= law->slope_zero * arg_q;
        }
        out.below = low / PI;
    }
    /* each tail is accurate where it is the smaller one */
    if (out.above < out.below)
        out.below = law->continuous_mass - out.above;
    else
        out.above = law->continuous_mass - out.below;

    double per = law->mobius ? law->kappa / (gap * gap + y * y) : 1.0;
    out.y = y * per;
    return out;
}

static double value_of(const fspec_edge *edge, int variable)
{
    return variable == FSPEC_LAMBDA ? fspec_edge_lambda(edge) : edge->log;
}

/* Mass of the continuous part at or below x and above it. */
static fspec_tails continuous_tails(const fspec_law *law, double x, int variable)
{
    fspec_tails none = {0, 0, 0, FSPEC_OK};
    if (law->equation == FSPEC_EQ_ATOMS) return none;
    fspec_point at = fspec_locate(law, x, variable);
    if (at.side != 0.0) return fspec_law_tails(law, at);
    double below = x >= value_of(&law->top, variable) ? law->continuous_mass : 0.0;
    return (fspec_tails){law->continuous_mass - below, below, 0.0, FSPEC_OK};
}

size_t fspec_law_cdf(const fspec_law *law, size_t n, const double *x, int variable, double *cdf,
                     double *ccdf)
{
    if (law->table) return fspec_chain_tails(law, n, x, variable, cdf, ccdf);
    size_t failures = 0;
    for (size_t i = 0; i < n; i++) {
        fspec_tails tails = continuous_tails(law, x[i], variable);
        int bad = x[i] != x[i] || tails.status != FSPEC_OK;
        for (int j = 0; j < law->n_atoms && !bad; j++) {
            const fspec_atom *a = &law->atoms[j];
            double place = variable == FSPEC_LAMBDA ? a->location : a->log_location;
            *(place <= x[i] ? &tails.below : &tails.above) += a->mass;
        }
        failures += tails.status != FSPEC_OK;
        if (cdf) cdf[i] = bad ? NAN : fmin(tails.below, 1.0);
        if (ccdf) ccdf[i] = bad ? NAN : fmax(fmin(tails.above, 1.0), 0.0);
    }
    return failures;
}

/* x at distance delta from the edge that `side` names. */
static double place(const fspec_law *law, double side, double delta, int variable)
{
    const fspec_edge *edge = side > 0 ? &law->top : &law->bottom;
    double shift = -side * delta;
    if (variable == FSPEC_LOG_LAMBDA) return (edge->log + shift) + edge->log_lo;
    double k = rint(shift / LN2), m = edge->mantissa;
    double small = expm1(shift - k * 0.6931471803691238 - k * 1.9082149292705877e-10);
    double scaled = m + (m * small + edge->mantissa_lo);
    return scalbn(scaled, (int)fmax(fmin(edge->exponent + k, 5000.0), -5000.0));
}

/* The equation for delta made nearly straight: above^(2/3) near a soft edge, log(below) down a
 * hard one. Returns its value against the target and its slope. */
static double straightened(double mass, double target, double rate, int hard, double *slope)
{
    if (hard) {
        *slope = -rate / mass;
        return log(mass / target);
    }
    double root = cbrt(mass), root_target = cbrt(target);
    *slope = 2.0 / 3.0 * rate / root;
    return root * root - root_target * root_target;
}

/* delta from the edge of `side` at which the tail mass is `target`. On a hard bottom, `hard`,
 * the tail is the mass below, measured from the top edge. */
static double solve_distance(const fspec_law *law, double side, double target, int hard,
                             int *status)
{
    double low = 0.0, high = INFINITY;
    if (law->two_edges) high = (law->top.log - law->log_center) * (1 + 1e-9);
    double delta = law->two_edges ? 0.5 * high : 1.0, last_step = INFINITY;
    for (int i = 0; i < 500; i++) {
        fspec_tails t = fspec_law_tails(law, (fspec_point){side, 0.0, delta});
        if ((*status = t.status) != FSPEC_OK) return NAN;
        double mass = hard || side < 0 ? t.below : t.above, slope;
        double value = straightened(mass, target, t.y / PI, hard, &slope);
        int past = hard ? value <= 0 : value >= 0;
        if (value == 0.0) return delta;
        if (past) high = fmin(high, delta);
        else low = fmax(low, delta);
        double next = delta - value / slope;
        if (!(next > low && next < high))
            next = high == INFINITY ? 4.0 * delta : 0.5 * (low + high);
        double step = fabs(next - delta);
        int closed = high < INFINITY && high - low <= 2e-16 * high;
        int settled = step <= 1e-13 * delta && step >= 0.5 * last_step; /* rounding noise */
        if (closed || settled || step <= 2e-16 * delta) return next;
        last_step = step;
        delta = next;
    }
    *status = FSPEC_NOT_CONVERGED;
    return NAN;
}

/* The same for any target: far out in a tail the laws are pure powers, delta^(3/2) at a soft edge
 * and exp(-delta/n) down a hard one, and the iteration would only meet rounding. */
static double tail_distance(const fspec_law *law, double side, double target, int hard,
                            int *status)
{
    const double soft_tail = 1e-24, hard_tail = 1e-100;
    if (!hard && target < soft_tail) {
        double near = 1e-12 * law->guess_length;
        fspec_tails t = fspec_law_tails(law, (fspec_point){side, 0.0, near});
        *status = t.status;
        return near * pow(target / (side > 0 ? t.above : t.below), 2.0 / 3.0);
    }
    if (hard && target < hard_tail && law->equation == FSPEC_EQ_PLAIN)
        return solve_distance(law, side, hard_tail, hard, status) +
               law->n * log(hard_tail / target);
    return solve_distance(law, side, target, hard, status);
}

static double continuous_quantile(const fspec_law *law, double below, double above, int variable,
                                  int *status)
{
    if (below <= 0.0) return value_of(&law->bottom, variable);
    if (above <= 0.0) return value_of(&law->top, variable);
    if (!law->two_edges) {
        int hard = below < above;
        double delta = tail_distance(law, 1.0, hard ? below : above, hard, status);
        return place(law, 1.0, delta, variable);
    }
    fspec_point centre = {1.0, 0.0, law->top.log - law->log_center};
    fspec_tails middle = fspec_law_tails(law, centre);
    double side = above <= middle.above ? 1.0 : -1.0;
    double delta = tail_distance(law, side, side > 0 ? above : below, 0, status);
    return place(law, side, delta, variable);
}

/* Atoms lie below the continuous part (at 0) or above it, in this order. */
size_t fspec_law_quantile(const fspec_law *law, size_t n, const double *p, int variable,
                          double *x)
{
    if (law->table) return fspec_chain_quantile(law, n, p, variable, x);
    size_t failures = 0;
    for (size_t i = 0; i < n; i++) {
        double below = p[i], above = 1.0 - p[i];
        int status = FSPEC_OK, found = 0;
        if (!(below >= 0.0 && below <= 1.0)) {
            x[i] = NAN;
            continue;
        }
        for (int j = 0; j < law->n_atoms; j++) {
            const fspec_atom *a = &law->atoms[j];
            double at = variable == FSPEC_LAMBDA ? a->location : a->log_location;
            int first = a->log_location == -INFINITY ||
                        (law->equation == FSPEC_EQ_ATOMS && j + 1 < law->n_atoms);
            int last = !first;
            if ((first && p[i] <= a->mass) ||
                (last && (above < a->mass || law->equation == FSPEC_EQ_ATOMS))) {
                x[i] = at;
                found = 1;
                break;
            }
            if (first) below -= a->mass;
            else above -= a->mass;
        }
        if (found) continue;
        x[i] = continuous_quantile(law, below, above, variable, &status);
        failures += status != FSPEC_OK;
    }
    return failures;
}
