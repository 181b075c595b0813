/* Handles: making, freeing, and what is known without solving. */
#include "fspec_law.h"
#include "fspec_table.h"

#include <math.h>
#include <stdlib.h>

fspec_law *fspec_law_new(enum fspec_equation equation)
{
    fspec_law *law = calloc(1, sizeof *law);
    if (!law) return NULL;
    law->equation = equation;
    law->guess_length = 1.0;
    law->gap_max = INFINITY;
    law->continuous_mass = 1.0;
    law->slope_one = 1.0;
    law->bottom.log = -INFINITY;
    return law;
}

void fspec_law_free(fspec_law *law)
{
    if (!law) return;
    fspec_table_free(law->table);
    free(law->nodes);
    free(law->index);
    free(law);
}

/* Hands a law over, or frees it when its making failed. */
int fspec_law_finish(fspec_law *law, int status, fspec_law **out)
{
    if (status == FSPEC_OK) {
        *out = law;
    } else {
        fspec_law_free(law);
    }
    return status;
}

/* Long double carries the digits below a double's where the platform has them; where it has
 * not, points within a few 1e-16 of an edge are only as good as a double edge. */
void fspec_law_set_edge(fspec_edge *edge, long double log_lambda)
{
    const long double ln2 = 0.693147180559945309417232121458176568L;
    long double k = rintl(log_lambda / ln2);
    long double m = expl(log_lambda - k * ln2);
    const double sqrt_half = 0.70710678118654757;
    if ((double)m < sqrt_half) {
        m *= 2;
        k -= 1;
    } else if ((double)m >= 2 * sqrt_half) {
        m /= 2;
        k += 1;
    }
    edge->mantissa = (double)m;
    edge->mantissa_lo = (double)(m - (long double)edge->mantissa);
    edge->exponent = (double)k;
    edge->log = (double)log_lambda;
    edge->log_lo = (double)(log_lambda - (long double)edge->log);
}

double fspec_edge_lambda(const fspec_edge *edge)
{
    if (edge->log == -INFINITY) return 0.0;
    return ldexp(edge->mantissa, (int)edge->exponent);
}

void fspec_law_add_atom(fspec_law *law, double log_location, double mass)
{
    law->atoms[law->n_atoms++] = (fspec_atom){log_location, exp(log_location), mass};
}

/* The hull of a chain's intervals. */
static int chain_support(const fspec_law *law, int variable, double *low, double *high)
{
    double unused;
    int count = fspec_law_interval_count(law);
    if (count == 0) return 0;
    fspec_law_interval(law, 0, variable, low, &unused);
    fspec_law_interval(law, count - 1, variable, &unused, high);
    return 1;
}

int fspec_law_log_support(const fspec_law *law, double *low, double *high)
{
    if (law->table) return chain_support(law, FSPEC_LOG_LAMBDA, low, high);
    if (law->equation == FSPEC_EQ_ATOMS) return 0;
    *low = law->bottom.log;
    *high = law->top.log;
    return 1;
}

int fspec_law_support(const fspec_law *law, double *low, double *high)
{
    if (law->table) return chain_support(law, FSPEC_LAMBDA, low, high);
    if (law->equation == FSPEC_EQ_ATOMS) return 0;
    *low = fspec_edge_lambda(&law->bottom);
    *high = fspec_edge_lambda(&law->top);
    return 1;
}

int fspec_law_atom_count(const fspec_law *law)
{
    return law->table ? fspec_table_atom_count(law->table) : law->n_atoms;
}

void fspec_law_atom(const fspec_law *law, int i, double *location, double *log_location,
                    double *mass)
{
    fspec_atom atom = law->table ? fspec_table_atom(law->table, i) : law->atoms[i];
    *location = atom.location;
    *log_location = atom.log_location;
    *mass = atom.mass;
}

double fspec_law_continuous_mass(const fspec_law *law) { return law->continuous_mass; }

double fspec_law_relative_variance(const fspec_law *law)
{
    if (law->table) return fspec_chain_relative_variance(law->table->chain);
    if (law->equation == FSPEC_EQ_RESNET) return law->alpha;
    if (law->equation == FSPEC_EQ_BERNOULLI) return law->kappa;
    double layer = law->slope_zero / law->slope_one;
    return law->depth * (law->ensemble == FSPEC_GAUSSIAN ? layer + 1.0 : layer);
}

double fspec_law_hard_exponent(const fspec_law *law)
{
    if (law->table) return law->table->hard_exponent;
    if (law->equation == FSPEC_EQ_PLAIN) return law->n;
    return law->equation == FSPEC_EQ_BERNOULLI ? INFINITY : 0.0;
}
