/* Following one root of a chain's equation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fspec_path.h"

/* A search off the branch that is not there soon leads nowhere. */
enum { MAX_PATH = 4000, MAX_SEARCH = 60 };

int fspec_walker_init(fspec_walker *w, const fspec_chain *chain)
{
    memset(w, 0, sizeof *w);
    w->chain = chain;
    w->memory = calloc(3 * chain->size, sizeof *w->memory);
    if (!w->memory) return FSPEC_NO_MEMORY;
    w->x = w->memory;
    w->rates = w->memory + chain->size;
    return FSPEC_OK;
}

void fspec_walker_free(fspec_walker *w)
{
    free(w->memory);
    w->memory = NULL;
}

void fspec_walker_copy(fspec_walker *to, const fspec_walker *from)
{
    size_t bytes = from->chain->size * sizeof *from->x;
    to->l = from->l;
    to->slope = from->slope;
    memcpy(to->x, from->x, bytes);
    memcpy(to->rates, from->rates, bytes);
}

double fspec_walker_rate(const fspec_walker *w)
{
    double worst = fmax(1.0 / cabs(w->x[0]), 1.0 / cabs(w->x[1]));
    for (size_t i = 2; i < w->chain->size; i++)
        worst = fmax(worst, cabs(w->rates[i] / w->x[i]));
    return worst;
}

static fspec_state *trial_of(const fspec_walker *w) { return w->memory + 2 * w->chain->size; }

/* Newton from the trial state; on success it becomes the present point. */
static int correct(fspec_walker *w, double complex l, int mode)
{
    const fspec_chain *c = w->chain;
    fspec_state *x = trial_of(w);
    double complex predicted = x[0];
    fspec_chain_result r;
    fspec_chain_newton(c, 1, &l, mode, x, w->rates, &r);
    if (r.status != FSPEC_OK) return r.status;
    double moved = cabs(x[0] - predicted) / fmin(cabs(x[0]), cabs(x[1]));
    if (mode == FSPEC_FREE_M && !(moved < 0.1)) return FSPEC_NOT_CONVERGED;
    if (!w->unchecked && !fspec_chain_check(c, x)) return FSPEC_WRONG_BRANCH;
    memcpy(w->x, x, c->size * sizeof *x);
    w->slope = r.slope;
    w->l = mode == FSPEC_FREE_M ? l : r.f + l;
    return FSPEC_OK;
}

void fspec_chain_predict(const fspec_chain *c, const fspec_state *x, const fspec_state *rates,
                         double complex dm, fspec_state *out)
{
    out[0] = x[0] + dm;
    out[1] = x[1] + dm;
    for (size_t i = 2; i < c->size; i++) out[i] = x[i] * cexp(dm * rates[i] / x[i]);
    fspec_chain_reconcile(c, out);
}

double complex fspec_chain_log_step(const fspec_state *x, double complex slope, double complex dl)
{
    double complex rate = dl / slope;
    double complex base = cabs(x[0]) < cabs(x[1]) ? x[0] : x[1];
    return base * (cexp(rate / base) - 1.0);
}

/* The rates are those of the state before the last correction: refresh at the present one. */
static int refresh(fspec_walker *w)
{
    memcpy(trial_of(w), w->x, w->chain->size * sizeof *w->x);
    return correct(w, w->l, FSPEC_FIXED_M);
}

static int start_at(fspec_walker *w, double m)
{
    fspec_chain_start(w->chain, m, w->x);
    w->l = 0.0;
    int status = refresh(w);
    return status != FSPEC_OK ? status : refresh(w);
}

int fspec_walker_start(fspec_walker *w)
{
    for (double m = 1e-3; m > 1e-14; m *= 0.01) {
        int status = start_at(w, m);
        if (status != FSPEC_OK || creal(w->slope) < 0) return status;
    }
    return FSPEC_NOT_CONVERGED;
}

int fspec_walker_to_m(fspec_walker *w, double complex m)
{
    fspec_state *trial = trial_of(w);
    double reach = 0.5;
    int most = w->unchecked ? MAX_SEARCH : MAX_PATH;
    for (int step = 0; step < most; step++) {
        double complex left = m - w->x[0];
        double largest = reach / fspec_walker_rate(w);
        int last = cabs(left) <= largest;
        double complex dm = last ? left : left * (largest / cabs(left));
        fspec_chain_predict(w->chain, w->x, w->rates, dm, trial);
        if (last) {
            trial[1] += m - trial[0];
            trial[0] = m;
        }
        if (correct(w, 0.0, FSPEC_FIXED_M) == FSPEC_OK) {
            if (last) return FSPEC_OK;
            reach = fmin(0.5, 1.5 * reach);
        } else {
            reach *= 0.3;
            if (reach < 1e-8) return FSPEC_NOT_CONVERGED;
        }
    }
    return FSPEC_NOT_CONVERGED;
}

int fspec_walker_to_l(fspec_walker *w, double complex l)
{
    fspec_state *trial = trial_of(w);
    double reach = 0.3;
    for (int step = 0; step < MAX_PATH; step++) {
        double complex left = l - w->l;
        double largest = reach * cabs(w->slope) / fspec_walker_rate(w);
        int last = cabs(left) <= largest;
        double complex dl = last ? left : left * (largest / cabs(left));
        double complex dm = fspec_chain_log_step(w->x, w->slope, dl);
        fspec_chain_predict(w->chain, w->x, w->rates, dm, trial);
        if (correct(w, last ? l : w->l + dl, FSPEC_FREE_M) == FSPEC_OK) {
            if (last) return FSPEC_OK;
            reach = fmin(0.5, 1.5 * reach);
        } else {
            reach *= 0.3;
            if (reach < 1e-9) return FSPEC_NOT_CONVERGED;
        }
    }
    return FSPEC_NOT_CONVERGED;
}

/* Real m with dl/dm = 0 between low and high, where its signs differ: Brent's bracketing by
 * regula falsi with Illinois' halving. l is stationary there, so it has the full accuracy. */
int fspec_walker_to_edge(fspec_walker *w, double low, double high)
{
    double f_low, f_high;
    int status = fspec_walker_to_m(w, low);
    if (status != FSPEC_OK) return status;
    f_low = creal(w->slope);
    if ((status = fspec_walker_to_m(w, high)) != FSPEC_OK) return status;
    f_high = creal(w->slope);
    if (!(f_low * f_high < 0)) return FSPEC_BAD_ARGUMENT;
    for (int i = 0; i < 100; i++) {
        double m = (low * f_high - high * f_low) / (f_high - f_low);
        if (!(m > fmin(low, high) && m < fmax(low, high))) m = 0.5 * (low + high);
        if ((status = fspec_walker_to_m(w, m)) != FSPEC_OK) return status;
        double f = creal(w->slope);
        if (f == 0.0 || fabs(high - low) < 1e-13 * fabs(m)) return FSPEC_OK;
        if (f * f_high < 0) {
            low = high;
            f_low = f_high;
        } else {
            f_low *= 0.5;
        }
        if (fabs(m - high) < 1e-15 * fabs(m)) return FSPEC_OK;
        high = m;
        f_high = f;
    }
    return FSPEC_OK;
}

int fspec_walker_land(fspec_walker *w)
{
    for (size_t i = 0; i < w->chain->size; i++) w->x[i] = creal(w->x[i]);
    return fspec_walker_to_m(w, creal(w->x[0]));
}

int fspec_walker_over(fspec_walker *w, double centre)
{
    enum { CORNERS = 12 };
    double radius = creal(w->x[0]) - centre;
    for (int k = 1; k <= CORNERS; k++) {
        double angle = FSPEC_PI * k / CORNERS;
        double complex m = centre + radius * cos(angle) - I * fabs(radius) * sin(angle);
        if (k == CORNERS) m = centre - radius;
        int status = fspec_walker_to_m(w, m);
        if (status != FSPEC_OK) return status;
    }
    return fspec_walker_land(w);
}

/* z from infinity down along the ray of a small m, then turning: first |z| beyond everything at
 * arg z = pi/2, then down to |z|, then to arg z. */
int fspec_walker_from_above(fspec_walker *w, double complex l)
{
    int status = fspec_walker_start(w);
    if (status != FSPEC_OK) return status;
    double high = fmax(creal(w->l), creal(l) + 1.0), turn = fmax(1.5, cimag(l));
    if ((status = fspec_walker_to_l(w, creal(w->l) + I * turn)) != FSPEC_OK) return status;
    if ((status = fspec_walker_to_l(w, high + I * turn)) != FSPEC_OK) return status;
    if ((status = fspec_walker_to_l(w, creal(l) + I * turn)) != FSPEC_OK) return status;
    return fspec_walker_to_l(w, l);
}
