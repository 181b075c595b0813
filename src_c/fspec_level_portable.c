/* One lane, plain C11: every machine, and every scalar use inside the library. */
#define FSPEC_LANES 1
#define FSPEC_KERNELS fspec_kernels_portable
#define FSPEC_LEVEL_NAME "portable"
#include "fspec_kernels.h"

fspec_point fspec_locate(const fspec_law *law, double x, int variable)
{
    fspec_lane_delta delta;
    vi below;
    vi inside = fspec_lane_distance(law, x, variable, &delta, &below);
    return (fspec_point){inside ? (below ? -1.0 : 1.0) : 0.0, delta.dk, delta.df};
}

static vi solve_one(const fspec_law *law, const fspec_lane_delta *delta, fspec_lane_root *root)
{
    switch (law->equation) {
    case FSPEC_EQ_RESNET:
        *root = fspec_resnet_guess(law, delta);
        return fspec_newton(fspec_resnet_eval, law, root, delta, -1, 1, FSPEC_MAX_STEPS);
    case FSPEC_EQ_PLAIN:
        *root = fspec_plain_guess(law, delta);
        return fspec_newton(fspec_plain_eval, law, root, delta, -1, 1, FSPEC_MAX_STEPS);
    default:
        *root = fspec_bernoulli_guess(law, delta);
        return fspec_newton(fspec_bernoulli_eval, law, root, delta, -1, 1, FSPEC_MAX_STEPS);
    }
}

fspec_root fspec_solve_point(const fspec_law *law, fspec_point at)
{
    if (law->equation == FSPEC_EQ_MARCHENKO) return fspec_marchenko_root(law, at);
    fspec_lane_delta delta = {at.dk, at.df, 0.0};
    fspec_lane_root r;
    int status = solve_one(law, &delta, &r) ? FSPEC_OK : FSPEC_NOT_CONVERGED;
    return (fspec_root){r.t.re, r.t.im, r.e.re, r.e.im, r.d.re, r.d.im, status};
}

/* Marches down the real support from the top edge and keeps the solved points as nodes for
 * starting guesses. The unknown is log E as a function of s = sqrt(delta), which is analytic at
 * the edge and straight in s^2 at the hard end. A step is accepted when the cubic through the
 * last node's slope predicted the solved point well; the walk ends where log E + delta/n has
 * stopped changing. */
int fspec_plain_walk(fspec_law *law)
{
    const double good_step = 0.02, flat = 1e-3;
    fspec_node *node = law->nodes;
    /* at the edge E = E_e - i k sqrt(2/K'') s, K'' = -d^2F/dt^2 at t_e with sign of the fold */
    double te = law->t_edge, ke = law->k / law->e_edge, q = 1.0 / (1.0 + te);
    double curvature = 1.0 / (te * te) - law->n1 * q * q - law->n * ke * ke;
    node[0] = (fspec_node){0.0, log(law->e_edge), 0.0, 0.0, ke * sqrt(2.0 / curvature)};
    double h = 0.05 / (1.0 + node[0].darg_e);
    int count = 1;
    while (count < FSPEC_MAX_NODES) {
        const fspec_node *a = &node[count - 1];
        double s = a->s + h, l = a->log_e + h * a->dlog_e, g = a->arg_e + h * a->darg_e;
        fspec_lane_delta delta = {0.0, s * s, 0.0};
        fspec_lane_root r;
        r.e = (vc){exp(l) * cos(g), -exp(l) * sin(g)};
        r.d = (vc){(r.e.re - law->e_edge) / law->k, r.e.im / law->k};
        r.t = (vc){te + r.d.re, r.d.im};
        vi good = fspec_newton(fspec_plain_eval, law, &r, &delta, -1, 1, FSPEC_MAX_STEPS);
        double l1 = log(hypot(r.e.re, r.e.im)), g1 = atan2(-r.e.im, r.e.re);
        double miss = fabs(l1 - l) + fabs(g1 - g) / (g1 + 1e-300);
        if (!good || !(miss < 5 * good_step)) {
            h *= 0.5;
            if (h < 1e-9) return FSPEC_NOT_CONVERGED;
            continue;
        }
        /* d log E/ds = (k/E) dt/ds, dt/ds = -2s/F' = -2s u/(uF') */
        fspec_lane_eval v = fspec_plain_eval(law, &r, &delta);
        vc rate = vc_mul(vc_div(vc_scale(v.unit, law->k), r.e), vc_inv(v.g1));
        node[count++] = (fspec_node){s, l1, g1, -2 * s * rate.re, 2 * s * rate.im};
        double slope = rate.re * law->n - 1.0;
        if (s > 1.0 && fabs(slope) < flat && fabs(rate.im) * law->n < flat * g1) break;
        h *= fmin(2.0, 0.9 * sqrt(good_step / (miss + 1e-12)));
    }
    law->n_nodes = count;
    const fspec_node *last = &node[count - 1];
    law->gap_max = last->s * last->s + law->n * (last->log_e + 690.0);
    law->index_scale = FSPEC_INDEX / node[count - 1].s;
    for (int i = 0, j = 0; i < FSPEC_INDEX; i++) {
        while (j + 2 < count && node[j + 1].s <= i / law->index_scale) j++;
        law->index[i] = (int16_t)j;
    }
    return count < FSPEC_MAX_NODES ? FSPEC_OK : FSPEC_NOT_CONVERGED;
}
