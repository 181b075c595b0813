/* Runs: making, starting and checking. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fspec_run_sweep.h"

/* ---- slopes as short rules ----------------------------------------------------------------- */

/* The Gauss rule of `nodes` values of a slope law (P(d = 0) keeps its own); a copy. */
static int short_rule(const fspec_slopes *s, size_t nodes, fspec_slopes **out)
{
    size_t count = s->count, most = nodes < count ? nodes : count;
    double complex *room = calloc((most + 4) * (count + 1), sizeof *room);
    double *value = calloc(2 * (count + 1), sizeof *value), *mass = value + count + 1;
    fspec_rule rule = {0};
    int status = FSPEC_NO_MEMORY;
    if (room && value) {
        for (size_t k = 0; k < count; k++) {
            room[k] = value[k] = s->value[k];
            room[count + k] = s->mass[k] / s->positive;
            mass[k] = s->mass[k];
        }
        size_t n = count;
        if (most < count) {
            fspec_rule_compress(count, room, room + count, most, room + 2 * count, &rule);
            n = rule.n;
            for (size_t k = 0; k < n; k++) {
                value[k] = creal(rule.x[k]);
                mass[k] = creal(rule.w[k]) * s->positive;
            }
        }
        if (s->zero > 0.0) {
            value[n] = 0.0;
            mass[n++] = s->zero;
        }
        status = n ? fspec_slopes_discrete(n, value, mass, out) : FSPEC_NOT_CONVERGED;
    }
    free(room);
    free(value);
    return status;
}

/* ---- making -------------------------------------------------------------------------------- */

static int add_block(fspec_run *run, const fspec_block *from, size_t slope_nodes,
                     fspec_layer *layers, fspec_block *to)
{
    *to = *from;
    to->repeat = 1.0;
    to->layers = layers;
    memcpy(layers, from->layers, from->n_layers * sizeof *layers);
    for (size_t j = 0; j < from->n_layers; j++) {
        fspec_slopes **rule = &run->rules[run->n_rules];
        int status = short_rule(from->layers[j].slopes, slope_nodes, rule);
        if (status != FSPEC_OK) return status;
        layers[j].slopes = *rule;
        layers[j].width_in = layers[j].width_out = 1.0;
        if (from->skip == 0.0) layers[j].ensemble = FSPEC_ORTHOGONAL;
        if (from->skip == 0.0) layers[j].weight_variance = 1.0;
        run->n_rules++;
    }
    return FSPEC_OK;
}

/* The distinct blocks of the run in the order of their first site. */
static size_t distinct(fspec_run *run, const size_t *sites)
{
    size_t count = 0;
    for (size_t i = 0; i < run->n_sites; i++) {
        size_t k = 0;
        while (k < count && run->kinds[k] != sites[i]) k++;
        if (k == count) run->kinds[count++] = sites[i];
        run->sites[i] = k;
    }
    return count;
}

int fspec_run_init(fspec_run *run, const fspec_block *blocks, const fspec_shared *of)
{
    const size_t n_sites = run->n_sites = of->n_sites, *sites = of->sites;
    run->nodes = of->nodes;
    size_t layers = 0, used = 0, *kinds = run->kinds = calloc(n_sites, sizeof *kinds);
    run->sites = calloc(n_sites, sizeof *run->sites);
    if (!kinds || !run->sites) return FSPEC_NO_MEMORY;
    size_t count = distinct(run, sites);
    for (size_t i = 0; i < count; i++) layers += blocks[kinds[i]].n_layers;
    fspec_block *own = calloc(count, sizeof *own);
    fspec_layer *own_layers = calloc(layers + 1, sizeof *own_layers);
    run->rules = calloc(layers + 1, sizeof *run->rules);
    int status = own && own_layers && run->rules ? FSPEC_OK : FSPEC_NO_MEMORY;
    for (size_t i = 0; i < count && status == FSPEC_OK; i++) {
        status = add_block(run, &blocks[kinds[i]], of->slope_nodes, own_layers + used,
                           &own[i]);
        used += own[i].n_layers;
    }
    if (status == FSPEC_OK) status = fspec_chain_new(count, own, 0.0, &run->frame);
    if (status == FSPEC_OK) run->size = run->frame->size + (run->nodes ? 2 * n_sites + 1 : 0);
    free(own);
    free(own_layers);
    return status;
}

void fspec_run_free(fspec_run *run)
{
    fspec_chain_free(run->frame);
    for (size_t i = 0; i < run->n_rules; i++) fspec_slopes_free(run->rules[i]);
    free(run->rules);
    free(run->sites);
    free(run->kinds);
    memset(run, 0, sizeof *run);
}

/* ---- of a chain ---------------------------------------------------------------------------- */

/* Whether the slopes next to the block's skip take more than one value. */
static int varies(const fspec_block *b)
{
    const fspec_slopes *s = b->layers[b->n_layers - 1].slopes;
    return s->count + (s->zero > 0.0) > 1;
}

/* From the first to the last site that varies; no sites if fewer than two do, which is free. */
static fspec_shared trimmed(const fspec_block *blocks, fspec_shared of)
{
    size_t first = 0, last = of.n_sites;
    while (first < last && !varies(&blocks[of.sites[first]])) first++;
    while (last > first && !varies(&blocks[of.sites[last - 1]])) last--;
    of.sites += first;
    of.n_sites = last - first > 1 ? last - first : 0;
    return of;
}

static int can_share(const fspec_chain *c, const fspec_block *blocks, const fspec_shared *of)
{
    if (of->slope_nodes == 0 || of->slope_nodes > FSPEC_RULE_NODES || of->nodes > FSPEC_RULE_NODES)
        return 0;
    for (size_t i = 0; i < of->n_sites; i++) {
        if (of->sites[i] >= c->n_blocks) return 0;
        const fspec_block *block = &blocks[of->sites[i]];
        if (block->log_s || (i > 0 && block->skip == 0.0)) return 0;
        for (size_t j = 0; j < block->n_layers; j++)
            if (block->layers[j].width_out != c->final_width) return 0;
    }
    return 1;
}

/* Whether a block is a site no more often than it occurs. */
static int occurs(const fspec_block *block, size_t index, size_t n_runs, const fspec_shared *runs)
{
    double count = 0.0;
    for (size_t i = 0; i < n_runs; i++)
        for (size_t k = 0; k < runs[i].n_sites; k++) count += runs[i].sites[k] == index;
    return count <= block->repeat;
}

int fspec_chain_share(fspec_chain *c, const fspec_block *blocks, size_t n_runs,
                      const fspec_shared *runs)
{
    for (size_t i = 0; i < n_runs; i++)
        if (!can_share(c, blocks, &runs[i])) return FSPEC_BAD_ARGUMENT;
    for (size_t i = 0; i < c->n_blocks; i++)
        if (!occurs(&blocks[i], i, n_runs, runs)) return FSPEC_BAD_ARGUMENT;
    c->runs = calloc(n_runs + 1, sizeof *c->runs);
    c->free = malloc(sizeof *c->free);
    if (!c->runs || !c->free) return FSPEC_NO_MEMORY;
    *c->free = *c;
    for (size_t i = 0; i < n_runs; i++) {
        fspec_shared sites = trimmed(blocks, runs[i]);
        if (sites.n_sites == 0) continue;
        fspec_run *run = &c->runs[c->n_runs++];
        int status = fspec_run_init(run, blocks, &sites);
        if (status != FSPEC_OK) return status;
        run->first = c->size;
        c->size += run->size;
        c->error += 7e-15 * (double)run->n_sites; /* rounding, seen against 22-digit points */
    }
    free(c->atoms);
    c->atoms = NULL;
    c->n_atoms = 0;
    return fspec_chain_find_atoms(c);
}

/* ---- room ---------------------------------------------------------------------------------- */

static size_t most_slopes(const fspec_run *run)
{
    size_t most = 1;
    for (size_t i = 0; i < run->n_rules; i++)
        if (run->rules[i]->count + 1 > most) most = run->rules[i]->count + 1;
    return most;
}

fspec_run_room *fspec_run_room_new(const fspec_run *run)
{
    fspec_run_room *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    size_t n = r->unknowns = 2 * run->n_sites + 1, frame = run->frame->size;
    size_t nodes = run->nodes * most_slopes(run);
    r->blocks = calloc(run->frame->n_blocks, sizeof *r->blocks);
    r->p = calloc(2 * (run->n_sites + 1), sizeof *r->p);
    r->kept_p = calloc(2 * (run->n_sites + 1), sizeof *r->kept_p);
    r->pivot = calloc(n, sizeof *r->pivot);
    size_t numbers = (run->nodes + 4) * (nodes + 1) + n * (n + FSPEC_RUN_UPDATES + 6) + 2 * frame;
    double complex *x = r->node = calloc(numbers, sizeof *x);
    if (!r->blocks || !r->p || !r->kept_p || !r->pivot || !x) {
        fspec_run_room_free(r);
        return NULL;
    }
    r->q = r->p + run->n_sites + 1;
    r->kept_q = r->kept_p + run->n_sites + 1;
    r->weight = x += nodes;
    r->scratch = x += nodes;
    r->matrix = x += (run->nodes + 2) * nodes + 1;
    r->moved = x += n * n;
    r->f = x += n * FSPEC_RUN_UPDATES;
    r->step = x += n;
    r->trial = x += n;
    r->spare = x += n;
    r->minus = x += n;
    r->frame = x += n;
    r->beside = x + frame;
    return r;
}

void fspec_run_room_free(fspec_run_room *r)
{
    if (!r) return;
    free(r->blocks);
    free(r->p);
    free(r->kept_p);
    free(r->pivot);
    free(r->node);
    free(r);
}

/* ---- states --------------------------------------------------------------------------------- */

void fspec_run_start(const fspec_run *run, double m, fspec_state *x)
{
    fspec_chain_start(run->frame, m, x);
    for (size_t i = run->frame->size; i < run->size; i++) x[i] = 1.0;
}

void fspec_run_reconcile(const fspec_run *run, double complex m, double complex one,
                         fspec_state *x)
{
    x[0] = m;
    x[1] = one - (1.0 - run->frame->positive);
    fspec_chain_reconcile(run->frame, x);
}

/* Im a <= 0 up to rounding. */
static int lower(double complex a) { return cimag(a) <= 1e-9 * cabs(a); }

int fspec_run_check(const fspec_run *run, const fspec_state *x)
{
    if (!run->nodes) return 1;
    const fspec_chain *c = run->frame;
    const size_t n = run->n_sites;
    const fspec_state *a = x + c->size, *b = a + n;
    double complex m = x[0], one = x[1] + (1.0 - c->positive), p = 1.0;
    for (size_t l = 0; l < n; l++) {
        fspec_run_block at = fspec_run_block_at(c, run->sites[l], m, one, x);
        if (!lower(p * at.phi * one * a[l]) || !lower(at.beta_in / p * b[l])) return 0;
        p *= at.r / cabs(at.r);
    }
    return 1;
}
