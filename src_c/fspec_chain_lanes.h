/* The Newton system of a chain on lanes. All unknowns depend on each other only through m (the
 * matrix is an arrow), so one pass over the blocks eliminates them: every unknown's step is
 * a dm + b, with a and b kept for the second pass.
 */
#include <stdlib.h>

#include "fspec_chain.h"
#include "fspec_newton.h"

enum { FSPEC_CHAIN_STEPS = 40 };

typedef struct {
    vc m, e, dm, q; /* M, M + P, dM/dzeta, zeta M/mu_1 - 1 */
} fspec_lane_slopes;

FSPEC_INLINE vc vc_real(double a) { return (vc){v_set(a), v_set(0.0)}; }

/* A logarithm whose imaginary part is kept as turns pi + im, |im| <= pi/2: on a real branch, and
 * in tails where imaginary parts are far below rounding, the turns cancel exactly in the sum. */
typedef struct {
    vd re, im, turns;
} fspec_lane_logarithm;

/* log a, a = 1 + excess. In the left half plane the angle is near -pi in the lanes of `below`, near
 * +pi in the others: products of numbers of known half planes cross the cut there only by
 * rounding, and the log goes on analytically. */
FSPEC_INLINE fspec_lane_logarithm fspec_lane_log(vc a, vc excess, vi below)
{
    vlog size = v_log1p(vc_norm2(a), 2.0 * excess.re + vc_norm2(excess));
    vd zero = v_set(0.0), one = v_set(1.0), angle = v_angle(a.im, v_abs(a.re));
    vi left = v_lt(a.re, zero), down = v_lt(a.im, zero);
    vd turns = v_select(left, v_select(below, -one, one), zero);
    vi negative = (left & ~down) | (~left & down);
    return (fspec_lane_logarithm){0.5 * (size.k * FSPEC_LN2 + size.f),
                                  v_select(negative, -angle, angle), turns};
}

/* log of a = 1 + excess where that is the accurate form (|excess| < 1/2), else of `direct`. */
FSPEC_INLINE fspec_lane_logarithm fspec_lane_log_either(vc excess, vc direct, vi below)
{
    vi near_one = v_lt(vc_norm2(excess), v_set(0.25));
    vc a = vc_select(near_one, (vc){1.0 + excess.re, excess.im}, direct);
    vc more = vc_select(near_one, excess, (vc){direct.re - 1.0, direct.im});
    return fspec_lane_log(a, more, below);
}

static void fspec_lane_slopes_near(const fspec_slopes *s, vi mask, vc zeta, fspec_lane_slopes *v)
{
    double zr[FSPEC_LANES], zi[FSPEC_LANES], on[FSPEC_LANES], part[6][FSPEC_LANES];
    vd *field[6] = {&v->m.re, &v->m.im, &v->e.re, &v->e.im, &v->dm.re, &v->dm.im};
    v_store(zr, zeta.re);
    v_store(zi, zeta.im);
    v_store(on, v_select(mask, v_set(1.0), v_set(0.0)));
    for (int f = 0; f < 6; f++) v_store(part[f], *field[f]);
    for (int j = 0; j < FSPEC_LANES; j++) {
        if (on[j] == 0.0) continue;
        fspec_slopes_value at = fspec_slopes_near(s, zr[j], zi[j]);
        part[0][j] = at.m_re;
        part[1][j] = at.m_im;
        part[2][j] = at.e_re;
        part[3][j] = at.e_im;
        part[4][j] = at.dm_re;
        part[5][j] = at.dm_im;
    }
    for (int f = 0; f < 6; f++) *field[f] = v_load(part[f]);
    vc q = vc_scale(vc_mul(zeta, v->m), v_set(1.0 / s->mean));
    v->q = vc_select(mask, (vc){q.re - 1.0, q.im}, v->q);
}

FSPEC_INLINE fspec_lane_slopes fspec_lane_slope_sums(const fspec_factor *f, vc zeta,
                                                     vi alive)
{
    vc s0 = vc_real(0.0), s1 = s0, s2 = s0, d1 = s0;
    for (size_t k = 0; k < f->slopes->count; k++) {
        vc inv = vc_inv((vc){zeta.re - f->d[k], zeta.im});
        vc square = vc_mul(inv, inv);
        s0 = (vc){s0.re + f->w[k] * inv.re, s0.im + f->w[k] * inv.im};
        s1 = (vc){s1.re + f->wd[k] * inv.re, s1.im + f->wd[k] * inv.im};
        s2 = (vc){s2.re + f->wd2[k] * inv.re, s2.im + f->wd2[k] * inv.im};
        d1 = (vc){d1.re - f->wd[k] * square.re, d1.im - f->wd[k] * square.im};
    }
    fspec_lane_slopes v = {s1, vc_mul(zeta, s0), d1, vc_scale(s2, v_set(1.0 / f->slopes->mean))};
    if (f->slopes->guard > 0.0) {
        vd gap = zeta.re - f->slopes->top, im2 = zeta.im * zeta.im;
        vd focal = v_sqrt(gap * gap + im2) + v_sqrt(vc_norm2(zeta));
        vi near = v_lt(focal, v_set(f->slopes->guard)) & alive;
        if (v_any(near)) fspec_lane_slopes_near(f->slopes, near, zeta, &v);
    }
    return v;
}

/* Where lanes keep their unknowns and the steps a dm + b; lanes that still need them. */
typedef struct {
    vc *x, *a, *b;
    vi alive;
} fspec_lane_arrow;

typedef struct {
    vc f, slope, rest; /* F, dF/dm with blocks solved, and the blocks' part of -F */
    vd turns;          /* F has another i pi turns */
} fspec_lane_sum;

FSPEC_INLINE void fspec_lane_add_log(fspec_lane_sum *sum, fspec_lane_logarithm t, double n)
{
    sum->f = (vc){sum->f.re + n * t.re, sum->f.im + n * t.im};
    sum->turns += n * t.turns;
}

/* zeta's step for M(zeta) = target + a dm: the residual from whichever of M and M + P is smaller
 * (it has the digits). */
FSPEC_INLINE vc fspec_lane_residual(const fspec_lane_slopes *v, vc m_target, vc e_target)
{
    vi low = v_lt(vc_norm2(v->e), vc_norm2(v->m));
    return vc_select(low, vc_sub(e_target, v->e), vc_sub(m_target, v->m));
}

FSPEC_INLINE void fspec_lane_plain(const fspec_chain *c, const fspec_chain_block *b,
                                   fspec_lane_arrow s, vi below, fspec_lane_sum *sum)
{
    vc zeta = s.x[b->first], m = s.x[0], e = s.x[1];
    fspec_lane_slopes v = fspec_lane_slope_sums(&c->factors[b->first_factor], zeta, s.alive);
    vc rm = vc_scale(m, v_set(b->r));
    vc re = {b->r * (e.re + b->bound), b->r * e.im};
    vc inv = vc_inv(v.dm), rate = vc_scale(inv, v_set(b->r));
    vc fix = vc_mul(inv, fspec_lane_residual(&v, rm, re));
    s.a[b->first] = rate;
    s.b[b->first] = fix;
    vc direct = vc_scale(vc_mul(rm, zeta),
                         v_set(1.0 / c->factors[b->first_factor].slopes->mean));
    fspec_lane_add_log(sum, fspec_lane_log_either(v.q, direct, below), b->n);
    /* T = log(r m zeta): dT = dm/m + dzeta/zeta; near one it was taken as a function of zeta,
     * zeta M(zeta): dT = dzeta/zeta + M' dzeta/M, the same once M = r m */
    vi near_one = v_lt(vc_norm2(v.q), v_set(0.25));
    vc izeta = vc_inv(zeta), im = vc_inv(m);
    vc slope = vc_add(im, vc_mul(rate, izeta));
    vc by_zeta = vc_add(izeta, vc_div(v.dm, v.m));
    vc rest = vc_select(near_one, vc_mul(fix, by_zeta), vc_mul(fix, izeta));
    slope = vc_select(near_one, vc_mul(rate, by_zeta), slope);
    sum->slope = vc_add(sum->slope, vc_scale(slope, v_set(b->n)));
    sum->rest = vc_add(sum->rest, vc_scale(rest, v_set(b->n)));
}

FSPEC_INLINE void fspec_lane_residual_block(const fspec_chain *c, const fspec_chain_block *b,
                                            fspec_lane_arrow s, vi below, fspec_lane_sum *sum)
{
    const size_t o = b->first;
    vc m = s.x[0], one = {s.x[1].re + (1.0 - c->positive), s.x[1].im};
    vc u = s.x[o], v = s.x[o + 1], t = s.x[o + 2], tau = s.x[o + 3];
    vc iu = vc_inv(u), iv = vc_inv(v);
    vc wt = vc_add(vc_inv(t), vc_inv(tau));
    /* closing equation: ratio = t(1+t) scale prod zeta u^(J-1)/(1+u)^power = 1, as
     * 2(ratio - 1)/(ratio + 1) ~ log(ratio) */
    vc ratio = vc_scale(vc_mul(t, tau), v_set(b->scale));
    vc d = vc_sub(vc_scale(iu, v_set((double)b->n_factors - 1.0)), vc_scale(iv, v_set(b->power)));
    d = vc_sub(d, wt);
    vc fix = vc_real(0.0);
    for (size_t j = 0; j < b->n_factors; j++) {
        const fspec_factor *f = &c->factors[b->first_factor + j];
        vc zeta = s.x[o + 4 + j];
        fspec_lane_slopes at = fspec_lane_slope_sums(f, zeta, s.alive);
        vc inv = vc_inv(at.dm), izeta = vc_inv(zeta);
        vc over = vc_mul(inv, izeta);
        vc e_target = {v.re - f->slopes->zero, v.im};
        vc r = fspec_lane_residual(&at, u, e_target);
        s.a[o + 4 + j] = inv;
        s.b[o + 4 + j] = vc_mul(inv, r);
        d = vc_add(d, over);
        fix = vc_add(fix, vc_mul(over, r));
        ratio = vc_mul(ratio, zeta);
        if (j > 0) ratio = vc_mul(ratio, u);
    }
    for (int k = 0; k < (int)b->power; k++) ratio = vc_mul(ratio, iv);
    vc off = vc_div((vc){2.0 * (ratio.re - 1.0), 2.0 * ratio.im}, (vc){ratio.re + 1.0, ratio.im});
    vc id = vc_inv(d);
    vc au = vc_scale(vc_mul(wt, id), v_set(-1.0));
    vc bu = vc_scale(vc_mul(vc_add(off, fix), id), v_set(-1.0));
    for (size_t j = 0; j < b->n_factors; j++) {
        vc inv = s.a[o + 4 + j];
        s.a[o + 4 + j] = vc_mul(inv, au);
        s.b[o + 4 + j] = vc_add(s.b[o + 4 + j], vc_mul(inv, bu));
    }
    vc at = {1.0 - au.re, -au.im}, bt = {-bu.re, -bu.im};
    s.a[o] = s.a[o + 1] = au;
    s.b[o] = s.b[o + 1] = bu;
    s.a[o + 2] = s.a[o + 3] = at;
    s.b[o + 2] = s.b[o + 3] = bt;
    /* t(1+t)/(m(1+m)) = 1 - u(1+m+t)/(m(1+m)) */
    vc imm = vc_inv(vc_mul(m, one));
    vc excess = vc_scale(vc_mul(vc_mul(u, vc_add(one, t)), imm), v_set(-1.0));
    fspec_lane_add_log(
        sum, fspec_lane_log_either(excess, vc_mul(vc_mul(t, tau), imm), ~below), -b->n);
    sum->f.re -= b->n * b->log_norm;
    vc slope = vc_sub(vc_add(vc_inv(m), vc_inv(one)), vc_mul(at, wt));
    vc rest = vc_scale(vc_mul(bt, wt), v_set(-1.0));
    sum->slope = vc_add(sum->slope, vc_scale(slope, v_set(b->n)));
    sum->rest = vc_add(sum->rest, vc_scale(rest, v_set(b->n)));
}

/* One lane; repeated lanes are not asked twice (a call may be slow). */
static void fspec_lane_given(const fspec_chain_block *b, vc m, vd one_re, vi alive,
                             fspec_lane_sum *sum)
{
    double re[FSPEC_LANES], im[FSPEC_LANES], one[FSPEC_LANES], on[FSPEC_LANES];
    double part[4][FSPEC_LANES], at[4] = {0.0, 0.0, 0.0, 0.0};
    v_store(re, m.re);
    v_store(im, m.im);
    v_store(one, one_re);
    v_store(on, v_select(alive, v_set(1.0), v_set(0.0)));
    int asked = -1;
    for (int j = 0; j < FSPEC_LANES; j++) {
        int again = asked >= 0 && re[j] == re[asked] && im[j] == im[asked] && one[j] == one[asked];
        if (on[j] != 0.0 && !again) {
            fspec_given_value(b, re[j], im[j], one[j], at);
            asked = j;
        }
        for (int f = 0; f < 4; f++) part[f][j] = at[f];
    }
    vd n = v_set(b->n);
    sum->f = vc_add(sum->f, vc_scale((vc){v_load(part[0]), v_load(part[1])}, n));
    sum->slope = vc_add(sum->slope, vc_scale((vc){v_load(part[2]), v_load(part[3])}, n));
}

/* F - l, dF/dm and the steps of the blocks' unknowns at the present state. */
FSPEC_INLINE fspec_lane_sum fspec_lane_chain(const fspec_chain *c, fspec_lane_arrow s)
{
    vc m = s.x[0], e = s.x[1], one = {e.re + (1.0 - c->positive), e.im};
    vd zero = v_set(0.0);
    vi all = v_le(zero, zero), none = ~all;
    vc im = vc_inv(m);
    /* log((1+m)/m), the angle in [0, pi] */
    fspec_lane_sum sum;
    sum.f = vc_real(0.0);
    sum.turns = zero;
    fspec_lane_add_log(&sum, fspec_lane_log_either(im, vc_mul(one, im), none), 1.0);
    sum.slope = vc_sub(vc_inv(one), im);
    sum.rest = vc_real(0.0);
    for (size_t i = 0; i < c->n_terms; i++) {
        double rho = c->terms[i].rho;
        vc excess = vc_scale(m, v_set(rho));
        vc direct = {rho * (e.re + c->terms[i].bound), rho * e.im};
        fspec_lane_add_log(&sum, fspec_lane_log_either(excess, direct, all), c->terms[i].n);
        sum.slope = vc_add(sum.slope, vc_scale(vc_inv(direct), v_set(c->terms[i].n * rho)));
    }
    /* products m zeta, and z-like ratios, go left of the cut with the sign of arg m resp. of
     * arg(m/(1+m)) + pi/2 */
    vi m_left = v_lt(m.re, zero);
    vc v = vc_mul(m, vc_inv(one));
    vi v_left = v_lt(v.re, zero);
    for (size_t i = 0; i < c->n_blocks; i++) {
        const fspec_chain_block *b = &c->blocks[i];
        if (b->kind == FSPEC_PLAIN) fspec_lane_plain(c, b, s, m_left, &sum);
        else if (b->kind == FSPEC_RESIDUAL) fspec_lane_residual_block(c, b, s, v_left, &sum);
        else fspec_lane_given(b, m, one.re, s.alive, &sum);
    }
    /* weights that are not whole leave rounding in a sum of turns that is */
    vd whole = (sum.turns + 6755399441055744.0) - 6755399441055744.0;
    vi rounding = v_lt(v_abs(sum.turns - whole), v_set(1e-11));
    sum.f.im += FSPEC_PI * v_select(rounding, whole, sum.turns);
    return sum;
}

/* The largest relative step of any unknown (m against the smaller of m and e). */
FSPEC_INLINE vd fspec_lane_size(const fspec_chain *c, fspec_lane_arrow s, vc dm)
{
    vd worst = vc_norm2(dm) / v_min(vc_norm2(s.x[0]), vc_norm2(s.x[1]));
    for (size_t i = 2; i < c->size; i++) {
        vc step = vc_add(vc_mul(s.a[i], dm), s.b[i]);
        worst = v_max(worst, vc_norm2(step) / vc_norm2(s.x[i]));
    }
    return v_sqrt(worst);
}

typedef struct {
    vd step;
    vi done, failed;
    vc f, slope;
} fspec_lane_state;

/* One masked Newton step; a step that would change an unknown by more than half is shortened.
 * A lane is done once its step is rounding, or once small steps stop shrinking. */
FSPEC_INLINE void fspec_lane_chain_step(const fspec_chain *c, fspec_lane_arrow s, vc l, int mode,
                                        fspec_lane_state *state)
{
    vi alive = s.alive = ~(state->done | state->failed);
    fspec_lane_sum sum = fspec_lane_chain(c, s);
    sum.f = vc_sub(sum.f, l);
    vc dm = vc_scale(vc_div(vc_add(sum.f, sum.rest), sum.slope), v_set(-1.0));
    if (mode == FSPEC_FIXED_M) dm = vc_real(0.0);
    vd size = fspec_lane_size(c, s, dm);
    vi bad = ~v_le(size, v_set(1e100));
    state->failed |= alive & bad;
    alive &= ~bad;
    vd shrink = v_select(v_lt(size, v_set(0.5)), v_set(1.0), 0.5 / size);
    shrink = v_select(alive, shrink, v_set(0.0));
    dm = vc_select(alive, dm, vc_real(0.0));
    s.x[0] = vc_add(s.x[0], vc_scale(dm, shrink));
    s.x[1] = vc_add(s.x[1], vc_scale(dm, shrink));
    for (size_t i = 2; i < c->size; i++) {
        vc step = vc_scale(vc_add(vc_mul(s.a[i], dm), s.b[i]), shrink);
        s.x[i] = vc_select(alive, vc_add(s.x[i], step), s.x[i]);
    }
    /* small steps that stop shrinking are rounding; where m has settled, a block's unknowns may
     * be indeterminate to more than that without harm */
    vd of_m = vc_norm2(dm) / v_min(vc_norm2(s.x[0]), vc_norm2(s.x[1]));
    vd loose = v_set(mode == FSPEC_FREE_M ? 1e-3 : 1e-6);
    vd enough = v_select(v_lt(of_m, v_set(1e-20)), loose, v_set(1e-6));
    vi settled = v_lt(size, v_set(1e-15)) |
                 (v_lt(size, enough) & v_lt(0.25 * state->step, size));
    state->f = vc_select(alive, sum.f, state->f);
    state->slope = vc_select(alive, sum.slope, state->slope);
    state->step = v_select(alive, size, state->step);
    state->done |= alive & settled;
}

static void fspec_lane_gather(const fspec_chain *c, size_t count, const fspec_state *x, vc *lanes)
{
    double re[FSPEC_LANES], im[FSPEC_LANES];
    for (size_t i = 0; i < c->size; i++) {
        for (size_t j = 0; j < FSPEC_LANES; j++) {
            double complex v = x[(j < count ? j : 0) * c->size + i];
            re[j] = creal(v);
            im[j] = cimag(v);
        }
        lanes[i] = (vc){v_load(re), v_load(im)};
    }
}

static void fspec_lane_scatter(const fspec_chain *c, size_t count, const vc *lanes,
                               fspec_state *x)
{
    double re[FSPEC_LANES], im[FSPEC_LANES];
    for (size_t i = 0; i < c->size; i++) {
        v_store(re, lanes[i].re);
        v_store(im, lanes[i].im);
        for (size_t j = 0; j < count; j++) x[j * c->size + i] = re[j] + I * im[j];
    }
}

static void fspec_lane_results(size_t count, const fspec_lane_state *state, int steps,
                               fspec_chain_result *out)
{
    double part[6][FSPEC_LANES];
    v_store(part[0], state->f.re);
    v_store(part[1], state->f.im);
    v_store(part[2], state->slope.re);
    v_store(part[3], state->slope.im);
    v_store(part[4], state->step);
    v_store(part[5], v_select(state->done, v_set(0.0), v_set(1.0)));
    for (size_t j = 0; j < count; j++) {
        out[j] = (fspec_chain_result){part[0][j] + I * part[1][j], part[2][j] + I * part[3][j],
                                      part[4][j], steps,
                                      part[5][j] != 0.0 ? FSPEC_NOT_CONVERGED : FSPEC_OK};
    }
}

static void fspec_level_chain(const fspec_chain *c, size_t n, const double complex *l, int mode,
                              fspec_state *x, fspec_state *rates, fspec_chain_result *out)
{
    enum { ON_STACK = 64 };
    vc fixed[3 * ON_STACK], *work = fixed, *heap = NULL;
    if (c->size > ON_STACK) {
        heap = aligned_alloc(sizeof(vc), 3 * c->size * sizeof(vc));
        if (!heap) {
            for (size_t j = 0; j < n; j++) out[j].status = FSPEC_NO_MEMORY;
            return;
        }
        work = heap;
    }
    fspec_lane_arrow s = {work, work + c->size, work + 2 * c->size, v_lt(v_set(0.0), v_set(1.0))};
    s.a[0] = s.a[1] = vc_real(1.0);
    s.b[0] = s.b[1] = vc_real(0.0);
    for (size_t i = 0; i < n; i += FSPEC_LANES) {
        size_t count = n - i < FSPEC_LANES ? n - i : FSPEC_LANES;
        double lr[FSPEC_LANES], li[FSPEC_LANES];
        for (size_t j = 0; j < FSPEC_LANES; j++) {
            lr[j] = creal(l[i + (j < count ? j : 0)]);
            li[j] = cimag(l[i + (j < count ? j : 0)]);
        }
        vc target = {v_load(lr), v_load(li)};
        fspec_lane_gather(c, count, x + i * c->size, s.x);
        vi none = v_lt(v_set(0.0), v_set(0.0));
        fspec_lane_state state = {v_set(INFINITY), none, none, vc_real(0.0), vc_real(0.0)};
        int steps = 0;
        while (steps < FSPEC_CHAIN_STEPS && v_any(~(state.done | state.failed))) {
            fspec_lane_chain_step(c, s, target, mode, &state);
            steps++;
        }
        fspec_lane_scatter(c, count, s.x, x + i * c->size);
        if (rates) fspec_lane_scatter(c, count, s.a, rates + i * c->size);
        fspec_lane_results(count, &state, steps, out + i);
    }
    free(heap);
}
