/* Moments of a chain: log S of every block as a power series in m, and Lagrange inversion.
 *
 * With z = (1+m)/(m S(m)), E lambda^k = (1/k) [w^(k-1)] ((1+w)/S(w))^k. Each S is taken relative to
 * its value at 0, the inverse mean, and its logarithm is kept: the blocks' logarithms add, nothing
 * overflows, and blocks near the identity keep their relative accuracy, since every series below
 * is written in quantities that vanish with the block's variance. A series a_0 + a_1 x + ... up to
 * order n is an array of n + 1 numbers. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fspec_series.h"
#include "fspec_slopes.h"

typedef long double real;

/* A moment is NaN where the bound on its rounding, with every term made positive, exceeds this. It
 * is pessimistic: against 120 digits, the error of moments at the limit was below 2e-12. */
#define TOLERANCE 1e-7L

static void product(size_t n, const real *a, const real *b, real *out)
{
    for (size_t k = n + 1; k-- > 0;) {
        real sum = 0;
        for (size_t j = 0; j <= k; j++) sum += a[j] * b[k - j];
        out[k] = sum;
    }
}

/* 1/a, a_0 = 1 */
static void inverse(size_t n, const real *a, real *out)
{
    out[0] = 1;
    for (size_t k = 1; k <= n; k++) {
        real sum = 0;
        for (size_t j = 1; j <= k; j++) sum += a[j] * out[k - j];
        out[k] = -sum;
    }
}

/* out += sign log a, a_0 = 1: k l_k = k a_k - sum j l_j a_(k-j). work: n + 1 */
static void add_log(size_t n, const real *a, real sign, real *out, real *work)
{
    for (size_t k = 1; k <= n; k++) {
        real sum = 0;
        for (size_t j = 1; j < k; j++) sum += (real)j * work[j] * a[k - j];
        work[k] = a[k] - sum / (real)k;
        out[k] += sign * work[k];
    }
}

/* The k-th coefficient of exp(a), a_0 = 0, from the lower ones. */
static real exp_coefficient(size_t k, const real *a, const real *exp_a)
{
    real sum = 0;
    for (size_t j = 1; j <= k; j++) sum += (real)j * a[j] * exp_a[k - j];
    return k ? sum / (real)k : 1;
}

/* out += factor log(1 + c x) */
static void add_log_linear(size_t n, real c, real factor, real *out)
{
    real power = factor;
    for (size_t k = 1; k <= n; k++) {
        power *= k == 1 ? c : -c;
        out[k] += power / (real)k;
    }
}

/* Central moments E (d/E d - 1)^j, j = 0 .. n, of a slope law; E d is returned. */
static real central_moments(const fspec_slopes *slopes, size_t n, real *central)
{
    real total = slopes->zero, mean = 0;
    for (size_t i = 0; i < slopes->count; i++) {
        total += slopes->mass[i];
        mean += (real)slopes->mass[i] * slopes->value[i];
    }
    mean /= total;
    for (size_t j = 0; j <= n; j++) central[j] = (j % 2 ? -1 : 1) * slopes->zero / total;
    for (size_t i = 0; i < slopes->count; i++) {
        real deviation = (slopes->value[i] - mean) / mean, term = slopes->mass[i] / total;
        for (size_t j = 0; j <= n; j++, term *= deviation) central[j] += term;
    }
    central[0] = 1;
    if (n) central[1] = 0;
    return mean;
}

/* out += log S of a slope law of mean 1; returns the logarithm of its mean.
 * With d = 1 + delta and zeta = (1+x)/x: 1 + m = (1+x) B(x), B = E 1/(1 - x delta), hence
 * m = x A(x), A = B + (B - 1)/x, and S = (1+m)/(m zeta) = B/A. As a series in m by Lagrange:
 * [m^k] F(x(m)) = (1/k) [x^(k-1)] F'(x) A(x)^(-k), F = log B - log A. work: 5 (n + 2) */
static real add_slopes(const fspec_slopes *slopes, size_t n, real *out, real *work)
{
    real *b = work, *a = b + n + 2, *f = a + n + 2, *power = f + n + 2, *spare = power + n + 2;
    real mean = central_moments(slopes, n + 1, b);
    a[0] = 1;
    for (size_t k = 1; k <= n; k++) a[k] = b[k] + b[k + 1];
    memset(f, 0, (n + 1) * sizeof *f);
    add_log(n, b, 1, f, spare);
    add_log(n, a, -1, f, spare);
    inverse(n, a, spare);
    memcpy(power, spare, (n + 1) * sizeof *power);
    for (size_t k = 1; k <= n; k++) {
        real sum = 0;
        for (size_t j = 1; j <= k; j++) sum += (real)j * f[j] * power[k - j];
        out[k] += sum / (real)k;
        product(n, power, spare, power);
    }
    return logl(mean);
}

/* out += log S of D W, over its mean, in the layer's own m; returns the logarithm of its mean.
 * Gaussian S_W = 1/(sigma^2 (1 + c m)), c = N_out/N_in; orthogonal 1/sigma^2, or with c > 1
 * c (1+m)/(sigma^2 (1 + c m)). */
static real add_layer(const fspec_layer *layer, size_t n, real *out, real *work)
{
    real shape = (real)layer->width_out / layer->width_in;
    real log_mean = logl(layer->weight_variance) + add_slopes(layer->slopes, n, out, work);
    if (layer->ensemble == FSPEC_ORTHOGONAL && !(shape > 1)) return log_mean;
    add_log_linear(n, shape, -1, out);
    if (layer->ensemble == FSPEC_GAUSSIAN) return log_mean;
    add_log_linear(n, 1, 1, out);
    return log_mean - logl(shape);
}

/* The branch's part of a residual block, order by order:
 *     u = beta m (1+m)/D,  D = alpha e^h + beta (1 + 2m - u),  h = log(1+u) + log S_X(u),
 * which is x = u(1+u) S_X(u), a^2 x = t(1+t), m = u + t (Tarnowski et al. 2018, eq. 19) with
 * alpha = a^2/(a^2 + kappa), beta = 1 - alpha and S_X over its value 1/kappa at 0.
 * out: u, q = u/(beta m) and h; log_s: log S_X. work: (n + 1) (n + 3) */
static void solve_branch(size_t n, const real *log_s, real alpha, real beta, real *u, real *q,
                         real *h, real *work)
{
    real *d = work, *exp_h = d + n + 1, *powers = exp_h + n + 1; /* row j: u^j */
    memset(powers, 0, (n + 1) * (n + 1) * sizeof *powers);
    u[0] = h[0] = 0;
    q[0] = d[0] = exp_h[0] = 1;
    for (size_t i = 1; i <= n; i++) {
        u[i] = powers[n + 1 + i] = beta * q[i - 1];
        h[i] = 0;
        for (size_t j = 1; j <= i; j++) {
            real *power = powers + j * (n + 1), *lower = power - (n + 1);
            for (size_t k = 1; j > 1 && k + j <= i + 1; k++) power[i] += u[k] * lower[i - k];
            h[i] += (log_s[j] + (j % 2 ? 1.0L : -1.0L) / (real)j) * power[i];
        }
        exp_h[i] = exp_coefficient(i, h, exp_h);
        d[i] = alpha * exp_h[i] + beta * ((i == 1 ? 2 : 0) - u[i]);
        q[i] = i == 1 ? 1 : 0;
        for (size_t j = 1; j <= i; j++) q[i] -= d[j] * q[i - j];
    }
}

/* log S of skip I + X over its mean, in place of that of X, whose mean is exp(log_kappa); returns
 * the logarithm of the mean a^2 + kappa. S = x/(m (1+m)) is taken from the skip,
 * (1 - u/m)(1 - u/(1+m))/a^2, where the branch is small, else from the branch. */
static real skip_block(size_t n, real skip, real log_kappa, real *log_s, real *work)
{
    real *u = work, *q = u + n + 1, *h = q + n + 1, *spare = h + n + 1, *more = spare + n + 1;
    real log_square = 2 * logl(fabsl(skip)), ratio = expl(log_kappa - log_square);
    real alpha = 1 / (1 + ratio), beta = isinf(ratio) ? 1 : ratio / (1 + ratio);
    solve_branch(n, log_s, alpha, beta, u, q, h, more);
    if (beta >= 0.5L) {
        memcpy(log_s, h, (n + 1) * sizeof *h);
        add_log(n, q, 1, log_s, spare);
        add_log_linear(n, 1, -1, log_s);
        return log_kappa + log1pl(1 / ratio);
    }
    memset(log_s, 0, (n + 1) * sizeof *log_s);
    for (size_t k = 1; k <= n; k++) {
        q[k] *= -beta / alpha;
        h[k] = -u[k] - (k > 1 ? h[k - 1] : 0); /* -u/(1+m) */
    }
    h[0] = 1;
    add_log(n, q, 1, log_s, spare);
    add_log(n, h, 1, log_s, spare);
    return log_square + log1pl(ratio);
}

static int acceptable(const fspec_block *block)
{
    if (block->log_s || block->n_layers == 0) return 0;
    if (block->skip == 0.0 && block->n_layers > 1) return 0;
    for (size_t i = 0; i < block->n_layers; i++)
        if (!isfinite(block->layers[i].slopes->second)) return 0;
    return 1;
}

/* total += the block's log S over its mean, in the m of the whole chain; returns the logarithm of
 * its mean. In the block's own m_b = (N_L/N_b) m the series does not depend on the chain.
 * work: (n + 1) (n + 8) + 5 (n + 2) is enough */
static real add_block(const fspec_block *block, double final_width, size_t n, real *total,
                      real *work)
{
    real *log_s = work, *more = work + n + 1, log_mean = 0;
    memset(log_s, 0, (n + 1) * sizeof *log_s);
    for (size_t i = 0; i < block->n_layers; i++)
        log_mean += add_layer(&block->layers[i], n, log_s, more);
    if (block->skip != 0.0) log_mean = skip_block(n, block->skip, log_mean, log_s, more);
    real ratio = (real)final_width / block->layers[0].width_out, factor = block->repeat;
    for (size_t k = 1; k <= n; k++) {
        factor *= ratio;
        total[k] += factor * log_s[k];
    }
    return block->repeat * log_mean;
}

/* q = (1+w)/S(w) in w = scale x, at the scale where no coefficient of log S exceeds 1, and in
 * bound the same with every term made positive: what rounding is relative to. Returns the scale.
 * work: 4 (n + 1) */
static real quotient(size_t n, const real *log_s, real *q, real *bound, real *work)
{
    real *a = work, *exp_a = a + n + 1, *b = exp_a + n + 1, *exp_b = b + n + 1, scale = 1;
    for (size_t k = 1; k <= n; k++)
        if (log_s[k] != 0) scale = fminl(scale, powl(fabsl(log_s[k]), -1.0L / (real)k));
    for (size_t k = 0; k <= n; k++) {
        a[k] = k ? -log_s[k] * powl(scale, (real)k) : 0;
        b[k] = fabsl(a[k]);
        exp_a[k] = exp_coefficient(k, a, exp_a);
        exp_b[k] = exp_coefficient(k, b, exp_b);
        q[k] = exp_a[k] + (k ? scale * exp_a[k - 1] : 0);
        bound[k] = exp_b[k] + (k ? scale * exp_b[k - 1] : 0);
    }
    return scale;
}

/* [x^(k-1)] q^k by Miller's recurrence, n c_n = sum_j (j (k+1) - n) q_j c_(n-j), whose factors are
 * positive for n < k. work: k */
static real power_coefficient(size_t k, const real *q, real *work)
{
    work[0] = 1;
    for (size_t n = 1; n < k; n++) {
        real sum = 0;
        for (size_t j = 1; j <= n; j++) sum += (real)(j * (k + 1) - n) * q[j] * work[n - j];
        work[n] = sum / (real)n;
    }
    return work[k - 1];
}

int fspec_chain_log_moments(size_t n_blocks, const fspec_block *blocks, double final_width,
                            unsigned order, double *log_moments)
{
    if (n_blocks == 0 || order == 0) return FSPEC_BAD_ARGUMENT;
    for (size_t i = 0; i < n_blocks; i++)
        if (!acceptable(&blocks[i])) return FSPEC_BAD_ARGUMENT;
    size_t n = order - 1;
    real *log_s = calloc((n + 1) * (n + 12) + 5 * (n + 2), sizeof *log_s), log_mean = 0;
    if (!log_s) return FSPEC_NO_MEMORY;
    real *q = log_s + n + 1, *bound = q + n + 1, *work = bound + n + 1;
    for (size_t i = 0; i < n_blocks; i++)
        log_mean += add_block(&blocks[i], final_width, n, log_s, work);
    real scale = quotient(n, log_s, q, bound, work);
    int status = FSPEC_OK;
    for (size_t k = 1; k <= order; k++) {
        real sum = power_coefficient(k, q, work);
        real error = (real)k * LDBL_EPSILON * power_coefficient(k, bound, work);
        log_moments[k - 1] =
            (double)(k * log_mean + logl(sum / k) - (real)(k - 1) * logl(scale));
        if (error <= TOLERANCE * sum && isfinite(log_moments[k - 1])) continue;
        log_moments[k - 1] = NAN;
        status = FSPEC_NOT_CONVERGED;
    }
    free(log_s);
    return status;
}
