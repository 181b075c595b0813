/* The outer ends of a support along real m. */
#include <math.h>

#include "fspec_ends.h"

enum { MAX_STEPS = 4000, BISECTIONS = 70 };

/* What to ask of every smooth slope law of a chain, at its zeta (NULL: none is needed). */
typedef int (*smooth_test)(const fspec_slopes *slopes, const fspec_state *zeta);

static int any_smooth(const fspec_chain *c, const fspec_state *x, smooth_test test)
{
    for (size_t i = 0; i < c->n_blocks; i++) {
        const fspec_chain_block *b = &c->blocks[i];
        size_t skipped = b->kind == FSPEC_RESIDUAL ? 4 : 0;
        for (size_t j = 0; j < b->n_factors; j++) {
            const fspec_slopes *s = c->factors[b->first_factor + j].slopes;
            if (s->panels && test(s, x ? &x[b->first + skipped + j] : NULL)) return 1;
        }
    }
    return 0;
}

static int in_hull(const fspec_slopes *s, const fspec_state *zeta)
{
    return creal(*zeta) > s->least && creal(*zeta) < s->largest;
}

/* Whether slopes go beyond the panels, where their mass is rounding. */
static int goes_above(const fspec_slopes *s, const fspec_state *zeta)
{
    (void)zeta;
    return s->largest > s->top * (1.0 + 1e-15);
}

static int goes_below(const fspec_slopes *s, const fspec_state *zeta)
{
    (void)zeta;
    return s->least < s->bottom * (1.0 - 1e-15);
}

static int is_unbounded(const fspec_slopes *s, const fspec_state *zeta)
{
    (void)zeta;
    return s->largest == INFINITY;
}

static int keeps_from_zero(const fspec_slopes *s, const fspec_state *zeta)
{
    (void)zeta;
    return s->least > 0.0;
}

/* Real, and every zeta outside of the hull of its slopes. */
static int is_outside(const fspec_walker *w)
{
    for (size_t i = 0; i < w->chain->size; i++)
        if (fabs(cimag(w->x[i])) > 1e-9 * cabs(w->x[i])) return 0;
    return !any_smooth(w->chain, w->x, in_hull);
}

static int has_ended(const fspec_walker *w)
{
    return !(creal(w->slope) < 0.0) || any_smooth(w->chain, w->x, in_hull);
}

/* Between a point of the gap and one beyond its end. */
static int bisect_end(fspec_walker *w, fspec_walker *inside, double beyond, double *end)
{
    for (int i = 0; i < BISECTIONS; i++) {
        double m = creal(inside->x[0]), middle = 0.5 * (m + beyond);
        if (middle == m || middle == beyond) break;
        fspec_walker_copy(w, inside);
        int status = fspec_walker_to_m(w, middle);
        if (status != FSPEC_OK) return status;
        if (has_ended(w)) beyond = middle;
        else fspec_walker_copy(inside, w);
    }
    *end = creal(inside->l);
    return FSPEC_OK;
}

/* From a real point of a gap along real m, upwards or downwards, to the gap's end; over points
 * where an unknown runs through 0 while l stays smooth. */
static int first_end(fspec_walker *w, fspec_walker *inside, double direction, double *end)
{
    double reach = 0.3, widest = 0.0;
    for (int i = 0; i < MAX_STEPS && reach > 1e-8; i++) {
        double near = 1.0 / fspec_walker_rate(w), m = creal(w->x[0]) + direction * reach * near;
        fspec_walker_copy(inside, w);
        widest = fmax(widest, near);
        if (near < 0.02 * widest) {
            int status = fspec_walker_over(w, creal(w->x[0]) + direction * 1.5 * near);
            if (status != FSPEC_OK) return status;
            if (has_ended(w)) return FSPEC_WRONG_BRANCH;
            widest = 0.0;
        } else if (fspec_walker_to_m(w, m) != FSPEC_OK) {
            fspec_walker_copy(w, inside);
            reach *= 0.3;
        } else if (has_ended(w)) {
            return bisect_end(w, inside, m, end);
        }
    }
    return FSPEC_NOT_CONVERGED;
}

static int with_walkers(const fspec_chain *c, double l, double *end,
                        int (*find)(fspec_walker *, fspec_walker *, double, double *))
{
    fspec_walker w, scratch;
    int status = fspec_walker_init(&w, c), more = fspec_walker_init(&scratch, c);
    if (status == FSPEC_OK) status = more;
    if (status == FSPEC_OK) status = find(&w, &scratch, l, end);
    fspec_walker_free(&w);
    fspec_walker_free(&scratch);
    return status;
}

static int find_high(fspec_walker *w, fspec_walker *scratch, double l, double *end)
{
    (void)l;
    int status = fspec_walker_start(w);
    return status != FSPEC_OK ? status : first_end(w, scratch, 1.0, end);
}

/* So far below that, if the law keeps from 0, z is in the gap about 0. */
static int find_low(fspec_walker *w, fspec_walker *scratch, double l, double *end)
{
    const double depths[] = {30.0, 100.0, 250.0};
    for (int i = 0; i < 3; i++) {
        int status = fspec_walker_from_above(w, l - depths[i]);
        if (status != FSPEC_OK) return status;
        if (is_outside(w)) return first_end(w, scratch, -1.0, end);
    }
    *end = -INFINITY;
    return FSPEC_OK;
}

int fspec_chain_high_end(const fspec_chain *c, double *end)
{
    *end = INFINITY;
    return any_smooth(c, NULL, is_unbounded) ? FSPEC_OK : with_walkers(c, 0.0, end, find_high);
}

int fspec_chain_low_end(const fspec_chain *c, double l, double *end)
{
    return with_walkers(c, l, end, find_low);
}

/* An edge where no slopes are left outside of what the walk has seen. */
static int is_settled(const fspec_support *s, enum fspec_end end, size_t state)
{
    return end == FSPEC_END_ROOT &&
           !any_smooth(s->chain, fspec_support_state(s, state), in_hull);
}

static int set_high(fspec_support *s)
{
    fspec_piece *p = &s->pieces[0];
    double end;
    if (is_settled(s, p->high_end, p->first) || !any_smooth(s->chain, NULL, goes_above))
        return FSPEC_OK;
    int status = fspec_chain_high_end(s->chain, &end);
    if (status != FSPEC_OK || !(end > p->high + 1e-13 * fmax(1.0, fabs(p->high)))) return status;
    p->high = end;
    p->high_end = FSPEC_END_TAIL;
    return FSPEC_OK;
}

static int set_low(fspec_support *s)
{
    fspec_piece *p = &s->pieces[s->n_pieces - 1];
    size_t last = p->first + p->count - 1;
    double end, known = s->l[last];
    int tail = p->low_end == FSPEC_END_TAIL;
    /* where a law reaches 0, so does 1 + m less the mass at 0 */
    int lost = tail && cabs(fspec_support_state(s, last)[1]) > 1e-3;
    int reaches_zero = tail && !lost && !any_smooth(s->chain, NULL, keeps_from_zero);
    if (reaches_zero || s->unresolved || is_settled(s, p->low_end, last) ||
        (!lost && !any_smooth(s->chain, NULL, goes_below)))
        return FSPEC_OK;
    int status = fspec_chain_low_end(s->chain, known, &end);
    if (status != FSPEC_OK) return status;
    if (p->low_end != FSPEC_END_TAIL && end >= known - 1e-13 * fmax(1.0, fabs(known)))
        return FSPEC_OK;
    p->low = end;
    p->low_end = FSPEC_END_TAIL;
    return FSPEC_OK;
}

int fspec_support_find_ends(fspec_support *s)
{
    if (s->n_pieces == 0) return FSPEC_OK;
    int high = set_high(s), low = set_low(s);
    return high != FSPEC_OK ? high : low;
}
