/* One sweep over a run's sites: the laws of p from the input, those of q from the output, and the
 * averages that close the equations. */
#include <math.h>

#include "fspec_run_sweep.h"

/* sum_k w_k d_k/(zeta - d_k) - x and its derivative: one step of Newton's method for zeta(x). */
static double complex zeta_step(const fspec_slopes *s, double complex zeta, double complex x)
{
    double complex value = 0.0, slope = 0.0;
    for (size_t k = 0; k < s->count; k++) {
        double complex inv = 1.0 / (zeta - s->value[k]);
        value += s->mass[k] * s->value[k] * inv;
        slope -= s->mass[k] * s->value[k] * inv * inv;
    }
    return (x - value) / slope;
}

/* phi(x)/phi(u) at x = u share: ((1+x)/(1+u))^(g-J) prod over the inner slopes of
 * x zeta(x)/(u zeta(u)), g of the J matrices Gaussian. */
static double complex phi_ratio(const fspec_run *run, const fspec_run_block *b,
                                const fspec_state *frame, double complex share)
{
    const fspec_chain_block *block = b->block;
    double complex ratio = 1.0, more = 1.0 + b->u * (share - 1.0) / b->v;
    int power = block->kind == FSPEC_PLAIN ? 1 : (int)block->power - 1;
    for (int k = 0; k < power; k++) ratio /= more;
    for (size_t j = 0; j + 1 < block->n_factors; j++) {
        const fspec_slopes *s = run->frame->factors[block->first_factor + j].slopes;
        double complex free = frame[block->first + 4 + j], zeta = free;
        for (int it = 0; it < 30; it++) {
            double complex step = zeta_step(s, zeta, b->u * share);
            zeta += step;
            if (!(cabs(step) > 1e-15 * cabs(zeta))) break;
        }
        ratio *= share * zeta / free;
    }
    return ratio;
}

/* Slope k of a site; k = count stands for d = 0. */
static size_t slope_count(const fspec_slopes *s) { return s->count + (s->zero > 0.0); }
static double slope_value(const fspec_slopes *s, size_t k) { return k < s->count ? s->value[k] : 0.0; }
static double slope_mass(const fspec_slopes *s, size_t k) { return k < s->count ? s->mass[k] : s->zero; }

/* slope_count where none has mass > 1/2 */
static size_t heavy_slope(const fspec_slopes *s)
{
    size_t k = 0;
    while (k < slope_count(s) && !(slope_mass(s, k) > 0.5)) k++;
    return k;
}

/* r = a^2 m(1+m)/(t(1+t)) for a residual block, and phi(u) = r (1+u)/(m(1+m) zeta) (what the
 * block's closing equation says of sigma^2, in digits that survive). Below the run's only plain
 * layer nothing is shared: any matrix does, and an orthogonal one of variance 1 is taken. */
fspec_run_block fspec_run_block_at(const fspec_chain *frame, size_t i, double complex m,
                                   double complex one, const fspec_state *state)
{
    const fspec_chain_block *b = &frame->blocks[i];
    const fspec_slopes *slopes = frame->factors[b->first_factor + b->n_factors - 1].slopes;
    const fspec_state *x = &state[b->first];
    fspec_run_block at = {.block = b, .slopes = slopes, .heavy = heavy_slope(slopes)};
    if (b->kind == FSPEC_PLAIN) {
        at.u = m, at.v = one;
        at.phi = 1.0 / one;
        at.r = m * at.phi * x[0];
    } else {
        at.u = x[0], at.v = x[1];
        at.r = b->skip2 * m * one / (x[2] * x[3]);
        at.phi = at.r * at.v / (m * one * x[4 + b->n_factors - 1]);
    }
    at.carried = b->skip2 / at.r;
    at.alpha = one * at.phi / at.r;
    at.beta_in = at.u / one;
    at.beta_out = at.u / m;
    at.gout = m * at.phi / (at.r * at.u);
    return at;
}

void fspec_run_set_blocks(const fspec_run *run, fspec_run_room *room, const fspec_state *frame)
{
    room->w = room->m / room->one;
    room->by_c = cabs(room->m) > cabs(room->one);
    for (size_t i = 0; i < run->frame->n_blocks; i++)
        room->blocks[i] = fspec_run_block_at(run->frame, i, room->m, room->one, frame);
}

/* The nodes gathered, of which the first stands for itself if kept, as a rule. */
static int compress(fspec_run_room *room, size_t count, size_t nodes, int kept, fspec_rule *rule)
{
    double complex *node = room->node, *weight = room->weight;
    double complex own = node[0], share = weight[0], rest = 1.0 - share;
    kept = kept && nodes > 1;
    for (size_t i = kept; i < count && kept; i++) weight[i] /= rest;
    fspec_rule_compress(count - kept, node + kept, weight + kept, nodes - kept, room->scratch,
                        rule);
    if (rule->n == 0) return FSPEC_NOT_CONVERGED;
    if (!kept) return FSPEC_OK;
    for (size_t i = rule->n; i-- > 0;) {
        rule->w[i + 1] = rest * rule->w[i];
        rule->x[i + 1] = rule->x[i];
    }
    rule->x[0] = own;
    rule->w[0] = share;
    rule->n++;
    return FSPEC_OK;
}

/* Slopes of a site, the heavy one (or else the first) before the others. */
static size_t slope_at(const fspec_run_block *b, size_t k)
{
    if (b->heavy >= slope_count(b->slopes)) return k;
    return k == 0 ? b->heavy : k - (k <= b->heavy);
}

/* A node of p, as g = p/(1 - w p) and c = 1/(1 - w p) = 1 + w g: neither has a pole where P passes
 * near infinity, and the smaller of c and g keeps the digits (1 + m small: c). */
typedef struct {
    double complex g, c;
} node;

static node of_rule(const fspec_run_room *room, double complex x)
{
    return room->by_c ? (node){(x - 1.0) / room->w, x} : (node){x, 1.0 + room->w * x};
}

/* p = top/bottom. */
typedef struct {
    double complex top, bottom;
} ratio;

static double complex for_rule(const fspec_run_room *room, ratio p)
{
    return (room->by_c ? p.bottom : p.top) / (p.bottom - room->w * p.top);
}

/* a^2 P/(1 - P beta) + alpha d in units of the free P_l, from the site before. */
static ratio pass_up(const fspec_run_block *b, node p, double complex beta, double complex alpha_d)
{
    double complex bottom = p.c - p.g * beta * b->beta_in;
    return (ratio){b->carried * p.g + alpha_d * bottom, bottom};
}

static ratio pass_down(const fspec_run_block *b, double complex w, node q, double complex beta,
                       double complex alpha_d)
{
    double complex bottom = q.c - w * q.g * alpha_d;
    return (ratio){b->carried * q.g + beta * b->beta_out * bottom, bottom};
}

/* The nodes of site l's p from those before; their number. */
static size_t gather_up(const fspec_run *run, fspec_run_room *room, size_t l, double complex a,
                        double complex b)
{
    const fspec_run_block *at = &room->blocks[run->sites[l]];
    const fspec_rule *p = &room->p[l];
    size_t count = 0;
    for (size_t i = 0; i < p->n; i++)
        for (size_t j = 0; j < slope_count(at->slopes); j++) {
            size_t k = slope_at(at, j);
            double complex alpha_d = at->alpha * a * slope_value(at->slopes, k);
            ratio next = pass_up(at, of_rule(room, p->x[i]), b, alpha_d);
            room->node[count] = for_rule(room, next);
            room->weight[count++] = p->w[i] * slope_mass(at->slopes, k);
        }
    return count;
}

static size_t gather_down(const fspec_run *run, fspec_run_room *room, size_t l, double complex a,
                          double complex b)
{
    const fspec_run_block *at = &room->blocks[run->sites[l]];
    const fspec_rule *q = &room->q[l + 1];
    size_t count = 0;
    for (size_t i = 0; i < q->n; i++)
        for (size_t j = 0; j < slope_count(at->slopes); j++) {
            size_t k = slope_at(at, j);
            double complex alpha_d = at->alpha * a * slope_value(at->slopes, k);
            ratio next = pass_down(at, room->w, of_rule(room, q->x[i]), b, alpha_d);
            room->node[count] = for_rule(room, next);
            room->weight[count++] = q->w[i] * slope_mass(at->slopes, k);
        }
    return count;
}

static int has_heavy(const fspec_run_block *b) { return b->heavy < slope_count(b->slopes); }

/* p of all sites but the last, from p_0 = 1 */
static int sweep_up(const fspec_run *run, fspec_run_room *room, size_t nodes,
                    const double complex *a, const double complex *b)
{
    room->p[0] = (fspec_rule){1, {for_rule(room, (ratio){1.0, 1.0})}, {1.0}, 0, {0.0}};
    room->kept_p[0] = 1;
    for (size_t l = 0; l + 1 < run->n_sites; l++) {
        size_t count = gather_up(run, room, l, a[l], b[l]);
        room->kept_p[l + 1] = room->kept_p[l] && has_heavy(&room->blocks[run->sites[l]]);
        int status = compress(room, count, nodes, room->kept_p[l + 1], &room->p[l + 1]);
        if (status != FSPEC_OK) return status;
    }
    return FSPEC_OK;
}

/* q of all sites but the first, from q_L = e; and <1/(1 - w q_0)>, which needs no rule. */
static int sweep_down(const fspec_run *run, fspec_run_room *room, size_t nodes,
                      const double complex *a, const double complex *b, double complex e,
                      double complex *first)
{
    room->q[run->n_sites] = (fspec_rule){1, {for_rule(room, (ratio){e, 1.0})}, {1.0}, 0, {0.0}};
    room->kept_q[run->n_sites] = 1;
    for (size_t l = run->n_sites - 1; l > 0; l--) {
        size_t count = gather_down(run, room, l, a[l], b[l]);
        room->kept_q[l] = room->kept_q[l + 1] && has_heavy(&room->blocks[run->sites[l]]);
        int status = compress(room, count, nodes, room->kept_q[l], &room->q[l]);
        if (status != FSPEC_OK) return status;
    }
    size_t count = gather_down(run, room, 0, a[0], b[0]);
    double complex mean = 0.0;
    for (size_t i = 0; i < count; i++) mean += room->weight[i] * room->node[i];
    *first = of_rule(room, mean).c;
    return FSPEC_OK;
}

/* <p/(1 - w p q)> over p_l, q_l: g c'/(c c' - w g g') */
static double complex average_in(const fspec_run_room *room, size_t l)
{
    const fspec_rule *ps = &room->p[l], *qs = &room->q[l];
    double complex sum = 0.0;
    for (size_t i = 0; i < ps->n; i++) {
        node p = of_rule(room, ps->x[i]);
        for (size_t j = 0; j < qs->n; j++) {
            node q = of_rule(room, qs->x[j]);
            sum += ps->w[i] * qs->w[j] * p.g * q.c / (p.c * q.c - room->w * p.g * q.g);
        }
    }
    return sum;
}

/* <d q/(1 - w p q)> over p_(l-1), d and q_l, this site's p not replaced by a rule */
static double complex average_out(const fspec_run *run, const fspec_run_room *room, size_t l,
                                  double complex a, double complex b)
{
    const fspec_run_block *at = &room->blocks[run->sites[l]];
    const fspec_rule *ps = &room->p[l], *qs = &room->q[l + 1];
    double complex sum = 0.0;
    for (size_t i = 0; i < ps->n; i++)
        for (size_t k = 0; k < at->slopes->count; k++) {
            double d = at->slopes->value[k];
            double complex mass = at->slopes->mass[k] * ps->w[i];
            ratio p = pass_up(at, of_rule(room, ps->x[i]), b, at->alpha * a * d);
            for (size_t j = 0; j < qs->n; j++) {
                node q = of_rule(room, qs->x[j]);
                sum += mass * d * qs->w[j] * q.g * p.bottom /
                       (p.bottom * q.c - room->w * p.top * q.g);
            }
        }
    return sum;
}

int fspec_run_sweep(const fspec_run *run, fspec_run_room *room, size_t nodes,
                    const double complex *x, double complex *f)
{
    const size_t n = run->n_sites;
    const double complex *a = x, *b = x + n;
    double complex first = 0.0;
    int status = sweep_up(run, room, nodes, a, b);
    if (status == FSPEC_OK) status = sweep_down(run, room, nodes, a, b, x[2 * n], &first);
    if (status != FSPEC_OK) return status;
    for (size_t l = 0; l < n; l++) {
        const fspec_run_block *at = &room->blocks[run->sites[l]];
        double complex in = (l == 0 ? first : average_in(room, l)) / room->one;
        double complex out = average_out(run, room, l, a[l], b[l]) * at->gout;
        f[l] = in * phi_ratio(run, at, room->frame, b[l] * in) - a[l];
        f[n + l] = out * phi_ratio(run, at, room->frame, a[l] * out) - b[l];
        if (l == 0) f[2 * n] = in - 1.0; /* 1 + m = gin_1 */
    }
    return FSPEC_OK;
}
