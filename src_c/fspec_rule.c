/* Complex Gauss rules: Lanczos for the three-term recurrence, Aberth's iteration for its roots. */
#include <math.h>

#include "fspec_rule.h"

enum { MOST = FSPEC_RULE_NODES, ITERATIONS = 60 };

/* An off-diagonal entry below it, nodes being of size one: the sum has no further nodes. */
static const double spent = 1e-10;

typedef struct {
    size_t n;
    double complex a[MOST], b2[MOST]; /* p_(k+1) = (x - a_k) p_k - b2_k p_(k-1), b2_0 = 0 */
    int real;
} recurrence;

static double norm2(double complex a) { return creal(a) * creal(a) + cimag(a) * cimag(a); }

/* sum w u v */
static double complex dot(size_t n, const double complex *w, const double complex *u,
                          const double complex *v)
{
    double complex sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += w[i] * u[i] * v[i];
    return sum;
}

/* Centre and size of the nodes: the rule is made of (node - centre)/size. */
static double centre_and_size(size_t count, const double complex *node,
                              const double complex *weight, double complex *centre)
{
    double complex mean = 0.0;
    double size = 0.0;
    for (size_t i = 0; i < count; i++) mean += weight[i] * node[i];
    for (size_t i = 0; i < count; i++)
        size += sqrt(norm2(weight[i])) * norm2(node[i] - mean);
    *centre = mean;
    return sqrt(size);
}

/* Monic orthogonal polynomials p_k at the nodes y, one row of q after the other, orthogonalised
 * twice against all before. */
static void lanczos(size_t count, const double complex *y, const double complex *w,
                    double complex *q, size_t most, recurrence *r)
{
    double complex h[MOST + 1];
    for (size_t i = 0; i < count; i++) q[i] = 1.0;
    h[0] = dot(count, w, q, q);
    for (size_t k = 0; k < most; k++) {
        double complex *v = q + k * count, *next = v + count;
        for (size_t i = 0; i < count; i++) next[i] = y[i] * v[i];
        r->a[k] = dot(count, w, v, next) / h[k];
        r->n = k + 1;
        if (k + 1 == most) return;
        for (int again = 0; again < 2; again++)
            for (size_t j = k + 1; j-- > 0;) {
                const double complex *u = q + j * count;
                double complex share = dot(count, w, u, next) / h[j];
                for (size_t i = 0; i < count; i++) next[i] -= share * u[i];
            }
        h[k + 1] = dot(count, w, next, next);
        r->b2[k + 1] = h[k + 1] / h[k];
        if (!(norm2(r->b2[k + 1]) > spent * spent * spent * spent)) return;
    }
}

/* p_n(x)/p_n'(x) */
static double complex newton_ratio(const recurrence *r, double complex x)
{
    double complex p0 = 0.0, p1 = 1.0, d0 = 0.0, d1 = 0.0;
    for (size_t k = 0; k < r->n; k++) {
        double complex p2 = (x - r->a[k]) * p1 - r->b2[k] * p0;
        double complex d2 = p1 + (x - r->a[k]) * d1 - r->b2[k] * d0;
        p0 = p1, p1 = p2, d0 = d1, d1 = d2;
    }
    return p1 / d1;
}

/* Roots of x^2 - (a_0 + a_1) x + a_0 a_1 - b2, the smaller correction without cancellation. */
static void two_roots(const recurrence *r, double complex *x)
{
    double complex half = 0.5 * (r->a[0] - r->a[1]), root = csqrt(half * half + r->b2[1]);
    if (creal(root * conj(half)) < 0.0) root = -root;
    double complex shift = half + root;
    double complex other = cabs(shift) > 0.0 ? r->b2[1] / shift : 0.0;
    x[0] = r->a[1] + shift;
    x[1] = r->a[1] - other;
}

/* Points on a circle about the roots. */
static void round_about(const recurrence *r, double complex *x)
{
    double complex centre = 0.0;
    double radius = 0.0;
    for (size_t k = 0; k < r->n; k++) centre += r->a[k] / (double)r->n;
    for (size_t k = 0; k < r->n; k++)
        radius = fmax(radius, sqrt(norm2(r->a[k] - centre)) + sqrt(sqrt(norm2(r->b2[k]))));
    for (size_t k = 0; k < r->n; k++)
        x[k] = centre + radius * cexp(I * (6.28318530717958648 * (double)k / (double)r->n + 0.4));
}

/* All roots at once from x (Aberth 1973). */
static int aberth(const recurrence *r, double complex *x)
{
    double largest = INFINITY;
    for (int it = 0; it < ITERATIONS && !(largest < 1e-30); it++) {
        largest = 0.0;
        for (size_t i = 0; i < r->n; i++) {
            double complex ratio = newton_ratio(r, x[i]), others = 0.0;
            for (size_t j = 0; j < r->n; j++)
                if (j != i) others += 1.0 / (x[i] - x[j]);
            double complex step = ratio / (1.0 - ratio * others);
            if (!(norm2(step) <= 1e12)) return 0;
            x[i] -= step;
            largest = fmax(largest, norm2(step));
        }
    }
    return largest < 1e-16; /* a near-double root is known to that */
}

/* 1/sum_k p_k(x)^2, p_k orthonormal */
static double complex christoffel(const recurrence *r, double complex x)
{
    double complex p0 = 0.0, p1 = 1.0, norm = 1.0, sum = 1.0;
    for (size_t k = 0; k + 1 < r->n; k++) {
        double complex p2 = (x - r->a[k]) * p1 - r->b2[k] * p0;
        p0 = p1, p1 = p2;
        norm *= r->b2[k + 1];
        sum += p2 * p2 / norm;
    }
    return 1.0 / sum;
}

/* Positive weights of real nodes. */
static int is_real(size_t count, const double complex *node, const double complex *weight)
{
    for (size_t i = 0; i < count; i++)
        if (cimag(node[i]) != 0.0 || cimag(weight[i]) != 0.0 || creal(weight[i]) < 0.0) return 0;
    return 1;
}

static int roots(recurrence *r, size_t guessed, const double complex *guess, double complex *x)
{
    if (r->n == 1) x[0] = r->a[0];
    if (r->n == 2) two_roots(r, x);
    if (r->n <= 2) return 1;
    if (guessed == r->n) {
        for (size_t k = 0; k < r->n; k++) x[k] = guess[k];
        if (aberth(r, x)) return 1;
    }
    round_about(r, x);
    return aberth(r, x);
}

void fspec_rule_compress(size_t count, const double complex *node, const double complex *weight,
                         size_t most, double complex *scratch, fspec_rule *rule)
{
    double complex centre, *y = scratch, *q = scratch + count, x[MOST];
    if (count <= most) {
        for (size_t i = 0; i < count; i++) rule->x[i] = node[i], rule->w[i] = weight[i];
        rule->n = count;
        return;
    }
    double size = centre_and_size(count, node, weight, &centre);
    if (most == 1 || !(size > 0.0)) {
        rule->x[0] = centre;
        rule->w[0] = 1.0;
        rule->n = isfinite(size);
        return;
    }
    for (size_t i = 0; i < count; i++) y[i] = (node[i] - centre) / size;
    recurrence r = {0, {0}, {0}, is_real(count, node, weight)};
    lanczos(count, y, weight, q, most, &r);
    rule->n = roots(&r, rule->guessed, rule->guess, x) ? r.n : 0;
    for (size_t k = 0; k < rule->n; k++) {
        rule->guess[k] = x[k];
        /* real weights have real rules: what is left of imaginary parts is rounding */
        if (r.real) x[k] = creal(x[k]);
        rule->w[k] = christoffel(&r, x[k]);
        rule->x[k] = centre + size * x[k];
    }
    rule->guessed = rule->n;
}
