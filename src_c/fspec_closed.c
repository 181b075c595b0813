/* The closed correction for a shared basis, with derivatives by Taylor series in m. */
#include <math.h>
#include <stdlib.h>

#include "fspec_closed.h"

/* ---- series ------------------------------------------------------------------------------- */

/* Taylor coefficients up to the third, in tau = (m - m_0)/scale; scale is the distance of m_0 from
 * the nearer hard end, 0 or -positive, so that all of them are of the size of the function. */
typedef struct {
    double complex c[4];
} series;

static series product(series a, series b)
{
    return (series){{a.c[0] * b.c[0], a.c[0] * b.c[1] + a.c[1] * b.c[0],
                     a.c[0] * b.c[2] + a.c[1] * b.c[1] + a.c[2] * b.c[0],
                     a.c[0] * b.c[3] + a.c[1] * b.c[2] + a.c[2] * b.c[1] + a.c[3] * b.c[0]}};
}

static series inverse(series a)
{
    double complex i = 1.0 / a.c[0], a1 = a.c[1] * i, a2 = a.c[2] * i, a3 = a.c[3] * i;
    double complex b2 = a1 * a1 - a2;
    return (series){{i, -a1 * i, b2 * i, -(a1 * b2 - a1 * a2 + a3) * i}};
}

/* x + factor y */
static series sum(series x, double complex factor, series y)
{
    for (int n = 0; n < 4; n++) x.c[n] += factor * y.c[n];
    return x;
}

static series scaled(series x, double complex factor)
{
    for (int n = 0; n < 4; n++) x.c[n] *= factor;
    return x;
}

/* f(g - g_0) */
static series composed(series f, series g)
{
    double complex g1 = g.c[1], g11 = g1 * g1;
    return (series){{f.c[0], f.c[1] * g1, f.c[1] * g.c[2] + f.c[2] * g11,
                     f.c[1] * g.c[3] + 2.0 * f.c[2] * g1 * g.c[2] + f.c[3] * g11 * g1}};
}

/* ---- the blocks' unknowns as series --------------------------------------------------------- */

/* zeta = zeta_0 (1 + eps(q)), q = (u - u_0)/rate, rate = dM/d log zeta: M = u reversed. */
typedef struct {
    double complex rate;
    series eps;
} reversion;

static reversion zeta_of_u(const fspec_factor *f, double complex zeta)
{
    double complex m1 = 0.0, m2 = 0.0, m3 = 0.0;
    for (size_t k = 0; k < f->slopes->count; k++) {
        double complex i = 1.0 / (zeta - f->d[k]), w = zeta * i, term = -f->wd[k] * i * w;
        m1 += term;
        m2 -= term * w;
        m3 += term * w * w;
    }
    double complex r2 = m2 / m1, r3 = m3 / m1;
    return (reversion){m1, {{0.0, 1.0, -r2, 2.0 * r2 * r2 - r3}}};
}

/* u_0 d log zeta/du as a series in u/u_0 - 1, to second order. */
static series log_rate(const reversion *z, double complex u)
{
    double complex e2 = z->eps.c[2], e3 = z->eps.c[3], q = u / z->rate;
    return (series){{q, (2.0 * e2 - 1.0) * q * q, (3.0 * (e3 - e2) + 1.0) * q * q * q, 0.0}};
}

typedef struct {
    series m, one;       /* m, 1 + m */
    series u, v, t, tau; /* u, 1 + u, t, 1 + t */
    series eps;          /* zeta/zeta_0 - 1 of the slopes next to the skip */
} unknowns;

/* The closing equation of fspec_chain.h, its logarithm differentiated:
 *     (1/t + 1/(1+t)) (1 - u') + ((J-1)/u - (1+J-g)/(1+u) + sum_j dlog zeta_j/du) u' = 0.
 * With u known up to order n it gives u', and so u up to order n + 1. */
static void solve_residual(const fspec_chain *c, const fspec_chain_block *b, const fspec_state *x,
                           unknowns *s)
{
    const fspec_state *first = &x[b->first];
    double complex u0 = first[0];
    s->u = (series){{u0}}, s->v = (series){{first[1]}};
    s->t = (series){{first[2]}}, s->tau = (series){{first[3]}};
    series zetas = {{0.0}};
    reversion z = {1.0, {{0.0}}};
    for (size_t j = 0; j < b->n_factors; j++) {
        z = zeta_of_u(&c->factors[b->first_factor + j], first[4 + j]);
        zetas = sum(zetas, 1.0, log_rate(&z, u0));
    }
    for (int n = 0; n < 3; n++) {
        series rest = scaled(composed(zetas, scaled(s->u, 1.0 / u0)), 1.0 / u0);
        if (b->n_factors > 1) rest = sum(rest, (double)b->n_factors - 1.0, inverse(s->u));
        rest = sum(rest, -b->power, inverse(s->v));
        series of_t = sum(inverse(s->t), 1.0, inverse(s->tau));
        series rate = product(of_t, inverse(sum(of_t, -1.0, rest)));
        double complex next = s->m.c[1] * rate.c[n] / (n + 1.0);
        s->u.c[n + 1] = s->v.c[n + 1] = next;
        s->t.c[n + 1] = s->tau.c[n + 1] = s->m.c[n + 1] - next;
    }
    s->eps = composed(z.eps, scaled(s->u, 1.0 / z.rate));
}

/* M(zeta) = r m */
static void solve_plain(const fspec_chain *c, const fspec_chain_block *b, const fspec_state *x,
                        unknowns *s)
{
    const fspec_factor *f = &c->factors[b->first_factor];
    reversion z = zeta_of_u(f, x[b->first]);
    s->u = s->v = scaled(s->m, b->r);
    s->v.c[0] = b->r * (x[1] + b->bound) + f->slopes->zero;
    s->eps = composed(z.eps, scaled(s->u, 1.0 / z.rate));
}

/* ---- one site ------------------------------------------------------------------------------- */

typedef struct {
    int known;
    series omega, y2;              /* y^2 */
    double complex y;
    double complex cubic, quartic; /* E r^3, E r^4 */
} site;

/* The slopes with d = 0 as the last atom, where there are any. */
static size_t atom_count(const fspec_slopes *s) { return s->count + (s->zero > 0.0); }

static double atom_value(const fspec_slopes *s, size_t k)
{
    return k < s->count ? s->value[k] : 0.0;
}

static double atom_mass(const fspec_slopes *s, size_t k)
{
    return k < s->count ? s->mass[k] : s->zero;
}

/* The value d_0 of largest mass. w/w(d_0) - 1 = (d - d_0)/(zeta - d) has no cancellation, and is
 * not large unless its variance is. */
static double heaviest(const fspec_slopes *s)
{
    size_t best = 0;
    for (size_t k = 1; k < atom_count(s); k++)
        if (atom_mass(s, k) > atom_mass(s, best)) best = k;
    return atom_value(s, best);
}

/* (d - d_0)/(zeta - d) as a series in eps */
static series relative(double d, double d0, double complex zeta)
{
    double complex i = 1.0 / (zeta - d), w = -zeta * i, h = (d - d0) * i;
    return (series){{h, h * w, h * w * w, h * w * w * w}};
}

/* omega = E (w - E w)^2/(1+u)^2, and the next two moments. */
static void site_moments(const fspec_slopes *slopes, double complex zeta, const unknowns *s,
                         site *out)
{
    double d0 = heaviest(slopes);
    series mean = {{0.0}}, variance = {{0.0}};
    for (size_t k = 0; k < atom_count(slopes); k++)
        mean = sum(mean, atom_mass(slopes, k), relative(atom_value(slopes, k), d0, zeta));
    double complex cubic = 0.0, quartic = 0.0;
    for (size_t k = 0; k < atom_count(slopes); k++) {
        double mass = atom_mass(slopes, k);
        series h = sum(relative(atom_value(slopes, k), d0, zeta), -1.0, mean);
        series square = product(h, h);
        variance = sum(variance, mass, square);
        cubic += mass * square.c[0] * h.c[0];
        quartic += mass * square.c[0] * square.c[0];
    }
    /* w(d_0) = zeta/(zeta - d_0) and its series in eps */
    double complex w = zeta / (zeta - d0), less = -w * d0 / (zeta - d0);
    series reference = {{w, less, -w * less, w * w * less}};
    series norm = product(composed(reference, s->eps), inverse(s->v));
    series norm2 = product(norm, norm);
    out->omega = product(composed(variance, s->eps), norm2);
    out->cubic = cubic * norm2.c[0] * norm.c[0];
    out->quartic = quartic * norm2.c[0] * norm2.c[0];
}

static site make_site(const fspec_chain *c, const fspec_chain_block *b, const fspec_state *x)
{
    unknowns s;
    double scale = fmin(cabs(x[0]), cabs(x[1]));
    s.m = (series){{x[0], scale}};
    s.one = (series){{x[1] + (1.0 - c->positive), scale}};
    site out = {.known = 1};
    const fspec_factor *outer = &c->factors[b->first_factor + b->n_factors - 1];
    if (b->kind == FSPEC_PLAIN) {
        solve_plain(c, b, x, &s);
        site_moments(outer->slopes, x[b->first], &s, &out);
        return out;
    }
    solve_residual(c, b, x, &s);
    site_moments(outer->slopes, x[b->first + 4 + b->n_factors - 1], &s, &out);
    series y = product(product(s.one, inverse(s.m)), product(s.t, inverse(s.tau)));
    out.y = y.c[0];
    out.y2 = product(y, y);
    return out;
}

/* ---- all sites ------------------------------------------------------------------------------ */

/* Sums over the sites below the present one, each carried up to it. */
typedef struct {
    series s, b;                   /* sum omega_i Y^2; sum_{i<j} omega_i omega_j Y_ik^2 */
    double complex cubic, quartic; /* sum E r^3 Y^3, sum E r^4 Y^4 */
} carried;

typedef struct {
    series u;
    double complex two, three, cubic, quartic;
} total;

static void add_site(const site *p, carried *below, total *u)
{
    double complex y2 = p->y * p->y;
    below->s = product(below->s, p->y2);
    below->b = product(below->b, p->y2);
    below->cubic *= y2 * p->y;
    below->quartic *= y2 * y2;
    series both = sum(scaled(below->s, 0.5), 4.0, below->b);
    u->u = sum(u->u, -1.0, product(p->omega, both));
    u->two -= 0.5 * p->omega.c[0] * below->s.c[0];
    u->three -= 4.0 * p->omega.c[0] * below->b.c[0];
    u->cubic -= p->cubic * below->cubic / 3.0;
    u->quartic -= 0.25 * p->quartic * below->quartic;
    below->b = sum(below->b, 1.0, product(p->omega, below->s));
    below->s = sum(below->s, 1.0, p->omega);
    below->cubic += p->cubic;
    below->quartic += p->quartic;
}

static double complex larger(double complex a, double complex b)
{
    return cabs(a) < cabs(b) ? b : a;
}

static fspec_closed finished(const total *u, double scale)
{
    double complex u1 = u->u.c[1] / scale, u2 = u->u.c[2] / scale / scale;
    double complex u3 = u->u.c[3] / scale / scale / scale;
    fspec_closed out = {{u->u.c[0], u1, 2.0 * u2, 6.0 * u3}, u->two, u->three, 0.0};
    double complex further = u->three == 0.0 ? 0.0 : u->three * (u->three / u->two);
    out.next = larger(larger(u->cubic, u->quartic), further);
    return out;
}

void fspec_closed_correction(const fspec_chain *frame, size_t n_sites, const size_t *sites,
                             const fspec_state *x, fspec_closed *out)
{
    enum { ON_STACK = 16 };
    site fixed[ON_STACK], *made = fixed, *heap = NULL;
    if (frame->n_blocks > ON_STACK) {
        made = heap = malloc(frame->n_blocks * sizeof *heap);
        if (!heap) {
            *out = (fspec_closed){{NAN, NAN, NAN, NAN}, NAN, NAN, NAN};
            return;
        }
    }
    for (size_t i = 0; i < frame->n_blocks; i++) made[i].known = 0;
    carried below = {{{0.0}}, {{0.0}}, 0.0, 0.0};
    total u = {{{0.0}}, 0.0, 0.0, 0.0, 0.0};
    for (size_t i = 0; i < n_sites; i++) {
        site *p = &made[sites[i]];
        if (!p->known) *p = make_site(frame, &frame->blocks[sites[i]], x);
        add_site(p, &below, &u);
    }
    *out = finished(&u, fmin(cabs(x[0]), cabs(x[1])));
    free(heap);
}
