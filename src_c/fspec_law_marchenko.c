/* One Gaussian layer with 0/1 slopes, P(1) = p < 1: Marchenko-Pastur of ratio p with a zero atom.
 *     z/sigma^2 = (1+m)(m+p)/m,  edges (1 +- sqrt p)^2,  m = sqrt(p) e^{-i theta} on the support
 * In the letters of fspec_law.h: t = m, n1 = n = 1, k = 1/p. */
#include <complex.h>
#include <math.h>

#include "fspec_law.h"

void fspec_marchenko_init(fspec_law *law, double weight_variance)
{
    double p = law->slope_one, q = law->slope_zero, root = sqrt(p);
    long double log_variance = logl((long double)weight_variance);
    long double root_l = sqrtl((long double)p);
    law->two_edges = 1;
    law->n1 = law->n = 1.0;
    law->k = 1.0 / p;
    law->k_minus_1 = q / p;
    law->t_edge = root;
    law->e_edge = 1.0 + 1.0 / root;
    law->b1 = 1.0;
    law->c_e = q;
    fspec_law_set_edge(&law->top, log_variance + 2 * log1pl(root_l));
    fspec_law_set_edge(&law->bottom,
                       log_variance + 2 * (logl((long double)q) - log1pl(root_l)));
    law->guess_length = 0.5 * (law->top.log - law->bottom.log);
    law->log_center = 0.5 * (law->top.log + law->bottom.log);
    law->center = exp(law->log_center);
}

/* With g = |lambda - nearer edge|/sigma^2: y = sqrt(g_top g_bottom)/2, exact at both ends. */
fspec_root fspec_marchenko_root(const fspec_law *law, fspec_point at)
{
    double root = law->t_edge, p = law->slope_one;
    double delta = at.dk * 0.693147180559945309417 + at.df;
    double top = (1.0 + root) * (1.0 + root);
    double bottom = law->slope_zero / (1.0 + root);
    bottom *= bottom;
    double width = 4.0 * root;
    double g = at.side > 0 ? -top * expm1(-delta) : bottom * expm1(delta);
    double y = 0.5 * sqrt(g * (width - g));
    fspec_root r;
    r.d_re = at.side > 0 ? -0.5 * g : 0.5 * g - 2.0 * root;
    r.t_re = at.side > 0 ? root - 0.5 * g : 0.5 * g - root;
    r.e_re = 1.0 + r.t_re / p;
    r.d_im = r.t_im = -y;
    r.e_im = -y / p;
    r.status = FSPEC_OK;
    return r;
}

/* m = 2p/(b + sqrt(z - top) sqrt(z - bottom)), b = z - 1 - p, in units of sigma^2: the product of
 * principal roots behaves like z at infinity. */
void fspec_marchenko_plane(const fspec_law *law, double log_abs, double arg, double *m_re,
                           double *m_im)
{
    double root = law->t_edge, p = law->slope_one;
    double log_variance = law->log_mean - log(p);
    double bottom = law->slope_zero / (1.0 + root);
    double size = exp(log_abs - log_variance);
    double complex z = size * cos(arg) + I * (size * sin(arg));
    double complex s = csqrt(z - (1.0 + root) * (1.0 + root)) * csqrt(z - bottom * bottom);
    double complex m = 2.0 * p / (z - 1.0 - p + s);
    *m_re = creal(m);
    *m_im = cimag(m);
}
