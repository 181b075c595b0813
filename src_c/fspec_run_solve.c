/* Solving a run at given m: Newton's method with the matrix of a point nearby, or of one-node rules,
 * which costs next to nothing, and Broyden's updates for what that leaves out. */
#include <math.h>
#include <string.h>

#include "fspec_closed.h"
#include "fspec_run_sweep.h"

enum { STEPS = FSPEC_RUN_UPDATES };

/* ---- the matrix ---------------------------------------------------------------------------- */

/* LU with partial pivoting, rows of n. */
static int factorise(size_t n, double complex *a, size_t *pivot)
{
    for (size_t k = 0; k < n; k++) {
        size_t best = k;
        for (size_t i = k + 1; i < n; i++)
            if (cabs(a[i * n + k]) > cabs(a[best * n + k])) best = i;
        pivot[k] = best;
        if (!(cabs(a[best * n + k]) > 0.0)) return FSPEC_NOT_CONVERGED;
        for (size_t j = 0; j < n && best != k; j++) {
            double complex swap = a[k * n + j];
            a[k * n + j] = a[best * n + j];
            a[best * n + j] = swap;
        }
        double complex inv = 1.0 / a[k * n + k];
        for (size_t i = k + 1; i < n; i++) {
            double complex factor = a[i * n + k] *= inv;
            if (factor == 0.0) continue;
            for (size_t j = k + 1; j < n; j++) a[i * n + j] -= factor * a[k * n + j];
        }
    }
    return FSPEC_OK;
}

static void substitute(size_t n, const double complex *a, const size_t *pivot, double complex *x)
{
    for (size_t k = 0; k < n; k++) {
        double complex swap = x[k];
        x[k] = x[pivot[k]];
        x[pivot[k]] = swap;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) x[i] -= a[i * n + j] * x[j];
    for (size_t i = n; i-- > 0;) {
        for (size_t j = i + 1; j < n; j++) x[i] -= a[i * n + j] * x[j];
        x[i] /= a[i * n + i];
    }
}

/* df/dx by differences, with rules of so many nodes. */
static int make_matrix(const fspec_run *run, fspec_run_room *room, size_t nodes,
                       const double complex *x)
{
    const size_t n = room->unknowns;
    double complex *moved = room->trial, *f = room->f, *f1 = room->step;
    int status = fspec_run_sweep(run, room, nodes, x, f);
    memcpy(moved, x, n * sizeof *x);
    for (size_t j = 0; j < n && status == FSPEC_OK; j++) {
        double complex h = 1e-7 * x[j];
        moved[j] = x[j] + h;
        status = fspec_run_sweep(run, room, nodes, moved, f1);
        for (size_t i = 0; i < n; i++) room->matrix[i * n + j] = (f1[i] - f[i]) / h;
        moved[j] = x[j];
    }
    return status == FSPEC_OK ? factorise(n, room->matrix, room->pivot) : status;
}

/* ---- Broyden's method ----------------------------------------------------------------------- */

static double complex inner(size_t n, const double complex *a, const double complex *b)
{
    double complex sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += conj(a[i]) * b[i];
    return sum;
}

/* max |a|; infinite if one is not a number */
static double largest(size_t n, const double complex *a)
{
    double most = 0.0;
    for (size_t i = 0; i < n; i++) {
        double size = cabs(a[i]);
        most = size <= most ? most : size < INFINITY ? size : INFINITY;
    }
    return most;
}

/* From x to a root in so many steps, the matrix given (Kelley 1995, section 7.3: the steps s_k themselves hold the
 * updates). */
static int broyden(const fspec_run *run, fspec_run_room *room, double complex *x, int *steps)
{
    const size_t n = room->unknowns;
    double norms[STEPS], before = INFINITY;
    int stuck = 0;
    for (int k = 0; k < STEPS; k++) {
        int status = fspec_run_sweep(run, room, run->nodes, x, room->f);
        if (status != FSPEC_OK) return status;
        *steps = k;
        double complex *step = room->moved + (size_t)k * n;
        for (size_t i = 0; i < n; i++) step[i] = -room->f[i];
        substitute(n, room->matrix, room->pivot, step);
        for (int j = 0; j < k; j++) {
            const double complex *s = room->moved + (size_t)j * n;
            double complex factor = inner(n, s, step) / norms[j];
            if (j == k - 1) {
                factor = 1.0 / (1.0 - factor);
                for (size_t i = 0; i < n; i++) step[i] *= factor;
            } else {
                const double complex *next = s + n;
                for (size_t i = 0; i < n; i++) step[i] += factor * next[i];
            }
        }
        double size = largest(n, step);
        if (!(size < 1e3)) return FSPEC_NOT_CONVERGED;
        double shrink = size > 0.5 ? 0.5 / size : 1.0;
        for (size_t i = 0; i < n; i++) x[i] += step[i] *= shrink;
        norms[k] = creal(inner(n, step, step));
        /* small steps that stop shrinking are rounding: at once or, where there is more of it, in
         * the end (beside an atom; far down a tail to 0, where the equations hardly depend on
         * the unknowns) */
        stuck += size > 0.5 * before;
        if (size < 4e-16 || (size < 1e-13 && size > 0.3 * before)) return FSPEC_OK;
        if (stuck > 3 && (size < 1e-9 || largest(n, room->f) < 1e-14)) return FSPEC_OK;
        before = size;
    }
    return FSPEC_NOT_CONVERGED;
}

/* ---- at one m, and its derivative ------------------------------------------------------------ */

static int solve_frame(const fspec_run *run, double complex m, double complex one, fspec_state *x,
                       fspec_state *rates)
{
    fspec_chain_result result;
    double complex nowhere = 0.0;
    fspec_run_reconcile(run, m, one, x);
    fspec_free_newton(1)(run->frame, 1, &nowhere, FSPEC_FIXED_M, x, rates, &result);
    return result.status;
}

static void place(const fspec_run *run, fspec_run_room *room, double complex m,
                  double complex one, const fspec_state *frame)
{
    room->m = m;
    room->one = one;
    memcpy(room->frame, frame, run->frame->size * sizeof *frame);
    fspec_run_set_blocks(run, room, frame);
}

/* By the matrix at hand, that of a point nearby; else by a new one, of one node where all nodes'
 * would be dear, else, or where that is too far off, of all. */
static int solve_sites(const fspec_run *run, fspec_run_room *room, double complex *x)
{
    enum { DEAR = 40, SLOW = 12 };
    const size_t n = room->unknowns, nodes[] = {0, n > DEAR ? 1 : run->nodes, run->nodes};
    int status = FSPEC_NOT_CONVERGED, steps = 0;
    memcpy(room->spare, x, n * sizeof *x);
    for (int k = room->has_matrix ? 0 : 1; k < 3 && status != FSPEC_OK; k++) {
        memcpy(x, room->spare, n * sizeof *x);
        status = k ? make_matrix(run, room, nodes[k], x) : FSPEC_OK;
        room->has_matrix = status == FSPEC_OK;
        if (status == FSPEC_OK) status = broyden(run, room, x, &steps);
    }
    if (steps > SLOW) room->has_matrix = 0;
    return status;
}

/* The sites' unknowns at m + h, started from x + h x' as far as that is known. */
static int solve_beside(const fspec_run *run, fspec_run_room *room, double complex m,
                        double complex one, const fspec_state *frame, const fspec_state *rates,
                        double h, double complex *sites)
{
    for (size_t i = 0; i < run->frame->size; i++) room->beside[i] = frame[i] + h * rates[i];
    int status = solve_frame(run, m + h, one + h, room->beside, NULL);
    if (status != FSPEC_OK) return status;
    place(run, room, m + h, one + h, room->beside);
    return solve_sites(run, room, sites);
}

/* dx/dm from the solutions at m +- h, h a small part of the distance over which x changes. */
static int differentiate(const fspec_run *run, fspec_run_room *room, double complex m,
                         double complex one, const fspec_state *x, fspec_state *rates)
{
    const size_t f = run->frame->size, n = room->unknowns;
    const fspec_state *sites = x + f;
    double complex *plus = rates + f, *minus = room->minus;
    double rate = fmax(1.0 / cabs(m), 1.0 / cabs(one));
    for (size_t i = 2; i < f; i++) rate = fmax(rate, cabs(rates[i] / x[i]));
    double h = 1e-4 / rate;
    memcpy(plus, sites, n * sizeof *plus);
    int status = solve_beside(run, room, m, one, x, rates, h, plus);
    for (size_t i = 0; i < n; i++) minus[i] = 2.0 * sites[i] - plus[i];
    if (status == FSPEC_OK) status = solve_beside(run, room, m, one, x, rates, -h, minus);
    for (size_t i = 0; i < n; i++) plus[i] = (plus[i] - minus[i]) / (2.0 * h);
    return status;
}

/* The closed correction; 1 if what it leaves out is rounding (far out, and far down a tail to 0,
 * where the equations of the sites hardly depend on their unknowns). */
static int closed_term(const fspec_run *run, const fspec_state *x, double size,
                       fspec_run_term *out)
{
    fspec_closed closed;
    fspec_closed_correction(run->frame, run->n_sites, run->sites, x, &closed);
    *out = (fspec_run_term){-closed.u[1], -closed.u[2]};
    return cabs(closed.next) < 1e-15 * size;
}

int fspec_run_solve(const fspec_run *run, fspec_run_room *room, double complex m,
                    double complex one, fspec_state *x, fspec_state *rates, fspec_run_term *out)
{
    const size_t f = run->frame->size;
    int status = solve_frame(run, m, one, x, rates);
    if (status != FSPEC_OK) return status;
    int enough = closed_term(run, x, fmin(cabs(m), cabs(one)), out);
    if (run->nodes == 0) return FSPEC_OK;
    if (enough && run->nodes > 1) {
        for (size_t i = f; i < run->size; i++) x[i] = 1.0;
        for (size_t i = f; i < run->size && rates; i++) rates[i] = 0.0;
        return FSPEC_OK;
    }
    place(run, room, m, one, x);
    status = solve_sites(run, room, x + f);
    if (status != FSPEC_OK) return status;
    double complex e = x[f + 2 * run->n_sites];
    *out = (fspec_run_term){-clog(e), 0.0};
    if (!rates) return FSPEC_OK;
    status = differentiate(run, room, m, one, x, rates);
    out->slope = -rates[f + 2 * run->n_sites] / e;
    return status;
}
