/* The universal residual law, and the smooth feed-forward class, which is the same curve.
 *
 * z = exp(centre) ((1+m)/m) exp(alpha (m + 1/2)): t = m, E = 1 + m, alpha = 2 c/a^2 or sigma0^2
 * (Tarnowski et al. 2018, eq. 25; Pennington, Schoenholz & Ganguli 2018, smooth class).
 *     F = -log(t/t_e) + log(E/E_e) + alpha d + delta
 *     F' = alpha - 1/(tE),  F'' = (1 + 2t)/(tE)^2,  u = tE
 */
#ifndef FSPEC_LAW_RESNET_H
#define FSPEC_LAW_RESNET_H

#include "fspec_newton.h"

FSPEC_INLINE void fspec_resnet_derivatives(const fspec_law *law, const fspec_lane_root *r,
                                           fspec_lane_eval *v)
{
    vc w = vc_mul(r->t, r->e);
    v->unit = w;
    v->g1 = (vc){law->alpha * w.re - 1.0, law->alpha * w.im};
    v->g2 = (vc){r->t.re + r->t.re + 1.0, r->t.im + r->t.im};
}

/* On the support: both logarithms as one ratio, whose angle is that of E conj(t). */
FSPEC_INLINE fspec_lane_eval fspec_resnet_eval(const fspec_law *law, const fspec_lane_root *r,
                                               const fspec_lane_delta *delta)
{
    fspec_lane_eval v;
    double te = law->t_edge, ee = law->e_edge;
    vd t2 = vc_norm2(r->t), e2 = vc_norm2(r->e);
    vd ratio = e2 * (te * te) / (t2 * (ee * ee));
    /* (E t_e)/(t E_e) = 1 + w, w = -d/(t E_e) */
    vd s = -1.0 / (t2 * ee);
    vd w_re = s * (r->d.re * r->t.re + r->d.im * r->t.im);
    vd w2 = vc_norm2(r->d) / (t2 * (ee * ee));
    vlog g = v_log1p(ratio, w_re + w_re + w2);
    vd angle = v_angle(r->t.im, r->t.re + t2);
    vd whole = 0.5 * g.k + delta->dk, half = 0.5 * g.f, linear = law->alpha * r->d.re;
    vd turn = law->alpha * r->d.im;
    v.f = (vc){whole * FSPEC_LN2 + (half + delta->df + linear), turn + angle - delta->phi};
    v.size_re = v_abs(whole) + v_abs(half) + v_abs(delta->df) + v_abs(linear);
    v.size_im = v_abs(turn) + angle;
    fspec_resnet_derivatives(law, r, &v);
    return v;
}

/* Anywhere: t may be 1e-300. */
FSPEC_INLINE fspec_lane_eval fspec_resnet_eval_plane(const fspec_law *law,
                                                     const fspec_lane_root *r,
                                                     const fspec_lane_delta *delta)
{
    fspec_lane_eval v;
    double it = 1.0 / law->t_edge, ie = 1.0 / law->e_edge;
    vlog lt = vc_log_norm2(vc_scale(r->t, v_set(it)), vc_scale(r->d, v_set(it)));
    vlog le = vc_log_norm2(vc_scale(r->e, v_set(ie)), vc_scale(r->d, v_set(ie)));
    vd at = v_angle(r->t.im, r->t.re), ae = v_angle(r->e.im, r->e.re);
    vd whole = 0.5 * (le.k - lt.k) + delta->dk, half = 0.5 * (le.f - lt.f);
    vd linear = law->alpha * r->d.re, turn = law->alpha * r->d.im;
    v.f = (vc){whole * FSPEC_LN2 + (half + delta->df + linear), turn + (at - ae) - delta->phi};
    v.size_re = v_abs(whole) + v_abs(half) + v_abs(delta->df) + v_abs(linear);
    v.size_im = v_abs(turn) + at + ae;
    fspec_resnet_derivatives(law, r, &v);
    return v;
}

/* y = sqrt(l_max^2 - l^2) (g0 + (g1 - g0)(l/l_max)^2), x = x_edge l/l_max: exact value at the
 * centre (g0) and exact square root at the edge (g1). */
FSPEC_INLINE fspec_lane_root fspec_resnet_guess(const fspec_law *law,
                                                const fspec_lane_delta *delta)
{
    double length = law->guess_length;
    vd gap = delta->dk * FSPEC_LN2 + delta->df, l = length - gap;
    vd u = l * (1.0 / length);
    vd y = v_sqrt(gap * (length + l)) *
           (law->guess_g0 + (law->guess_g1 - law->guess_g0) * (u * u));
    fspec_lane_root r;
    double x_edge = law->t_edge + 0.5;
    r.d = (vc){gap * (-x_edge / length), -y};
    r.t = (vc){x_edge * u - 0.5, -y};
    r.e = (vc){x_edge * u + 0.5, -y};
    return r;
}

#endif
