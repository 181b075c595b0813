/* m(z) off the real axis (and on it outside the support), by continuation on masked lanes.
 *
 * Each lane walks in log z: from far above the top edge, where m ~ mean/z, inward at
 * arg z >= pi/2 (or along the real axis above the support), then turned to its own argument.
 * The step is tried whole first: any converged root in the lower half plane is the right one
 * (fspec_newton.h), so the path only has to lead Newton there; a lane that fails halves its own
 * step.
 */
#ifndef FSPEC_PLANE_H
#define FSPEC_PLANE_H

#include "fspec_newton.h"

enum { FSPEC_MAX_HOPS = 400 };

/* log z at path position u in [0, 2]: u < 1 inward at fixed argument, then the turn. */
FSPEC_INLINE void fspec_path(vd u, vd log_far, vd log_abs, vd arg_in, vd arg, vd *l, vd *phi)
{
    vd first = v_min(u, v_set(1.0)), second = v_max(u - 1.0, v_set(0.0));
    *l = log_far + (log_abs - log_far) * first;
    *phi = arg_in + (arg - arg_in) * second;
}

FSPEC_INLINE fspec_lane_delta fspec_plane_delta(const fspec_law *law, vd l, vd phi)
{
    return (fspec_lane_delta){v_set(0.0), (law->top.log - l) + law->top.log_lo, phi};
}

/* Far out F = -log(t/t_e) + c0 + delta with c0 = lim (F + log(t/t_e)) at t = 0. */
FSPEC_INLINE double fspec_far_constant(const fspec_law *law)
{
    return -law->n1 * log1p(law->t_edge) - law->n * log(law->e_edge) - law->alpha * law->t_edge;
}

FSPEC_INLINE fspec_lane_root fspec_far_root(const fspec_law *law, vd l, vd phi)
{
    double c0 = fspec_far_constant(law);
    double re[FSPEC_LANES], im[FSPEC_LANES];
    v_store(re, c0 + ((law->top.log - l) + law->top.log_lo));
    v_store(im, phi);
    for (int i = 0; i < FSPEC_LANES; i++) {
        double size = law->t_edge * exp(re[i]), angle = im[i];
        re[i] = size * cos(angle);
        im[i] = angle == 0.0 ? 0.0 : -fabs(size * sin(angle));
    }
    fspec_lane_root r;
    r.t = (vc){v_load(re), v_load(im)};
    r.d = (vc){r.t.re - law->t_edge, r.t.im};
    r.e = (vc){1.0 + law->k * r.t.re, law->k * r.t.im};
    return r;
}

FSPEC_INLINE fspec_lane_root fspec_root_select(vi mask, fspec_lane_root yes, fspec_lane_root no)
{
    return (fspec_lane_root){vc_select(mask, yes.t, no.t), vc_select(mask, yes.e, no.e),
                             vc_select(mask, yes.d, no.d)};
}

/* Euler step in the unknown for a step (dl, dphi) of log z: dt = (dl + i dphi) u/(uF'). */
FSPEC_INLINE fspec_lane_root fspec_predict(fspec_eval_fn eval, const fspec_law *law,
                                           fspec_lane_root r, const fspec_lane_delta *delta,
                                           vd dl, vd dphi)
{
    fspec_lane_eval v = eval(law, &r, delta);
    vc s = vc_mul((vc){dl, dphi}, vc_inv(v.g1));
    vd length = v_sqrt(vc_norm2(s));
    vd shrink = v_select(v_lt(v_set(0.7), length), 0.7 / length, v_set(1.0));
    vc step = vc_mul(vc_scale(s, shrink), v.unit);
    vi leaves = v_lt(v_set(0.0), r.t.im + step.im);
    step = vc_scale(step, v_select(leaves, -0.75 * r.t.im / step.im, v_set(1.0)));
    r.t = vc_add(r.t, step);
    r.d = vc_add(r.d, step);
    r.e = vc_add(r.e, vc_scale(step, v_set(law->k)));
    return r;
}

/* Walks all lanes to their targets; returns the mask of those that arrived. */
FSPEC_INLINE vi fspec_plane_walk(fspec_eval_fn eval, const fspec_law *law, vd log_abs, vd arg,
                                 fspec_lane_root *root)
{
    vd zero = v_set(0.0), two = v_set(2.0);
    vd far_edge = v_set(law->top.log + log(8.0 * (1.0 + law->alpha + law->n * law->k)));
    vd log_far = v_max(log_abs, far_edge);
    vi on_axis = v_eq(arg, zero);
    vd arg_in = v_select(on_axis, zero, v_max(arg, v_set(FSPEC_PI / 2)));
    /* on the negative axis Im t = 0 is reached last, by dropping it (a simple real root) */
    vi negative = v_le(v_set(FSPEC_PI), arg);
    arg_in = v_select(negative, v_set(FSPEC_PI * (1 - 1e-3)), arg_in);
    vd turn = v_select(negative, arg_in, arg);

    *root = fspec_far_root(law, log_far, arg_in);
    vd l, phi, u = zero, h = two;
    fspec_lane_delta delta = fspec_plane_delta(law, log_far, arg_in);
    vi alive = fspec_newton(eval, law, root, &delta, ~v_lt(two, u), 0, FSPEC_MAX_STEPS);
    vi arrived = v_lt(two, u);
    for (int hop = 0; hop < FSPEC_MAX_HOPS && v_any(alive & ~arrived); hop++) {
        vd l0, phi0, next = v_min(u + h, two);
        fspec_path(u, log_far, log_abs, arg_in, turn, &l0, &phi0);
        fspec_path(next, log_far, log_abs, arg_in, turn, &l, &phi);
        delta = fspec_plane_delta(law, l0, phi0);
        fspec_lane_root trial = fspec_predict(eval, law, *root, &delta, l - l0, phi - phi0);
        delta = fspec_plane_delta(law, l, phi);
        vi good = fspec_newton(eval, law, &trial, &delta, alive & ~arrived, 0, 12);
        good &= on_axis | v_lt(trial.t.im, zero);
        *root = fspec_root_select(good, trial, *root);
        u = v_select(good, next, u);
        h = v_select(good, h * 2.0, h * 0.4);
        arrived |= good & v_le(two, u);
        alive &= v_lt(v_set(1e-9), h) | arrived;
    }
    if (v_any(negative & arrived)) {
        fspec_lane_root real_root = *root;
        real_root.t.im = real_root.e.im = real_root.d.im = zero;
        delta = fspec_plane_delta(law, log_abs, arg);
        vi good = fspec_newton(eval, law, &real_root, &delta, negative & arrived, 0,
                               FSPEC_MAX_STEPS);
        *root = fspec_root_select(negative, real_root, *root);
        arrived &= good | ~negative;
    }
    return arrived;
}

FSPEC_INLINE size_t fspec_plane(fspec_eval_fn eval, const fspec_law *law, size_t n,
                                const double *log_abs, const double *arg, fspec_solved out)
{
    const double eps = 2.220446049250313e-16;
    size_t failures = 0;
    for (size_t i = 0; i < n; i += FSPEC_LANES) {
        double la[FSPEC_LANES], ar[FSPEC_LANES], re[FSPEC_LANES], im[FSPEC_LANES],
            one[FSPEC_LANES], res[FSPEC_LANES], err[FSPEC_LANES], ok[FSPEC_LANES];
        size_t count = n - i < FSPEC_LANES ? n - i : FSPEC_LANES;
        for (size_t j = 0; j < FSPEC_LANES; j++) {
            la[j] = log_abs[i + (j < count ? j : 0)];
            ar[j] = arg[i + (j < count ? j : 0)];
        }
        /* odd in log z - centre: the lower half of a symmetric law is its mirror image */
        vd l = v_load(la), phi = v_load(ar);
        vi below = law->two_edges ? v_lt(l, v_set(law->log_center)) : v_lt(l, l);
        vd mirrored = (law->top.log - l) + law->bottom.log;
        l = v_select(below, law->two_edges ? mirrored : l, l);
        fspec_lane_root root;
        vi arrived = fspec_plane_walk(eval, law, l, phi, &root);

        fspec_lane_delta delta = fspec_plane_delta(law, l, phi);
        fspec_lane_eval v = eval(law, &root, &delta);
        vc m = fspec_lane_m(law, &root), plus = fspec_lane_one(law, &root);
        vd size = v_sqrt(vc_norm2(v.f)), scale = v_sqrt(vc_norm2(vc_mul(v.unit, vc_inv(v.g1))));
        if (law->mobius)
            scale = scale * law->kappa / vc_norm2(fspec_lane_gap(law, &root));
        v_store(re, v_select(below, -plus.re, m.re));
        v_store(one, v_select(below, -m.re, plus.re));
        v_store(im, law->mobius ? plus.im : m.im);
        v_store(res, size);
        v_store(err, scale * (size + 8 * eps * (v.size_re + v.size_im + v_abs(l))) +
                         4 * eps * vc_size(m));
        v_store(ok, v_select(arrived, v_set(1.0), v_set(0.0)));
        for (size_t j = 0; j < count; j++) {
            size_t o = i + j;
            int good = ok[j] != 0.0;
            out.m_re[o] = good ? re[j] : NAN;
            out.m_im[o] = good ? im[j] : NAN;
            out.one_re[o] = good ? one[j] : NAN;
            out.status[o] = good ? FSPEC_OK : FSPEC_NOT_CONVERGED;
            out.residual[o] = res[j];
            out.error_bound[o] = good ? err[j] : INFINITY;
            failures += !good;
        }
    }
    return failures;
}

#endif
