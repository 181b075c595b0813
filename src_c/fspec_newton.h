/* The one iteration: complex Newton (third order, Halley) on masked lanes, for F(d) = 0 of
 * fspec_law.h, on the real support (delta real) and off it (delta complex).
 *
 * A law supplies `eval`: F, and its derivatives made dimensionless by a complex unit u, u F' and
 * u^2 F'', where |u| is about the distance to the nearest singularity of F. Steps are fractions
 * of u, so nothing overflows when t or E is 1e-300.
 *
 * Which root: F with principal logarithms (arguments in [-pi, 0]) has exactly one zero with
 * Im t < 0. Its curve Im(log z) = const is a single arc, because F' vanishes on the real axis
 * only; converged and Im t < 0 is therefore proof of the branch.
 */
#ifndef FSPEC_NEWTON_H
#define FSPEC_NEWTON_H

#include "fspec_lanes.h"
#include "fspec_law.h"

#if defined(__GNUC__) || defined(__clang__)
#define FSPEC_INLINE static inline __attribute__((always_inline))
#else
#define FSPEC_INLINE static inline
#endif

typedef struct {
    vc t, e, d;
} fspec_lane_root;

/* delta = dk ln 2 + df - i phi */
typedef struct {
    vd dk, df, phi;
} fspec_lane_delta;

typedef struct {
    vc f, g1, g2, unit; /* F, u F', u^2 F'', u */
    vd size_re, size_im; /* sums of |terms| of Re F and Im F, for the rounding bound */
} fspec_lane_eval;

typedef fspec_lane_eval (*fspec_eval_fn)(const fspec_law *, const fspec_lane_root *,
                                         const fspec_lane_delta *);

enum { FSPEC_MAX_STEPS = 40 };

/* 2^-k of the larger component's exponent: keeps squares of tiny or huge numbers in range. */
FSPEC_INLINE vd vc_power_of_two(vc a, vd *k)
{
    vd large = v_max(v_abs(a.re), v_abs(a.im));
    v_split(large, k);
    /* 2^-k; k is a whole number in [-1023, 1023] */
    return v_from_bits((vi)((vu)v_bits(1023.0 - *k + 6755399441055744.0) << 52));
}

FSPEC_INLINE vc vc_div(vc a, vc b)
{
    vd k, s = vc_power_of_two(b, &k);
    vc bs = vc_scale(b, s), as = vc_scale(a, s);
    vd inv = 1.0 / vc_norm2(bs);
    return (vc){(as.re * bs.re + as.im * bs.im) * inv, (as.im * bs.re - as.re * bs.im) * inv};
}

/* log|a|^2 where a = 1 + w; near |a| = 1 with the relative accuracy of w. */
FSPEC_INLINE vlog vc_log_norm2(vc a, vc w)
{
    vd k, s = vc_power_of_two(a, &k);
    vd kr, m = v_split(vc_norm2(vc_scale(a, s)), &kr);
    vlog r;
    r.k = k + k + kr;
    vi near_one = v_eq(r.k, v_set(0.0));
    vd excess = w.re + w.re + vc_norm2(w);
    vd num = v_select(near_one, excess, m - 1.0);
    vd den = v_select(near_one, excess + 2.0, m + 1.0);
    r.f = v_two_atanh(num / den);
    return r;
}

FSPEC_INLINE vd vc_size(vc a) { return v_abs(a.re) + v_abs(a.im); }

/* One Halley step as a fraction of the unit, kept below 0.7 so that no singularity is crossed. */
FSPEC_INLINE vc fspec_halley(const fspec_lane_eval *v)
{
    vc h = vc_mul(v->f, vc_inv(v->g1));
    vc q = vc_mul(vc_mul(h, v->g2), vc_inv(v->g1));
    vc s = vc_mul(h, vc_inv((vc){1.0 - 0.5 * q.re, -(0.5 * q.im)}));
    vd length = v_sqrt(vc_norm2(s));
    vd shrink = v_select(v_lt(v_set(0.7), length), 0.7 / length, v_set(1.0));
    return (vc){-(s.re * shrink), -(s.im * shrink)};
}

/* Iterates the lanes of `active` until each step is so small that the next would be below
 * rounding (the order is three): |step| <= tol * scale, scale = -Im t on the support, where its
 * relative accuracy is what the density needs, min(|unit|, |d|) elsewhere. Returns the mask of
 * converged lanes. */
FSPEC_INLINE vi fspec_newton(fspec_eval_fn eval, const fspec_law *law, fspec_lane_root *root,
                             const fspec_lane_delta *delta, vi active, int on_support, int steps)
{
    const double tol2 = 1e-11; /* (3e-6)^2 */
    vi done = ~active;
    for (int i = 0; i < steps && v_any(~done); i++) {
        fspec_lane_eval v = eval(law, root, delta);
        vc step = vc_mul(fspec_halley(&v), v.unit);
        /* a step out of the half plane goes three quarters of the way to its boundary */
        vi leaves = v_lt(v_set(0.0), root->t.im + step.im);
        vd pull = v_select(leaves, -0.75 * root->t.im / step.im, v_set(1.0));
        step = vc_scale(step, pull);
        step = vc_select(done, (vc){v_set(0.0), v_set(0.0)}, step);
        root->t = vc_add(root->t, step);
        root->d = vc_add(root->d, step);
        root->e = vc_add(root->e, vc_scale(step, v_set(law->k)));
        vd unit = vc_size(v.unit), y = v_abs(root->t.im);
        /* 1e-10 |u|: far down a hard edge Re t alone carries rounding above y */
        vd scale = on_support ? v_max(y, 1e-10 * unit) : v_min(unit, vc_size(root->d));
        vd ratio = vc_size(step) / scale;
        done |= v_le(ratio * ratio, v_set(tol2)) & ~leaves;
    }
    return done & active;
}

/* kappa - t: from d near the edge, from t where t is small. */
FSPEC_INLINE vc fspec_lane_gap(const fspec_law *law, const fspec_lane_root *r)
{
    vi far = v_lt(vc_size(r->t), v_set(0.5 * law->t_edge));
    vd re = v_select(far, law->kappa - r->t.re, law->kappa_gap - r->d.re);
    return (vc){re, -r->d.im};
}

/* m of a root: t itself, or t/(kappa - t). */
FSPEC_INLINE vc fspec_lane_m(const fspec_law *law, const fspec_lane_root *r)
{
    return law->mobius ? vc_div(r->t, fspec_lane_gap(law, r)) : r->t;
}

/* 1 + m without loss where m is near -1; its imaginary part is also the better one of m's. */
FSPEC_INLINE vc fspec_lane_one(const fspec_law *law, const fspec_lane_root *r)
{
    if (law->mobius) return vc_div((vc){v_set(law->kappa), v_set(0.0)}, fspec_lane_gap(law, r));
    vd per = v_set(1.0 / law->k);
    return (vc){(r->e.re + law->k_minus_1) * per, r->e.im * per};
}

#endif
