/* Where the factors' atoms and infinities meet: a chain's atoms and inverse-root points. */
#include <math.h>
#include <stdlib.h>

#include "fspec_run.h"

/* A point of one block's law that may carry an atom: `excess` is its mass, or the signed value
 * of the rule that gives it (0: an inverse root). */
typedef struct {
    double log_location, excess, location;
} fspec_mark;

/* Room for the marks of a block. */
static size_t mark_room(const fspec_chain *c, const fspec_chain_block *b)
{
    if (b->kind != FSPEC_PLAIN) return 3;
    const fspec_slopes *s = c->factors[b->first_factor].slopes;
    return 1 + s->n_atoms + s->n_critical;
}

static fspec_mark mark_at(double location, double excess)
{
    return (fspec_mark){log(location), excess, location};
}

static int plain_marks(const fspec_chain *c, const fspec_chain_block *b, fspec_mark *marks)
{
    const fspec_factor *f = &c->factors[b->first_factor];
    double variance = exp(f->log_variance);
    int count = 0;
    if (f->gaussian) return 0;
    for (size_t k = 0; k < f->slopes->n_atoms; k++)
        marks[count++] = mark_at(variance * f->slopes->atom_value[k], f->slopes->atom_mass[k]);
    for (size_t k = 0; k < f->slopes->n_critical; k++)
        marks[count++] = mark_at(variance * f->slopes->critical[k], 0.0);
    return count;
}

/* a I + X, symmetrised: +-a (1/2 each) meets an atom of X of mass w: at 0, |a|, 2(w + 1/2 - 1);
 * at +-x (w/2 each), |a +- x|, w - 1. */
static int residual_marks(const fspec_chain *c, const fspec_chain_block *b, fspec_mark *marks)
{
    const fspec_factor *f = &c->factors[b->first_factor];
    double zero = 0.0;
    for (size_t j = 0; j < b->n_factors; j++) zero = fmax(zero, f[j].slopes->zero);
    int count = 0;
    marks[count++] = mark_at(b->skip2, 2.0 * zero - 1.0);
    if (b->n_factors == 1 && !f->gaussian && f->slopes->n_atoms == 1 &&
        f->slopes->atom_mass[0] == 1.0) {
        double a = sqrt(b->skip2), x = sqrt(f->slopes->atom_value[0] * exp(f->log_variance));
        marks[count++] = mark_at((a + x) * (a + x), 0.0);
        marks[count++] = mark_at((a - x) * (a - x), 0.0);
    }
    return count;
}

/* Blocks that share coordinates count as one. Where n_S of N coordinates are idle in all of them,
 * the rows of J there are A times the identity, and J J^T - A^2 has at least n_S - (N - n_S) zeros:
 * excess 2 prod P(d = 0) - 1. An orthogonal plain layer below them splits S by its slopes d: at
 * A^2 sigma^2 d, P(S) P(d) - (1 - P(S)). */
static int run_marks(const fspec_chain *c, const fspec_run *run, fspec_mark *marks)
{
    double idle = 1.0, log_scale = 0.0, scale = 1.0;
    for (size_t i = 0; i < run->n_sites; i++) {
        const fspec_chain_block *b = &c->blocks[run->kinds[run->sites[i]]];
        if (b->kind == FSPEC_PLAIN) continue;
        double zero = 0.0;
        for (size_t j = 0; j < b->n_factors; j++)
            zero = fmax(zero, c->factors[b->first_factor + j].slopes->zero);
        idle *= zero;
        log_scale += log(b->skip2);
        scale *= b->skip2;
    }
    const fspec_chain_block *below = &c->blocks[run->kinds[run->sites[0]]];
    if (below->kind != FSPEC_PLAIN) {
        marks[0] = (fspec_mark){log_scale, 2.0 * idle - 1.0, scale};
        return 1;
    }
    int count = plain_marks(c, below, marks), kept = 0;
    for (int k = 0; k < count; k++)
        if (marks[k].excess > 0.0)
            marks[kept++] = (fspec_mark){log_scale + marks[k].log_location,
                                         (1.0 + marks[k].excess) * idle - 1.0 - below->widening,
                                         scale * marks[k].location};
    return kept;
}

/* How many of a block are outside of the runs. */
static double free_count(const fspec_chain *c, size_t block)
{
    double n = c->blocks[block].n;
    for (size_t i = 0; i < c->n_runs; i++)
        for (size_t k = 0; k < c->runs[i].n_sites; k++)
            n -= c->runs[i].kinds[c->runs[i].sites[k]] == block;
    return n;
}

static int block_marks(const fspec_chain *c, const fspec_chain_block *b, fspec_mark *marks)
{
    if (b->kind == FSPEC_PLAIN) return plain_marks(c, b, marks);
    if (b->kind == FSPEC_RESIDUAL) return residual_marks(c, b, marks);
    fspec_given_far far;
    if (!fspec_given_atom(b, &far)) return 0;
    marks[0] = (fspec_mark){far.log_location, far.excess, exp(far.log_location)};
    return 1;
}

static int by_location(const void *a, const void *b)
{
    double x = ((const fspec_chain_atom *)a)->log_location;
    double y = ((const fspec_chain_atom *)b)->log_location;
    return (x > y) - (x < y);
}

/* The free product has an atom where one mark of every factor meets: its mass is that of the
 * intersection of their eigenspaces in general position, in units of the output width. One unit
 * of a block may take another mark than the heaviest; two may only where all is exactly critical
 * (two marks of one law share its mass). */
typedef struct {
    size_t item;        /* a block or a run ... */
    double n;           /* ... that occurs so often */
    double shift, cost; /* change of log location and of mass */
    double from, to;    /* locations */
} fspec_switch;

typedef struct {
    double log_location, location, excess, noise, units;
    size_t n_switches;
    fspec_switch *switches;
    fspec_mark *marks; /* of one block */
} fspec_meeting;

static void keep_mark(fspec_chain *c, const fspec_meeting *at, const fspec_switch *one,
                      const fspec_switch *two)
{
    double excess = at->excess - (one->cost + two->cost);
    double place = at->log_location + (one->shift + two->shift);
    double location = at->location / one->from * one->to / two->from * two->to;
    if (excess < -FSPEC_NEARLY_CRITICAL || !isfinite(place)) return;
    if (fabs(excess) < at->noise) excess = 0.0;
    for (size_t i = 0; i < c->n_atoms; i++)
        if (fabs(c->atoms[i].log_location - place) <= at->noise) return;
    if (!(location > 0.0 && isfinite(location))) location = exp(place); /* beyond the doubles */
    c->atoms[c->n_atoms++] = (fspec_chain_atom){place, location, excess};
}

/* The heaviest of an item's marks, and the switches to lighter ones. */
static void meet_item(fspec_meeting *at, size_t item, double n, double share, int count)
{
    const fspec_mark *marks = at->marks;
    int top = 0;
    for (int k = 1; k < count; k++)
        if (marks[k].excess > marks[top].excess) top = k;
    at->log_location += n * marks[top].log_location;
    at->location *= pow(marks[top].location, n);
    at->excess -= n * share * (1.0 - marks[top].excess);
    at->units += n;
    for (int k = 0; k < count && n == floor(n); k++)
        if (k != top)
            at->switches[at->n_switches++] = (fspec_switch){
                item, n, marks[k].log_location - marks[top].log_location,
                share * (marks[top].excess - marks[k].excess), marks[top].location,
                marks[k].location};
}

/* Every block's and run's marks; 0 if no atom is possible. */
static int meet(const fspec_chain *c, fspec_meeting *at)
{
    for (size_t i = 0; i < c->n_blocks; i++) {
        const fspec_chain_block *b = &c->blocks[i];
        double n = free_count(c, i);
        if (n == 0.0) continue;
        int count = block_marks(c, b, at->marks);
        if (count == 0) return 0;
        meet_item(at, i, n, b->kind == FSPEC_PLAIN ? 1.0 / b->r : 1.0, count);
        at->excess -= n * b->widening;
    }
    for (size_t i = 0; i < c->n_runs; i++) {
        int count = run_marks(c, &c->runs[i], at->marks);
        if (count == 0) return 0;
        meet_item(at, c->n_blocks + i, 1.0, 1.0, count);
    }
    at->noise = 4e-16 * (2.0 + at->units) + (c->given ? FSPEC_GIVEN_ACCURACY * at->units : 0.0);
    return 1;
}

int fspec_chain_find_atoms(fspec_chain *c)
{
    const fspec_switch stay = {0, 0.0, 0.0, 0.0, 1.0, 1.0};
    size_t room = 0;
    for (size_t i = 0; i < c->n_blocks; i++) room += mark_room(c, &c->blocks[i]);
    for (size_t i = 0; i < c->n_runs; i++)
        room += mark_room(c, &c->blocks[c->runs[i].kinds[c->runs[i].sites[0]]]);
    fspec_meeting at = {0.0, 1.0, 1.0, 0.0, 0.0, 0, malloc((room + 1) * sizeof(fspec_switch)),
                        malloc((room + 1) * sizeof(fspec_mark))};
    c->atoms = malloc((2 + room * (room < 512 ? room : 1)) * sizeof *c->atoms);
    if (!c->atoms || !at.switches || !at.marks) {
        free(at.switches);
        free(at.marks);
        return FSPEC_NO_MEMORY;
    }
    if (c->positive < 1.0)
        c->atoms[c->n_atoms++] = (fspec_chain_atom){-INFINITY, 0.0, 1.0 - c->positive};
    if (meet(c, &at)) {
        keep_mark(c, &at, &stay, &stay);
        for (size_t i = 0; i < at.n_switches; i++) {
            const fspec_switch *one = &at.switches[i];
            keep_mark(c, &at, one, &stay);
            for (size_t k = room < 512 ? i : at.n_switches; k < at.n_switches; k++) {
                const fspec_switch *two = &at.switches[k];
                if (one->item != two->item || one->n >= 2.0)
                    keep_mark(c, &at, one, two);
            }
        }
    }
    free(at.switches);
    free(at.marks);
    qsort(c->atoms, c->n_atoms, sizeof *c->atoms, by_location);
    return FSPEC_OK;
}
