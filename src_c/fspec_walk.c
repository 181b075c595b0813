/* The walk down the real axis: gaps along real m, pieces along real l. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fspec_walk.h"

enum { MAX_STATES = 20000, MAX_GAP_STEPS = 2000 };

/* ---- keeping states ------------------------------------------------------------------------ */

void fspec_support_init(fspec_support *s, const fspec_chain *chain, double reach)
{
    memset(s, 0, sizeof *s);
    s->chain = chain;
    s->reach = reach;
}

void fspec_support_free(fspec_support *s)
{
    free(s->l);
    free(s->slopes);
    free(s->states);
    free(s->pieces);
    memset(s, 0, sizeof *s);
}

static int keep_state(fspec_support *s, const fspec_walker *w)
{
    size_t size = s->chain->size;
    if (s->n_states == s->room) {
        size_t room = s->room ? 2 * s->room : 128;
        double *l = realloc(s->l, room * sizeof *l);
        if (l) s->l = l;
        double complex *slopes = realloc(s->slopes, room * sizeof *slopes);
        if (slopes) s->slopes = slopes;
        double complex *states = realloc(s->states, 2 * size * room * sizeof *states);
        if (states) s->states = states;
        if (!l || !slopes || !states) return FSPEC_NO_MEMORY;
        s->room = room;
    }
    s->l[s->n_states] = creal(w->l);
    s->slopes[s->n_states] = w->slope;
    memcpy(s->states + 2 * size * s->n_states, w->x, size * sizeof *w->x);
    memcpy(s->states + 2 * size * s->n_states + size, w->rates, size * sizeof *w->x);
    s->n_states++;
    return FSPEC_OK;
}

static int new_piece(fspec_support *s, double high, enum fspec_end end)
{
    fspec_piece *pieces = realloc(s->pieces, (s->n_pieces + 1) * sizeof *pieces);
    if (!pieces) return FSPEC_NO_MEMORY;
    s->pieces = pieces;
    pieces[s->n_pieces++] = (fspec_piece){-INFINITY, high, FSPEC_END_TAIL, end, s->n_states, 0};
    return FSPEC_OK;
}

static void close_piece(fspec_support *s, double low, enum fspec_end end)
{
    fspec_piece *p = &s->pieces[s->n_pieces - 1];
    p->low = low;
    p->low_end = end;
    p->count = s->n_states - p->first;
}

/* ---- gaps ---------------------------------------------------------------------------------- */

enum gap_end { GAP_EDGE, GAP_INVERSE, GAP_SOFT, GAP_BOTTOM };

/* The atom (or inverse-root point, mass 0) nearest to normalised l, or NULL. */
static const fspec_chain_atom *mark_near(const fspec_chain *c, double l, double reach)
{
    const fspec_chain_atom *best = NULL;
    for (size_t i = 0; i < c->n_atoms; i++) {
        double gap = fabs(c->atoms[i].log_location - c->log_mean - l);
        if (gap <= reach) {
            reach = gap;
            best = &c->atoms[i];
        }
    }
    return best;
}

/* Near m = infinity l - l_0 is C/m at an atom of mass C, and C/m^2 at an inverse-root point. */
static int at_infinity(fspec_walker *w, enum gap_end *end, double *place)
{
    const fspec_chain *c = w->chain;
    double m = creal(w->x[0]), slope = creal(w->slope), l = creal(w->l);
    if (m < 10.0) return -1;
    const fspec_chain_atom *atom = mark_near(c, l + m * slope, fabs(0.2 * m * slope) + 1e-13);
    if (atom && atom->mass > c->slack && fabs(-m * m * slope / atom->mass - 1.0) < 0.02)
        return fspec_walker_over(w, 0.0);
    if (m > 100.0) {
        const fspec_chain_atom *root = mark_near(c, l + 0.5 * m * slope, 0.02 * fabs(m * slope));
        if (root && fabs(root->mass) <= c->slack) {
            *end = GAP_INVERSE;
            *place = root->log_location - c->log_mean;
            return FSPEC_OK;
        }
    }
    return -1;
}

/* Real m in steps; where an unknown runs through 0 or infinity while l stays smooth, over it.
 * `widest` is the largest distance to such a point seen in this gap, slope_before dl/dm one step
 * earlier. */
static int gap_step(fspec_walker *w, double reach, double *widest, double *slope_before,
                    enum gap_end *end, int *finished)
{
    double m = creal(w->x[0]), near = 1.0 / fspec_walker_rate(w), h = 0.67 * reach * near;
    double bend = fabs(creal(w->slope) / *slope_before - 1.0);
    *widest = fmax(*widest, near);
    *slope_before = creal(w->slope);
    if (near < 0.02 * *widest && cabs(near * w->slope) < 0.02 && bend < 0.02) {
        *widest = 0.0;
        return fspec_walker_over(w, m + 1.5 * near);
    }
    int status = fspec_walker_to_m(w, m + h);
    if (status != FSPEC_OK) return status;
    if (creal(w->slope) < 0) return FSPEC_OK;
    *finished = 1;
    *end = GAP_EDGE;
    return fspec_walker_to_edge(w, m + h, m);
}

static int is_real_state(const fspec_walker *w, double share)
{
    for (size_t i = 0; i < w->chain->size; i++)
        if (fabs(cimag(w->x[i])) > share * cabs(w->x[i])) return 0;
    return 1;
}

/* Whether zeta of a smooth slope law lies within |zeta - top| < share top (about to meet the top),
 * or |zeta| < 1e3 resolved (the smallest that its panels serve) when share is 0. */
static int meets_slopes(const fspec_walker *w, double share)
{
    const fspec_chain *c = w->chain;
    for (size_t i = 0; i < c->n_blocks; i++) {
        const fspec_chain_block *b = &c->blocks[i];
        for (size_t j = 0; j < b->n_factors; j++) {
            const fspec_slopes *s = c->factors[b->first_factor + j].slopes;
            fspec_state zeta = w->x[b->first + j + (b->kind == FSPEC_RESIDUAL ? 4 : 0)];
            int met = share > 0.0 ? fabs(creal(zeta) - s->top) < share * s->top
                                  : cabs(zeta) < 1e3 * s->resolved;
            if (s->panels && met) return 1;
        }
    }
    return 0;
}

/* Down along l from the real gap into a piece without an edge, until y is just above rounding. */
static int soft_entry(fspec_walker *w, fspec_walker *before)
{
    double share = 0.1;
    for (int i = 0; i < MAX_GAP_STEPS; i++) {
        double h = share * cabs(w->slope) / fspec_walker_rate(w);
        fspec_walker_copy(before, w);
        /* by way of the upper half plane: from a real state its mirror image is as near */
        double l = creal(w->l) - h;
        int status = fspec_walker_to_l(w, l + I * h);
        if (status == FSPEC_OK) status = fspec_walker_to_l(w, l);
        double y = status == FSPEC_OK ? -cimag(w->x[0]) : INFINITY;
        if (y > 1e-14 && share > 1e-6) {
            fspec_walker_copy(w, before);
            share *= 0.3;
        } else if (y > 1e-17) {
            return status;
        }
    }
    return FSPEC_NOT_CONVERGED;
}

/* On into the faint slopes beyond a soft top: dl/dm = 0 while imaginary parts are small is an edge
 * for all purposes, blurred by eps in l, with mass eps above it. */
static int blurred_edge(fspec_walker *w, double reach)
{
    const double eps = 1e-8;
    for (int i = 0; i < MAX_GAP_STEPS && is_real_state(w, eps); i++) {
        double m = creal(w->x[0]), h = 0.67 * reach / fspec_walker_rate(w);
        int status = fspec_walker_to_m(w, m + h);
        if (status == FSPEC_OK && creal(w->slope) >= 0)
            status = fspec_walker_to_edge(w, m + h, m);
        else if (status == FSPEC_OK)
            continue;
        return status == FSPEC_OK && !is_real_state(w, eps) ? FSPEC_NOT_CONVERGED : status;
    }
    return FSPEC_NOT_CONVERGED;
}

/* From a real point of a gap to its lower end; `before` is scratch. */
static int walk_gap(fspec_walker *w, fspec_walker *before, double reach, int blurred,
                    enum gap_end *end, double *place)
{
    int finished = 0;
    double widest = 0.0, slope_before = 0.0;
    for (int i = 0; i < MAX_GAP_STEPS && !finished; i++) {
        if (!(creal(w->slope) < 0)) return FSPEC_WRONG_BRANCH;
        double m = creal(w->x[0]), e = creal(w->x[1]);
        if (m < 0 && fabs(e) < 1e-12 * w->chain->positive) {
            *end = GAP_BOTTOM;
            return FSPEC_OK;
        }
        int status = at_infinity(w, end, place);
        if (status == FSPEC_OK && *end == GAP_INVERSE) return FSPEC_OK;
        if (status == FSPEC_OK) continue;
        if (status > 0) return status;
        if (m > 1e12) return FSPEC_NOT_CONVERGED;
        fspec_walker_copy(before, w);
        status = gap_step(w, reach, &widest, &slope_before, end, &finished);
        if ((status != FSPEC_OK || !is_real_state(w, 1e-13)) && meets_slopes(before, 0.5)) {
            *end = GAP_EDGE;
            fspec_walker_copy(w, before);
            if (blurred && blurred_edge(w, reach) == FSPEC_OK) return FSPEC_OK;
            *end = GAP_SOFT;
            fspec_walker_copy(w, before);
            return soft_entry(w, before);
        }
        if (status != FSPEC_OK) return status;
    }
    return finished ? FSPEC_OK : FSPEC_NOT_CONVERGED;
}

/* ---- pieces -------------------------------------------------------------------------------- */

typedef struct {
    fspec_walker here, edge, back, trial;
    double complex m_before, slope_before;
    double complex critical; /* l of the critical point that the last step saw ahead */
} piece_walk;

/* From a critical point into the support, by no more than `most` in l: m - m_e = -i d, then to the
 * real l below it. */
static int enter(fspec_walker *w, fspec_walker *trial, double most)
{
    double m = creal(w->x[0]), d = 0.05 / fspec_walker_rate(w);
    for (int i = 0; i < 12; i++, d *= 0.25) {
        fspec_walker_copy(trial, w);
        if (fspec_walker_to_m(trial, m - I * d) != FSPEC_OK) continue;
        if (fspec_walker_to_l(trial, creal(trial->l)) != FSPEC_OK) continue;
        if (cimag(trial->x[0]) < -0.2 * d && fabs(creal(trial->l - w->l)) < most) {
            fspec_walker_copy(w, trial);
            return FSPEC_OK;
        }
    }
    return FSPEC_NOT_CONVERGED;
}

/* Complex secant for dl/dm = 0 from the present point and a step towards it. For |m| > 1 it is
 * m^3 dl/dm, which does not vanish at m = infinity as dl/dm does at an inverse-root point. */
static int to_critical(fspec_walker *w, double complex m1)
{
    int far = cabs(w->x[0]) > 1.0;
    double complex m0 = w->x[0], f0 = w->slope * (far ? m0 * m0 * m0 : 1.0);
    for (int i = 0; i < 30; i++) {
        if (fspec_walker_to_m(w, m1) != FSPEC_OK) return FSPEC_NOT_CONVERGED;
        double complex f1 = w->slope * (far ? m1 * m1 * m1 : 1.0);
        if (f1 == f0) return FSPEC_OK;
        double complex step = -f1 * (m1 - m0) / (f1 - f0);
        if (cabs(step) * fspec_walker_rate(w) < 1e-9) return FSPEC_OK;
        m0 = m1;
        f0 = f1;
        m1 += step;
    }
    return FSPEC_NOT_CONVERGED;
}

/* The critical point that `guess` leads to, if it is real. */
static int real_critical(const fspec_walker *here, double complex guess, fspec_walker *w)
{
    fspec_walker_copy(w, here);
    w->unchecked = 1;
    int status = to_critical(w, guess);
    if (status == FSPEC_OK && fabs(cimag(w->x[0])) > 1e-6 * cabs(w->x[0] - here->x[0]))
        status = FSPEC_WRONG_BRANCH;
    if (status == FSPEC_OK) status = fspec_walker_land(w);
    w->unchecked = 0;
    if (status != FSPEC_OK) return status;
    double m = creal(w->x[0]), near = 0.01 / fspec_walker_rate(w);
    return fspec_walker_to_edge(w, m - near, m + near);
}

static void swap_bytes(void *a, void *b, size_t bytes)
{
    unsigned char *x = a, *y = b;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char t = x[i];
        x[i] = y[i];
        y[i] = t;
    }
}

static void reverse_states(fspec_support *s, size_t first)
{
    size_t row = 2 * s->chain->size;
    for (size_t i = first, j = s->n_states; i + 1 < j; i++) {
        j--;
        swap_bytes(s->l + i, s->l + j, sizeof *s->l);
        swap_bytes(s->slopes + i, s->slopes + j, sizeof *s->slopes);
        swap_bytes(s->states + i * row, s->states + j * row, row * sizeof *s->states);
    }
}

/* From the edge up to the present point, keeping the states; whether it arrives there. */
static int march_back(fspec_support *s, piece_walk *p)
{
    const fspec_walker *here = &p->here;
    fspec_walker *w = &p->back;
    double goal = creal(here->l);
    fspec_walker_copy(w, &p->edge);
    if (enter(w, &p->trial, goal - creal(w->l)) != FSPEC_OK) return 0;
    for (int i = 0; i < MAX_STATES && creal(w->l) < goal; i++) {
        if (keep_state(s, w) != FSPEC_OK) return 0;
        double l = creal(w->l), h = s->reach * cabs(w->slope) / fspec_walker_rate(w);
        if (h < 4e-16 * fabs(l)) return 0;
        if (fspec_walker_to_l(w, fmin(l + h, goal)) != FSPEC_OK) return 0;
    }
    return creal(w->l) == goal &&
           cabs(w->x[0] - here->x[0]) < 1e-6 * fabs(cimag(here->x[0]));
}

/* Whether the walk's next critical point is a lower edge: real, below, and joined to the present
 * point (marching up from it leads back here). On success `edge` is there and the states between
 * are kept. */
static int lower_edge(fspec_support *s, piece_walk *p, double complex guess)
{
    if (real_critical(&p->here, guess, &p->edge) != FSPEC_OK) return 0;
    if (!(creal(p->edge.l) < creal(p->here.l))) return 0;
    size_t before = s->n_states;
    if (!march_back(s, p)) {
        s->n_states = before;
        return 0;
    }
    reverse_states(s, before);
    return 1;
}

/* What is left below of a tail, y/(pi alpha) with y ~ e^(alpha l); HUGE_VAL while y grows. */
static double tail_mass(const fspec_walker *w)
{
    double y = -cimag(w->x[0]), alpha = -cimag(1.0 / w->slope) / y;
    return alpha > 0 ? y / (FSPEC_PI * alpha) : HUGE_VAL;
}

/* S as a function of m alone loses the digits of 1 + m as the mass below gets small: once a tail
 * is a power of lambda, the power serves. */
static int is_power(const fspec_chain *c, const piece_walk *p, double tail)
{
    if (!c->of_m_only || !(tail < 1e-7)) return 0;
    double before = cimag(1.0 / p->slope_before) / cimag(p->m_before);
    double alpha = cimag(1.0 / p->here.slope) / cimag(p->here.x[0]);
    return fabs(alpha - before) < 1e-5 * fabs(alpha);
}

/* The inverse-root point ahead, if there is one: l - l_0 ~ C/m^2, so that it is about -m slope/2
 * away. */
static const fspec_chain_atom *inverse_ahead(const fspec_walker *w, double *distance)
{
    double complex estimate = -0.5 * w->x[0] * w->slope;
    *distance = creal(estimate);
    if (cabs(w->x[0]) < 5.0 || !(*distance > 0) || fabs(cimag(estimate)) > 0.3 * *distance)
        return NULL;
    const fspec_chain_atom *mark = mark_near(w->chain, creal(w->l) - *distance, 0.3 * *distance);
    return mark && fabs(mark->mass) <= w->chain->slack ? mark : NULL;
}

/* A step along l that must not fall out of the support: y may not collapse at once. */
static int step_down(piece_walk *p, double h, int tries)
{
    fspec_walker *w = &p->here;
    double l = creal(w->l);
    fspec_walker_copy(&p->back, w);
    for (int i = 0; i < tries; i++, h *= 0.3) {
        if (fspec_walker_to_l(w, l - h) == FSPEC_OK &&
            cimag(w->x[0]) < 0.3 * cimag(p->back.x[0]))
            return FSPEC_OK;
        fspec_walker_copy(w, &p->back);
        if (h < 4e-16 * fabs(l)) break;
    }
    return FSPEC_NOT_CONVERGED;
}

/* One step down; sets *end when the piece ends. */
static int piece_step(fspec_support *s, piece_walk *p, int *ended)
{
    fspec_walker *w = &p->here;
    double l = creal(w->l), h = s->reach * cabs(w->slope) / fspec_walker_rate(w);
    double root;
    const fspec_chain_atom *inverse = inverse_ahead(w, &root);
    if (inverse && root < 1e-6 * fmax(1.0, fabs(l))) {
        close_piece(s, inverse->log_location - s->chain->log_mean, FSPEC_END_INVERSE);
        *ended = 1;
        return FSPEC_OK;
    }
    double complex second = (w->slope - p->slope_before) / (w->x[0] - p->m_before);
    double complex ahead = w->slope * w->slope / (2.0 * second); /* l - l_critical */
    /* at a soft top m is real but for rounding, and says nothing of what is ahead */
    int soft = s->pieces[s->n_pieces - 1].high_end == FSPEC_END_TAIL &&
               -cimag(w->x[0]) < 1e-8 * cabs(w->x[0]) && tail_mass(w) == HUGE_VAL;
    if (!inverse && !soft && creal(ahead) > 0 && fabs(cimag(ahead)) < 0.5 * creal(ahead)) {
        double complex guess = w->x[0] - w->slope / second, place = w->l - ahead;
        int steady = cabs(place - p->critical) < 0.3 * cabs(ahead);
        p->critical = place;
        if (steady && lower_edge(s, p, guess)) {
            fspec_walker_copy(w, &p->edge);
            int status = keep_state(s, w);
            close_piece(s, creal(w->l), FSPEC_END_ROOT);
            *ended = 1;
            return status;
        }
        h = fmin(h, s->reach * cabs(ahead));
    }
    double tail = tail_mass(w);
    /* near an edge y falls as fast, but there the edge is at hand and e does not vanish */
    int vanishing = cabs(w->x[1]) < 1e-10 || cabs(ahead) > 1e-6;
    if (l > -1e15 && (tail > 1e-17 || !vanishing) && !is_power(s->chain, p, tail)) {
        p->m_before = w->x[0];
        p->slope_before = w->slope;
        /* rounding may stop a walk far down a tail that no longer counts */
        int spent = vanishing && tail < 1e-12;
        int status = step_down(p, h, spent ? 2 : 40);
        if (status == FSPEC_OK) return keep_state(s, w);
        s->unresolved = !spent && meets_slopes(w, 0.0);
        if (!spent && !s->unresolved) return status;
    }
    close_piece(s, -INFINITY, FSPEC_END_TAIL);
    *ended = 1;
    return FSPEC_OK;
}

/* From the first state inside a piece to its lower end. */
static int walk_piece(fspec_support *s, piece_walk *p)
{
    int ended = 0, status = keep_state(s, &p->here);
    for (int i = 0; i < MAX_STATES && !ended && status == FSPEC_OK; i++)
        status = piece_step(s, p, &ended);
    return status != FSPEC_OK ? status : ended ? FSPEC_OK : FSPEC_NOT_CONVERGED;
}

/* A real point of the gap below a lower edge. */
static int leave_edge(fspec_walker *w)
{
    return fspec_walker_to_m(w, creal(w->x[0]) + 0.1 / fspec_walker_rate(w));
}

/* Below an inverse-root point: half way round it in the upper half plane of l. */
static int round_root(fspec_walker *w, double root)
{
    enum { CORNERS = 12 };
    double delta = creal(w->l) - root;
    for (int k = 1; k <= CORNERS; k++) {
        double angle = FSPEC_PI * k / CORNERS;
        double complex l = k == CORNERS ? root - delta
                                        : root + delta * (cos(angle) + I * sin(angle));
        int status = fspec_walker_to_l(w, l);
        if (status != FSPEC_OK) return status;
    }
    return FSPEC_OK;
}

static int is_real(const fspec_walker *w)
{
    return fabs(cimag(w->x[0])) < 1e-7 * cabs(w->x[0]);
}

/* What piece_step compares its first state with. */
static void begin(piece_walk *p, double complex m_before, double complex slope_before)
{
    p->m_before = m_before;
    p->slope_before = slope_before;
    p->critical = INFINITY;
}

/* Below an inverse-root point, where dl/dm ~ m^-3: as if the state before had been at 2 m. */
static void begin_below_root(piece_walk *p)
{
    begin(p, 2.0 * p->here.x[0], 0.125 * p->here.slope);
}

static int start_piece(fspec_support *s, piece_walk *p, enum gap_end gap, double place)
{
    fspec_walker *w = &p->here;
    int inverse = gap == GAP_INVERSE, soft = gap == GAP_SOFT;
    int status = new_piece(s, inverse ? place : creal(w->l),
                           inverse ? FSPEC_END_INVERSE : soft ? FSPEC_END_TAIL : FSPEC_END_ROOT);
    if (status != FSPEC_OK) return status;
    if (soft) {
        begin(p, creal(w->x[0]), creal(w->slope));
        return FSPEC_OK;
    }
    if (inverse) {
        if ((status = round_root(w, place)) != FSPEC_OK) return status;
        if (is_real(w)) return FSPEC_WRONG_BRANCH;
        begin_below_root(p);
        return FSPEC_OK;
    }
    if ((status = keep_state(s, w)) != FSPEC_OK) return status;
    if ((status = enter(w, &p->trial, INFINITY)) != FSPEC_OK) return status;
    begin(p, creal(w->x[0]), 0.0);
    return FSPEC_OK;
}

static int next_piece(fspec_support *s, piece_walk *p, int *found)
{
    fspec_walker *w = &p->here;
    enum gap_end gap = GAP_BOTTOM;
    double place = -INFINITY;
    int status = FSPEC_OK, adjoining = 0;
    if (s->n_pieces > 0) {
        const fspec_piece *last = &s->pieces[s->n_pieces - 1];
        if (last->low_end == FSPEC_END_TAIL) return FSPEC_OK;
        if (last->low_end == FSPEC_END_ROOT) {
            status = leave_edge(w);
        } else if ((status = round_root(w, last->low)) == FSPEC_OK) {
            if (is_real(w)) status = fspec_walker_land(w);
            else adjoining = 1;
            place = last->low;
        }
        if (status != FSPEC_OK) return status;
    }
    if (adjoining) {
        if ((status = new_piece(s, place, FSPEC_END_INVERSE)) != FSPEC_OK) return status;
        begin_below_root(p);
    } else {
        if ((status = keep_state(s, w)) != FSPEC_OK) return status;
        status = walk_gap(w, &p->trial, s->reach, s->blurred, &gap, &place);
        if (status != FSPEC_OK) return status;
        if (gap == GAP_BOTTOM) return FSPEC_OK;
        if ((status = start_piece(s, p, gap, place)) != FSPEC_OK) return status;
    }
    *found = 1;
    return walk_piece(s, p);
}

int fspec_support_next(fspec_support *s, fspec_walker *w, int *found)
{
    piece_walk p;
    memset(&p, 0, sizeof p);
    *found = 0;
    p.here = *w;
    int status = fspec_walker_init(&p.edge, s->chain);
    if (status == FSPEC_OK) status = fspec_walker_init(&p.back, s->chain);
    if (status == FSPEC_OK) status = fspec_walker_init(&p.trial, s->chain);
    if (status == FSPEC_OK && s->n_states == 0) status = fspec_walker_start(&p.here);
    if (status == FSPEC_OK) status = next_piece(s, &p, found);
    *w = p.here;
    fspec_walker_free(&p.edge);
    fspec_walker_free(&p.back);
    fspec_walker_free(&p.trial);
    return status;
}
