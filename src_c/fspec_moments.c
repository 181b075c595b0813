/* Moments by Lagrange inversion: with z = phi(t)/t and m = m(t),
 *     E lambda^k = (1/k) [t^(k-1)] m'(t) phi(t)^k.
 * For every law here the coefficient is a sum of k positive terms with a simple ratio, so that
 * nothing cancels at any order. */
#include <math.h>

#include "fspec_law.h"
#include "fspec_table.h"

/* term(i+1)/term(i) of the sum; term(0) = k in every case. */
static double term_ratio(const fspec_law *law, double k, double i)
{
    if (law->equation == FSPEC_EQ_RESNET) /* C(k, k-1-i) (k alpha)^i/i! */
        return (k - 1 - i) / (i + 2) * (k * law->alpha) / (i + 1);
    if (law->equation == FSPEC_EQ_BERNOULLI) /* (k-i) (k v)^i/i! */
        return (k - i - 1) / (k - i) * (k * law->kappa) / (i + 1);
    double choose = (k * law->depth - i) / (i + 1);
    if (law->ensemble == FSPEC_ORTHOGONAL) /* (k-i) C(Lk, i) (q/p)^i */
        return (k - i - 1) / (k - i) * choose * (law->slope_zero / law->slope_one);
    /* C(k, k-1-i) C(Lk, i) p^-i */
    return (k - 1 - i) / (i + 2) * choose / law->slope_one;
}

/* The sum divided by k as a double times 2^exponent. */
static double series(const fspec_law *law, unsigned k, double *exponent)
{
    const double large = 1.157920892373162e77; /* 2^256 */
    double term = 1.0, sum = 1.0;
    *exponent = 0.0;
    for (unsigned i = 0; i + 1 < k; i++) {
        term *= term_ratio(law, k, i);
        sum += term;
        if (sum > large) {
            sum /= large;
            term /= large;
            *exponent += 256.0;
        }
    }
    return sum;
}

double fspec_law_log_moment(const fspec_law *law, unsigned k)
{
    if (k == 0) return 0.0;
    if (law->table) return fspec_chain_log_moment(law->table->chain, k);
    double exponent, sum = series(law, k, &exponent);
    return log(sum) + exponent * 0.693147180559945309417 + k * law->log_mean;
}

double fspec_law_moment(const fspec_law *law, unsigned k)
{
    if (k == 0) return 1.0;
    if (law->table) return exp(fspec_chain_log_moment(law->table->chain, k));
    double exponent, sum = series(law, k, &exponent);
    long double log_power = (long double)k * law->log_mean + exponent * 0.693147180559945309417L;
    return (double)(sum * expl(log_power));
}
