/* Newton's method for chains with runs (fspec_run.h): l = l_free(m) + sum of the runs' D(m), one
 * equation for m; at every m the free blocks are solved on their own, and the runs as well.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fspec_path.h"
#include "fspec_run.h"

enum { STEPS = 30 };

typedef struct {
    const fspec_chain *chain;
    fspec_run_room **runs;
    double complex *d, *slopes; /* the runs' D and D' at the last m */
    double complex m;
    fspec_state *rates, *trial;
} shared_room;

static void room_free(shared_room *room)
{
    for (size_t i = 0; room->runs && i < room->chain->n_runs; i++)
        fspec_run_room_free(room->runs[i]);
    free(room->runs);
    free(room->d);
    free(room->rates);
}

static int room_init(shared_room *room, const fspec_chain *c)
{
    *room = (shared_room){c, calloc(c->n_runs, sizeof *room->runs),
                          calloc(2 * c->n_runs, sizeof *room->d), NULL, 0.0,
                          calloc(2 * c->size, sizeof *room->rates), NULL};
    if (!room->runs || !room->d || !room->rates) return FSPEC_NO_MEMORY;
    room->slopes = room->d + c->n_runs;
    room->trial = room->rates + c->size;
    for (size_t i = 0; i < c->n_runs; i++) {
        room->runs[i] = fspec_run_room_new(&c->runs[i]);
        if (!room->runs[i]) return FSPEC_NO_MEMORY;
    }
    return FSPEC_OK;
}

/* The frame's blocks where the chain's are: where a block's equations have several roots in the half
 * plane, both stay at one. */
static void start_frame(const fspec_chain *c, const fspec_run *run, fspec_state *x)
{
    for (size_t i = 0; i < run->frame->n_blocks; i++) {
        const fspec_chain_block *to = &run->frame->blocks[i], *from = &c->blocks[run->kinds[i]];
        size_t unknowns = to->n_factors + (to->kind == FSPEC_RESIDUAL ? 4 : 0);
        memcpy(x + run->first + to->first, x + from->first, unknowns * sizeof *x);
    }
}

/* l and dl/dm at the m of x, x otherwise solved. The runs' D' and rates of their unknowns are dear:
 * without `with_slope` D' is that of the secant from the last m, and the rates stay. */
static int at_m(shared_room *room, fspec_state *x, int with_slope, double complex *l,
                double complex *slope)
{
    const fspec_chain *c = room->chain;
    fspec_chain_result free_law;
    double complex nowhere = 0.0, one = x[1] + (1.0 - c->positive);
    fspec_free_newton(1)(c->free, 1, &nowhere, FSPEC_FIXED_M, x, room->rates, &free_law);
    if (free_law.status != FSPEC_OK) return free_law.status;
    *l = free_law.f;
    *slope = free_law.slope;
    for (size_t i = 0; i < c->n_runs; i++) {
        const fspec_run *run = &c->runs[i];
        fspec_run_term term;
        start_frame(c, run, x);
        int status = fspec_run_solve(run, room->runs[i], x[0], one, x + run->first,
                                     with_slope ? room->rates + run->first : NULL, &term);
        if (status != FSPEC_OK) return status;
        if (with_slope) room->slopes[i] = term.slope;
        else if (x[0] != room->m) room->slopes[i] = (term.d - room->d[i]) / (x[0] - room->m);
        room->d[i] = term.d;
        *l += term.d;
        *slope += room->slopes[i];
    }
    room->m = x[0];
    return FSPEC_OK;
}

/* All unknowns at m + dm from their rates. */
static void move(shared_room *room, fspec_state *x, double complex dm)
{
    fspec_chain_predict(room->chain, x, room->rates, dm, room->trial);
    memcpy(x, room->trial, room->chain->size * sizeof *x);
}

static void solve_state(shared_room *room, double complex l, int mode, fspec_state *x,
                        fspec_chain_result *out)
{
    double before = INFINITY;
    *out = (fspec_chain_result){0.0, 0.0, INFINITY, 0, FSPEC_NOT_CONVERGED};
    for (int it = 0; it < STEPS; it++) {
        double complex here = 0.0, slope = 0.0;
        int settled = mode == FSPEC_FIXED_M || before < 1e-13;
        int status = at_m(room, x, it == 0 || settled, &here, &slope);
        out->steps = it + 1;
        out->f = here - l;
        out->slope = slope;
        if (status != FSPEC_OK || settled) {
            out->status = status;
            if (mode == FSPEC_FIXED_M) out->step = 0.0;
            return;
        }
        double complex dm = -out->f / slope;
        double size = cabs(dm) / fmin(cabs(x[0]), cabs(x[1]));
        if (!(size < 1e100)) return;
        if (size > 0.5) dm *= 0.5 / size;
        move(room, x, dm);
        out->step = size;
        /* small steps that stop shrinking are rounding */
        if (size < 1e-6 && size > 0.25 * before) before = 0.0;
        else before = size;
    }
}

static void newton_with_runs(const fspec_chain *c, size_t n, const double complex *l, int mode,
                             fspec_state *x, fspec_state *rates, fspec_chain_result *out)
{
    shared_room room;
    int status = room_init(&room, c);
    for (size_t i = 0; i < n; i++) {
        out[i].status = status;
        if (status != FSPEC_OK) continue;
        solve_state(&room, l[i], mode, x + i * c->size, &out[i]);
        if (rates) memcpy(rates + i * c->size, room.rates, c->size * sizeof *rates);
    }
    room_free(&room);
}

void fspec_chain_newton(const fspec_chain *c, size_t n, const double complex *l, int mode,
                        fspec_state *x, fspec_state *rates, fspec_chain_result *out)
{
    if (c->n_runs) newton_with_runs(c, n, l, mode, x, rates, out);
    else fspec_free_newton(n)(c, n, l, mode, x, rates, out);
}
