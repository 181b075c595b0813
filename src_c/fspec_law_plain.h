/* Equal plain layers with slopes 0 and 1 (linear, ReLU, hard tanh).
 *
 *     F = -log(t/t_e) + n1 log((1+t)/(1+t_e)) + n log(E/E_e) + delta,  E = 1 + k t
 * Gaussian, P(1) = p: t = m, n1 = 1, n = L, k = 1/p   (z = sigma^(2L) (1+m)(m+p)^L / m)
 * Gaussian, p = 1:    t = m, n1 = 0, n = L + 1, k = 1 (Fuss-Catalan, z = (1+m)^(L+1)/m)
 * orthogonal:         t = (q/p) m/(1+m), n1 = 0, n = L, k = 1
 *                                          (z = ((1+m)/m) sigma^(2L) ((m+p)/(1+m))^L)
 * Pennington, Schoenholz & Ganguli 2017/2018.
 *     F' = -1/t + n1/(1+t) + n k/E,  F'' = 1/t^2 - n1/(1+t)^2 - n k^2/E^2
 */
#ifndef FSPEC_LAW_PLAIN_H
#define FSPEC_LAW_PLAIN_H

#include "fspec_newton.h"

FSPEC_INLINE fspec_lane_eval fspec_plain_eval(const fspec_law *law, const fspec_lane_root *r,
                                              const fspec_lane_delta *delta)
{
    fspec_lane_eval v;
    double it = 1.0 / law->t_edge, ie = 1.0 / law->e_edge, n = law->n;
    vlog lt = vc_log_norm2(vc_scale(r->t, v_set(it)), vc_scale(r->d, v_set(it)));
    vlog le = vc_log_norm2(vc_scale(r->e, v_set(ie)), vc_scale(r->d, v_set(law->k * ie)));
    vd at = v_angle(r->t.im, r->t.re), ae = v_angle(r->e.im, r->e.re);
    vd whole = 0.5 * (n * le.k - lt.k), half = 0.5 * (n * le.f - lt.f);
    vd turn = at - n * ae;

    vc eps = vc_scale(r->e, v_set(1.0 / law->k));
    vi t_small = v_lt(vc_size(r->t), vc_size(eps));
    v.unit = vc_select(t_small, r->t, eps);
    vc ut = vc_div(v.unit, r->t), ue = vc_div(v.unit, eps);
    vc ut2 = vc_mul(ut, ut), ue2 = vc_mul(ue, ue);
    v.g1 = (vc){n * ue.re - ut.re, n * ue.im - ut.im};
    v.g2 = (vc){ut2.re - n * ue2.re, ut2.im - n * ue2.im};
    v.size_im = at + n * ae;

    if (law->n1 != 0.0) {
        double iq = 1.0 / (1.0 + law->t_edge);
        vc q = {(r->e.re + law->k_minus_1) * (1.0 / law->k), r->e.im * (1.0 / law->k)};
        vlog lq = vc_log_norm2(vc_scale(q, v_set(iq)), vc_scale(r->d, v_set(iq)));
        vd aq = v_angle(q.im, q.re);
        whole += 0.5 * lq.k;
        half += 0.5 * lq.f;
        turn -= aq;
        vc uq = vc_div(v.unit, q), uq2 = vc_mul(uq, uq);
        v.g1 = vc_add(v.g1, uq);
        v.g2 = vc_sub(v.g2, uq2);
        v.size_im += aq;
    }
    whole += delta->dk;
    v.f = (vc){whole * FSPEC_LN2 + (half + delta->df), turn - delta->phi};
    v.size_re = v_abs(whole) + v_abs(half) + v_abs(delta->df);
    return v;
}

/* log E and arg E along the support by cubic Hermite interpolation, in s = sqrt(delta), of the
 * nodes that fspec_plain_walk() solved; beyond the last one E ~ exp(-delta/n) with a fixed
 * angle. */
FSPEC_INLINE fspec_lane_root fspec_plain_guess(const fspec_law *law, const fspec_lane_delta *delta)
{
    vd gap = delta->dk * FSPEC_LN2 + delta->df;
    vd s = v_sqrt(gap);
    double s_at[FSPEC_LANES], g_at[FSPEC_LANES], l_at[FSPEC_LANES], a_at[FSPEC_LANES];
    v_store(s_at, s);
    v_store(g_at, gap);
    int last = law->n_nodes - 1;
    double s_last = law->nodes[last].s;
    for (int i = 0; i < FSPEC_LANES; i++) {
        if (!(s_at[i] < s_last)) {
            const fspec_node *b = &law->nodes[last];
            l_at[i] = b->log_e - (g_at[i] - s_last * s_last) / law->n;
            a_at[i] = b->arg_e;
            continue;
        }
        int j = law->index[(int)(s_at[i] * law->index_scale)];
        while (law->nodes[j + 1].s <= s_at[i]) j++;
        const fspec_node *a = &law->nodes[j], *b = a + 1;
        double h = b->s - a->s, x = (s_at[i] - a->s) / h, w = x * x * (3 - 2 * x);
        double ha = h * x * (1 - x) * (1 - x), hb = h * x * x * (x - 1);
        l_at[i] = a->log_e + w * (b->log_e - a->log_e) + ha * a->dlog_e + hb * b->dlog_e;
        a_at[i] = a->arg_e + w * (b->arg_e - a->arg_e) + ha * a->darg_e + hb * b->darg_e;
    }
    vd size = v_exp_rough(v_max(v_load(l_at), v_set(-700.0)));
    double sin_at[FSPEC_LANES], cos_at[FSPEC_LANES];
    for (int i = 0; i < FSPEC_LANES; i++) {
        sin_at[i] = sin(a_at[i]);
        cos_at[i] = cos(a_at[i]);
    }
    fspec_lane_root r;
    r.e = (vc){size * v_load(cos_at), -(size * v_load(sin_at))};
    r.d = (vc){(r.e.re - law->e_edge) * (1.0 / law->k), r.e.im * (1.0 / law->k)};
    r.t = (vc){law->t_edge + r.d.re, r.d.im}; /* consistent with d to the last digit of t_e */
    return r;
}

#endif
