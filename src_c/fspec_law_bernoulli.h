/* The Bernoulli universality class: with w = m/(1+m) and t = v w,
 *     log z = log v - log t + t,   F = -log(t/t_e) + d + delta,  t_e = 1
 * (Wright's omega function; m = t/(v - t)). Pennington, Schoenholz & Ganguli 2018.
 *     F' = d/t,  F'' = 1/t^2,  u = t
 */
#ifndef FSPEC_LAW_BERNOULLI_H
#define FSPEC_LAW_BERNOULLI_H

#include "fspec_newton.h"

FSPEC_INLINE fspec_lane_eval fspec_bernoulli_eval(const fspec_law *law, const fspec_lane_root *r,
                                                  const fspec_lane_delta *delta)
{
    (void)law;
    fspec_lane_eval v;
    vlog g = vc_log_norm2(r->t, r->d);
    vd angle = v_angle(r->t.im, r->t.re);
    vd whole = delta->dk - 0.5 * g.k, half = -0.5 * g.f;
    v.f = (vc){whole * FSPEC_LN2 + (half + delta->df + r->d.re), r->d.im + angle - delta->phi};
    v.size_re = v_abs(whole) + v_abs(half) + v_abs(delta->df) + v_abs(r->d.re);
    v.size_im = v_abs(r->d.im) + angle;
    v.g1 = r->d;
    v.g2 = (vc){v_set(1.0), v_set(0.0)};
    v.unit = r->t;
    return v;
}

/* Near the edge d = eta + eta^2/3 + eta^3/36, eta = -i sqrt(2 delta); far from it
 * t = x + log t with x = 1 - delta, iterated twice from t = x - i pi. */
FSPEC_INLINE fspec_lane_root fspec_bernoulli_guess(const fspec_law *law,
                                                   const fspec_lane_delta *delta)
{
    (void)law;
    vd gap = delta->dk * FSPEC_LN2 + delta->df, s = v_sqrt(gap + gap), x = 1.0 - gap;
    vc near_edge = {gap * (-2.0 / 3.0), s * (gap * (1.0 / 18.0) - 1.0)};
    vc t = {x, v_set(-FSPEC_PI)};
    for (int i = 0; i < 2; i++) {
        vlog g = v_log(vc_norm2(t));
        t = (vc){x + 0.5 * (g.k * FSPEC_LN2 + g.f), -v_angle(t.im, t.re)};
    }
    vi close = v_lt(gap, v_set(2.0));
    fspec_lane_root r;
    r.d = (vc){v_select(close, near_edge.re, t.re - 1.0), v_select(close, near_edge.im, t.im)};
    r.t = (vc){r.d.re + 1.0, r.d.im};
    r.e = (vc){v_set(1.0), v_set(0.0)};
    return r;
}

#endif
