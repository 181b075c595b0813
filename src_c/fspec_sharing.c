/* What sharing coordinates changes, at given m: without a law of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fspec_closed.h"
#include "fspec_path.h"
#include "fspec_run_sweep.h"

typedef struct {
    const fspec_run *run;
    fspec_run_room *room;
    fspec_walker walker; /* along the frame's m */
    fspec_state *x;      /* the run's part of a state */
} follower;

static void follower_free(follower *f)
{
    fspec_walker_free(&f->walker);
    fspec_run_room_free(f->room);
    free(f->x);
}

/* At a small m, from where any other is reached. */
static int restart(follower *f)
{
    fspec_run_start(f->run, 1e-3, f->x);
    return fspec_walker_start(&f->walker);
}

static int follower_init(follower *f, const fspec_run *run)
{
    memset(f, 0, sizeof *f);
    f->run = run;
    f->x = calloc(run->size, sizeof *f->x);
    f->room = fspec_run_room_new(run);
    int status = f->x && f->room ? FSPEC_OK : FSPEC_NO_MEMORY;
    if (status == FSPEC_OK) status = fspec_walker_init(&f->walker, run->frame);
    /* the blocks are followed in m alone: what z they would be free at does not matter */
    f->walker.unchecked = 1;
    return status == FSPEC_OK ? restart(f) : status;
}

/* By a detour in the lower half plane where real points could be singular. */
static int follow(follower *f, double complex m)
{
    enum { LEGS = 16 };
    fspec_walker *w = &f->walker;
    double complex from = w->x[0];
    double size = fmax(cabs(from), cabs(m));
    int round = cimag(from) > -0.1 * size && cimag(m) > -0.1 * size;
    for (int k = 1; k <= LEGS; k++) {
        double share = (double)k / LEGS;
        double complex at = from + share * (m - from);
        if (round) at -= 0.3 * I * cabs(m - from) * share * (1.0 - share);
        int status = fspec_walker_to_m(w, k == LEGS ? m : at);
        if (status != FSPEC_OK) return status;
    }
    return FSPEC_OK;
}

/* Adds the run's terms at m; `out` as in fspec_sharing. */
static int add_terms(follower *f, double complex m, double *out)
{
    fspec_run_term term;
    int status = follow(f, m);
    if (status != FSPEC_OK) return status;
    const fspec_run *run = f->run;
    memcpy(f->x, f->walker.x, run->frame->size * sizeof *f->x);
    double complex one = f->walker.x[1] + (1.0 - run->frame->positive);
    status = fspec_run_solve(run, f->room, m, one, f->x, NULL, &term);
    if (status != FSPEC_OK) return status;
    fspec_closed closed;
    fspec_closed_correction(run->frame, run->n_sites, run->sites, f->x, &closed);
    const double complex part[FSPEC_SHARING_TERMS] = {term.d, closed.u[0], closed.u[1],
                                                      closed.next};
    for (int k = 0; k < FSPEC_SHARING_TERMS; k++) {
        out[2 * k] += creal(part[k]);
        out[2 * k + 1] += cimag(part[k]);
    }
    return FSPEC_OK;
}

/* ... or NaN, and afresh for the next m. */
static int try_terms(follower *f, double complex m, double *out)
{
    int good = isfinite(creal(m)) && isfinite(cimag(m)) && m != 0.0 && m != -1.0;
    int status = good ? add_terms(f, m, out) : FSPEC_BAD_POINT;
    if (status == FSPEC_OK) return status;
    for (int k = 0; k < 2 * FSPEC_SHARING_TERMS; k++) out[k] = NAN;
    f->room->has_matrix = 0;
    restart(f);
    return status;
}

static int all_runs(const fspec_chain *c, size_t n, const double *m_re, const double *m_im,
                    double *out, int *status)
{
    for (size_t i = 0; i < n; i++) status[i] = FSPEC_OK;
    for (size_t r = 0; r < c->n_runs; r++) {
        follower f;
        int ready = follower_init(&f, &c->runs[r]);
        for (size_t i = 0; i < n && ready == FSPEC_OK; i++) {
            int done = try_terms(&f, m_re[i] + I * m_im[i], out + 2 * FSPEC_SHARING_TERMS * i);
            if (done != FSPEC_OK) status[i] = done;
        }
        follower_free(&f);
        if (ready != FSPEC_OK) return ready;
    }
    return FSPEC_OK;
}

int fspec_sharing(size_t n_blocks, const fspec_block *blocks, size_t n_runs,
                  const fspec_shared *runs, size_t n, const double *m_re, const double *m_im,
                  double *out, int *status)
{
    fspec_chain *chain;
    int made = fspec_chain_new(n_blocks, blocks, 0.0, &chain);
    if (made != FSPEC_OK) return made;
    made = fspec_chain_share(chain, blocks, n_runs, runs);
    memset(out, 0, 2 * FSPEC_SHARING_TERMS * n * sizeof *out);
    if (made == FSPEC_OK) made = all_runs(chain, n, m_re, m_im, out, status);
    fspec_chain_free(chain);
    return made;
}

size_t fspec_shared_atoms(size_t n_blocks, const fspec_block *blocks, size_t n_runs,
                          const fspec_shared *runs, size_t n, double *location, double *mass)
{
    fspec_chain *chain;
    size_t count = 0;
    if (fspec_chain_new(n_blocks, blocks, 0.0, &chain) != FSPEC_OK) return 0;
    if (fspec_chain_share(chain, blocks, n_runs, runs) == FSPEC_OK)
        for (size_t i = 0; i < chain->n_atoms && count < n; i++) {
            if (!(chain->atoms[i].mass > 0.0)) continue;
            location[count] = chain->atoms[i].location;
            mass[count++] = chain->atoms[i].mass;
        }
    fspec_chain_free(chain);
    return count;
}
