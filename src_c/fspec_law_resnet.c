/* Constants of the universal residual law and of the smooth feed-forward class.
 *
 * With v = m + 1/2: log z = centre + log((v + 1/2)/(v - 1/2)) + alpha v, odd in v.
 * Edges at v_e^2 = 1/4 + 1/alpha; with c = alpha/2 and s = sqrt(c(2 + c)),
 * log lambda_+- = centre +- (log(1 + c + s) + s). Tarnowski et al. 2018, eq. 25. */
#include <float.h>
#include <math.h>

#include "fspec_law.h"

/* y at the centre: c y = atan(1/(2y)). */
static double height_at_centre(double c)
{
    double y = fmin(sqrt(0.5 / c), 1.5707963267948966 / c);
    for (int i = 0; i < 60; i++) {
        double step = (c * y - atan(0.5 / y)) / (c + 2.0 / (1.0 + 4.0 * y * y));
        y -= step;
        if (fabs(step) <= 1e-15 * y) break;
    }
    return y;
}

static int smooth_curve(long double alpha, long double log_center, fspec_law **out)
{
    fspec_law *law = fspec_law_new(FSPEC_EQ_RESNET);
    if (!law) return FSPEC_NO_MEMORY;
    long double c = alpha / 2, s = sqrtl(c * (2 + c)), length = log1pl(c + s) + s;
    long double v = sqrtl(0.25L + 1 / alpha);
    law->two_edges = 1;
    law->log_center = (double)log_center;
    law->center = (double)expl(log_center);
    fspec_law_set_edge(&law->top, log_center + length);
    fspec_law_set_edge(&law->bottom, log_center - length);
    law->alpha = (double)alpha;
    law->k = law->n = 1.0;
    law->e_edge = (double)(v + 0.5L);
    law->t_edge = (double)(1 / (alpha * (v + 0.5L)));
    law->b1 = (double)alpha;
    law->b2 = (double)(alpha / 2);
    law->log_mean = (double)(log_center + c);
    law->guess_length = (double)length;
    law->guess_g0 = height_at_centre((double)c) / law->guess_length;
    law->guess_g1 = (double)sqrtl(1 / (2 * alpha * alpha * v * length));
    *out = law;
    return FSPEC_OK;
}

/* alpha outside this range leaves the digits of a double in t or in the edges. */
static int alpha_usable(double alpha) { return alpha >= 1e-12 && alpha <= 1e6; }

int fspec_law_resnet_limit(double c, double skip, double depth, fspec_law **law)
{
    double alpha = 2.0 * c / (skip * skip);
    if (!(c > 0.0 && skip > 0.0 && skip <= DBL_MAX && depth >= 0.0 && depth <= 1e9))
        return FSPEC_BAD_ARGUMENT;
    if (!alpha_usable(alpha)) return FSPEC_BAD_ARGUMENT;
    long double a = skip;
    return smooth_curve(2 * (long double)c / (a * a), 2 * (long double)depth * logl(a), law);
}

int fspec_law_smooth_limit(double variance, fspec_law **law)
{
    if (!alpha_usable(variance)) return FSPEC_BAD_ARGUMENT;
    return smooth_curve(variance, -(long double)variance / 2, law);
}
