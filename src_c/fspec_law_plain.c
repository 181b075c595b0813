/* Constants of equal plain layers with 0/1 slopes (fspec_law_plain.h has the equation).
 * Pennington, Schoenholz & Ganguli 2017/2018; zero and top atoms by the free-product rule. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "fspec_law.h"

/* log of the mean of one layer, sigma^2 p. */
static long double log_layer_mean(double p, double q, double weight_variance)
{
    return logl((long double)weight_variance) +
           (q < 0.5 ? log1pl(-(long double)q) : logl((long double)p));
}

static void set_gaussian(fspec_law *law, double depth, double p, double q)
{
    if (q == 0.0) {
        law->n1 = 0.0;
        law->n = depth + 1.0;
        law->k = 1.0;
        law->t_edge = 1.0 / depth;
    } else {
        /* n k t^2 + (n - 1) k t - 1 = 0 */
        double b = (depth - 1.0) / p;
        law->n1 = 1.0;
        law->n = depth;
        law->k = 1.0 / p;
        law->k_minus_1 = q / p;
        law->t_edge = 2.0 / (b + sqrt(b * b + 4.0 * depth / p));
    }
    law->b1 = depth;
    law->c_e = depth * q;
}

static void set_orthogonal(fspec_law *law, double depth, double p, double q)
{
    double excess = fma(depth, q, -1.0); /* > 0: no atom at the top */
    law->n1 = 0.0;
    law->n = depth;
    law->k = 1.0;
    law->t_edge = 1.0 / (depth - 1.0);
    law->mobius = 1;
    law->kappa = q / p;
    law->kappa_gap = excess / (p * (depth - 1.0));
    law->c_kappa = -excess;
    law->c_e = depth * q;
}

/* log lambda at the top edge, from the equation itself. */
static long double top_log(const fspec_law *law, long double log_mean)
{
    /* t = 1/(n-1) where n1 = 0 */
    long double t = law->n1 == 0.0 ? 1 / ((long double)law->n - 1) : law->t_edge;
    long double k = law->n1 != 0.0 ? 1 / (long double)law->slope_one : 1.0L;
    long double value = log_mean - logl(t) + (long double)law->n1 * log1pl(t) +
                        (long double)law->n * log1pl(k * t);
    return law->mobius ? value + logl((long double)law->slope_zero / (long double)law->slope_one)
                       : value;
}

static int set_chain(fspec_law *law, double depth, double p, double q, long double log_mean,
                     int ensemble)
{
    if (ensemble == FSPEC_GAUSSIAN)
        set_gaussian(law, depth, p, q);
    else
        set_orthogonal(law, depth, p, q);
    law->e_edge = 1.0 + law->k * law->t_edge;
    fspec_law_set_edge(&law->top, top_log(law, log_mean));
    law->nodes = malloc(FSPEC_MAX_NODES * sizeof *law->nodes);
    law->index = malloc(FSPEC_INDEX * sizeof *law->index);
    if (!law->nodes || !law->index) return FSPEC_NO_MEMORY;
    return fspec_plain_walk(law);
}

int fspec_law_plain_chain(double depth, double p, double q, double weight_variance, int ensemble,
                          fspec_law **out)
{
    if (!(depth >= 1.0 && depth <= 1e7 && depth == floor(depth))) return FSPEC_BAD_ARGUMENT;
    if (!(p > 0.0 && q >= 0.0 && fabs((p - 1.0) + q) <= 1e-12)) return FSPEC_BAD_ARGUMENT;
    if (!(weight_variance > 0.0 && weight_variance <= DBL_MAX)) return FSPEC_BAD_ARGUMENT;
    if (ensemble != FSPEC_GAUSSIAN && ensemble != FSPEC_ORTHOGONAL) return FSPEC_BAD_ARGUMENT;

    int orthogonal = ensemble == FSPEC_ORTHOGONAL;
    int atoms_only = orthogonal && (depth == 1.0 || q == 0.0);
    int marchenko = !orthogonal && depth == 1.0 && q > 0.0;
    fspec_law *law = fspec_law_new(atoms_only ? FSPEC_EQ_ATOMS
                                   : marchenko ? FSPEC_EQ_MARCHENKO : FSPEC_EQ_PLAIN);
    if (!law) return FSPEC_NO_MEMORY;
    law->depth = depth;
    law->slope_one = p;
    law->slope_zero = q;
    law->ensemble = ensemble;
    long double log_mean = depth * log_layer_mean(p, q, weight_variance);
    law->log_mean = (double)log_mean;

    double top_atom = orthogonal ? -fma(depth, q, -1.0) : 0.0;
    if (q > 0.0) fspec_law_add_atom(law, -INFINITY, q);
    if (top_atom > 0.0)
        fspec_law_add_atom(law, (double)(depth * logl((long double)weight_variance)), top_atom);
    law->continuous_mass = atoms_only ? 0.0 : top_atom > 0.0 ? (depth - 1.0) * q : 1.0 - q;

    int status = FSPEC_OK;
    if (marchenko)
        fspec_marchenko_init(law, weight_variance);
    else if (!atoms_only)
        status = set_chain(law, depth, p, q, log_mean, ensemble);
    return fspec_law_finish(law, status, out);
}
