/* Chains: from blocks to the normalised equation, its atoms, and the test of its branch. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fspec_chain.h"
#include "fspec_run.h"
#include "fspec_series.h"

/* ---- making ------------------------------------------------------------------------------- */

static int layer_is_bad(const fspec_layer *layer)
{
    return !layer->slopes || !(layer->weight_variance > 0) || !isfinite(layer->weight_variance) ||
           !(layer->width_out > 0) || !(layer->width_in > 0) || !(layer->slopes->mean > 0) ||
           (layer->ensemble != FSPEC_GAUSSIAN && layer->ensemble != FSPEC_ORTHOGONAL);
}

static int block_is_bad(const fspec_block *block)
{
    if (!(block->repeat > 0) || !isfinite(block->repeat)) return 1;
    if (block->log_s)
        return !isfinite(block->log_mean) || !(block->positive > 0 && block->positive <= 1);
    if (!(block->skip >= 0) || !isfinite(block->skip) || block->n_layers == 0) return 1;
    if (block->skip == 0 && block->n_layers != 1) return 1;
    for (size_t j = 0; j < block->n_layers; j++) {
        const fspec_layer *layer = &block->layers[j];
        if (layer_is_bad(layer)) return 1;
        if (block->skip > 0 && layer->width_in != layer->width_out) return 1;
    }
    return 0;
}

static void add_term(fspec_chain *c, double rho, double n)
{
    for (size_t i = 0; i < c->n_terms; i++) {
        if (fabs(c->terms[i].rho - rho) > 1e-14 * rho) continue;
        c->terms[i].n += n;
        return;
    }
    c->terms[c->n_terms++] = (fspec_chain_term){rho, n, 0.0};
}

/* Where the factor's products w d and w d^2 go: `pool` moves on. */
static void add_factor(fspec_chain *c, const fspec_layer *layer, double **pool)
{
    const fspec_slopes *s = layer->slopes;
    fspec_factor *f = &c->factors[c->n_factors++];
    double *wd = *pool, *wd2 = *pool + s->count;
    for (size_t k = 0; k < s->count; k++) {
        wd[k] = s->mass[k] * s->value[k];
        wd2[k] = wd[k] * s->value[k];
    }
    *pool += 2 * s->count;
    *f = (fspec_factor){s, s->value, s->mass, wd, wd2, log(layer->weight_variance),
                        layer->ensemble == FSPEC_GAUSSIAN};
}

/* D W with N_L / N_out = r: -log(S_D S_W mean) = T - log(1 + r m) + (log(1 + N_L m/N_in) if
 * Gaussian; if orthogonal and tall, that less another log(1 + r m)). */
static void add_plain(fspec_chain *c, const fspec_block *block, double width, double **pool)
{
    const fspec_layer *layer = block->layers;
    fspec_chain_block *b = &c->blocks[c->n_blocks++];
    double rho_out = width / layer->width_out, rho_in = width / layer->width_in;
    int gaussian = layer->ensemble == FSPEC_GAUSSIAN;
    int tall = !gaussian && layer->width_out > layer->width_in;
    memset(b, 0, sizeof *b);
    b->kind = FSPEC_PLAIN;
    b->n = block->repeat;
    b->r = rho_out;
    b->rho = rho_in;
    b->first_factor = c->n_factors;
    b->n_factors = 1;
    b->first = c->size++;
    add_factor(c, layer, pool);
    b->log_mean = log(layer->weight_variance) + log(layer->slopes->mean) +
                  (tall ? log(layer->width_in / layer->width_out) : 0.0);
    add_term(c, rho_out, tall ? -2.0 * b->n : -b->n);
    if (gaussian || tall) add_term(c, rho_in, b->n);
    b->widening = fmax(0.0, layer->width_out - layer->width_in) / width;
    /* where nothing is 0, a sum of masses short of 1 is rounding */
    double positive = layer->slopes->zero > 0.0 ? layer->slopes->positive : 1.0;
    double rank = fmin(layer->width_in, layer->width_out * positive) / width;
    if (rank < 1.0 - 1e-15) c->positive = fmin(c->positive, rank);
}

static void add_residual(fspec_chain *c, const fspec_block *block, double **pool)
{
    fspec_chain_block *b = &c->blocks[c->n_blocks++];
    memset(b, 0, sizeof *b);
    b->kind = FSPEC_RESIDUAL;
    b->n = block->repeat;
    b->skip2 = block->skip * block->skip;
    b->first_factor = c->n_factors;
    b->n_factors = block->n_layers;
    b->first = c->size;
    c->size += 4 + block->n_layers;
    double kappa = 1.0, variance = 1.0, gaussians = 0.0;
    for (size_t j = 0; j < block->n_layers; j++) {
        const fspec_layer *layer = &block->layers[j];
        add_factor(c, layer, pool);
        gaussians += layer->ensemble == FSPEC_GAUSSIAN;
        variance *= layer->weight_variance;
        kappa *= layer->weight_variance * layer->slopes->mean;
    }
    b->power = 1.0 + (double)block->n_layers - gaussians;
    b->scale = variance / b->skip2;
    b->log_norm = log1p(kappa / b->skip2);
    b->log_mean = log(b->skip2) + b->log_norm;
}

static void add_given(fspec_chain *c, const fspec_block *block)
{
    fspec_chain_block *b = &c->blocks[c->n_blocks++];
    memset(b, 0, sizeof *b);
    b->kind = FSPEC_GIVEN;
    b->n = block->repeat;
    b->log_mean = block->log_mean;
    b->log_s = block->log_s;
    b->data = block->data;
    c->given = 1;
    c->of_m_only |= block->of_m_only;
    c->positive = fmin(c->positive, block->positive);
}

/* Distances of every block's own hard end from the chain's, once `positive` is known. */
static void set_bounds(fspec_chain *c)
{
    for (size_t i = 0; i < c->n_blocks; i++) {
        fspec_chain_block *b = &c->blocks[i];
        if (b->kind != FSPEC_PLAIN) continue;
        b->bound = c->factors[b->first_factor].slopes->positive / b->r - c->positive;
        if (fabs(b->bound) < 1e-14) b->bound = 0.0; /* sums of masses that round */
    }
    size_t kept = 0;
    for (size_t i = 0; i < c->n_terms; i++) {
        fspec_chain_term t = c->terms[i];
        if (t.n == 0.0) continue;
        t.bound = 1.0 / t.rho - c->positive;
        if (fabs(t.bound) < 1e-14) t.bound = 0.0;
        c->terms[kept++] = t;
    }
    c->n_terms = kept;
}

/* ---- constructor -------------------------------------------------------------------------- */

static int allocate(fspec_chain *c, size_t n_blocks, const fspec_block *blocks)
{
    size_t layers = 0, doubles = 0;
    for (size_t i = 0; i < n_blocks; i++) {
        if (blocks[i].log_s) continue;
        layers += blocks[i].n_layers;
        for (size_t j = 0; j < blocks[i].n_layers; j++)
            doubles += 2 * blocks[i].layers[j].slopes->count;
    }
    c->blocks = calloc(n_blocks, sizeof *c->blocks);
    c->factors = calloc(layers + 1, sizeof *c->factors);
    c->terms = calloc(2 * n_blocks + 1, sizeof *c->terms);
    c->pool = calloc(doubles + 1, sizeof *c->pool);
    c->source = calloc(n_blocks, sizeof *c->source);
    c->source_layers = calloc(layers + 1, sizeof *c->source_layers);
    if (!c->blocks || !c->factors || !c->terms || !c->pool || !c->source || !c->source_layers)
        return FSPEC_NO_MEMORY;
    c->n_source = n_blocks;
    fspec_layer *next = c->source_layers;
    for (size_t i = 0; i < n_blocks; i++) {
        c->source[i] = blocks[i];
        if (blocks[i].log_s) continue;
        memcpy(next, blocks[i].layers, blocks[i].n_layers * sizeof *next);
        c->source[i].layers = next;
        next += blocks[i].n_layers;
    }
    return FSPEC_OK;
}

/* The width of the output, to which the law belongs. */
static double output_width(size_t n_blocks, const fspec_block *blocks)
{
    double width = 1.0;
    for (size_t i = 0; i < n_blocks; i++)
        if (!blocks[i].log_s) width = blocks[i].layers->width_out;
    return width;
}

int fspec_chain_new(size_t n_blocks, const fspec_block *blocks, double error, fspec_chain **out)
{
    *out = NULL;
    if (n_blocks == 0 || !(error >= 0)) return FSPEC_BAD_ARGUMENT;
    for (size_t i = 0; i < n_blocks; i++)
        if (block_is_bad(&blocks[i])) return FSPEC_BAD_ARGUMENT;
    double width = output_width(n_blocks, blocks);
    for (size_t i = 0; i < n_blocks; i++)
        if (!blocks[i].log_s && blocks[i].skip > 0 && blocks[i].layers->width_out != width)
            return FSPEC_BAD_ARGUMENT;
    fspec_chain *c = calloc(1, sizeof *c);
    if (!c) return FSPEC_NO_MEMORY;
    int status = allocate(c, n_blocks, blocks);
    c->size = 2;
    c->positive = 1.0;
    c->final_width = width;
    c->error = error;
    double *pool = c->pool;
    for (size_t i = 0; i < n_blocks && status == FSPEC_OK; i++) {
        if (blocks[i].log_s) add_given(c, &blocks[i]);
        else if (blocks[i].skip == 0) add_plain(c, &blocks[i], width, &pool);
        else add_residual(c, &blocks[i], &pool);
        c->log_mean += c->blocks[i].n * c->blocks[i].log_mean;
    }
    if (status == FSPEC_OK) {
        set_bounds(c);
        status = fspec_chain_find_atoms(c);
    }
    if (status != FSPEC_OK) {
        fspec_chain_free(c);
        return status;
    }
    *out = c;
    return FSPEC_OK;
}

void fspec_chain_free(fspec_chain *chain)
{
    if (!chain) return;
    for (size_t i = 0; i < chain->n_runs; i++) fspec_run_free(&chain->runs[i]);
    free(chain->runs);
    free(chain->free);
    free(chain->blocks);
    free(chain->factors);
    free(chain->terms);
    free(chain->atoms);
    free(chain->source);
    free(chain->source_layers);
    free(chain->pool);
    free(chain);
}

/* ---- states ------------------------------------------------------------------------------- */

void fspec_chain_start(const fspec_chain *c, double m, fspec_state *start)
{
    start[0] = m;
    start[1] = m + c->positive;
    for (size_t i = 0; i < c->n_blocks; i++) {
        const fspec_chain_block *b = &c->blocks[i];
        const fspec_factor *f = &c->factors[b->first_factor];
        fspec_state *x = &start[b->first];
        if (b->kind == FSPEC_PLAIN)
            x[0] = f->slopes->mean / (b->r * m) + f->slopes->second / f->slopes->mean;
        if (b->kind != FSPEC_RESIDUAL) continue;
        double norm = exp(b->log_norm), u = m * expm1(b->log_norm) / norm, t = m / norm;
        x[0] = u, x[1] = 1.0 + u, x[2] = t, x[3] = 1.0 + t;
        for (size_t j = 0; j < b->n_factors; j++)
            x[4 + j] = f[j].slopes->mean / u + f[j].slopes->second / f[j].slopes->mean;
    }
    for (size_t i = 0; i < c->n_runs; i++) fspec_run_start(&c->runs[i], m, start + c->runs[i].first);
}

void fspec_chain_reconcile(const fspec_chain *c, fspec_state *x)
{
    if (cabs(x[0]) < cabs(x[1])) x[1] = x[0] + c->positive;
    else x[0] = x[1] - c->positive;
    double complex one = x[1] + (1.0 - c->positive);
    for (size_t i = 0; i < c->n_blocks; i++) {
        const fspec_chain_block *b = &c->blocks[i];
        if (b->kind != FSPEC_RESIDUAL) continue;
        fspec_state *u = &x[b->first], *v = u + 1, *t = u + 2, *tau = u + 3;
        double small[4] = {cabs(*u), cabs(*v), cabs(*t), cabs(*tau)};
        int k = 0;
        for (int j = 1; j < 4; j++)
            if (small[j] < small[k]) k = j;
        if (k == 0) *v = 1.0 + *u, *t = x[0] - *u, *tau = one - *u;
        if (k == 1) *u = *v - 1.0, *t = one - *v, *tau = 1.0 + *t;
        if (k == 2) *tau = 1.0 + *t, *u = x[0] - *t, *v = one - *t;
        if (k == 3) *t = *tau - 1.0, *u = one - *tau, *v = 1.0 + *u;
    }
    for (size_t i = 0; i < c->n_runs; i++)
        fspec_run_reconcile(&c->runs[i], x[0], one, x + c->runs[i].first);
}

/* Im a >= 0 up to rounding. */
static int upper(double complex a) { return cimag(a) >= -1e-9 * cabs(a); }

/* a I + X inside its block: w = sqrt(omega) in the first quadrant, G = (1+m)/w; omega_a =
 * (1+t)/G and omega_X = (1+u)/G are subordinated, so in the upper half plane, and zeta lies in
 * the half plane of omega_X^2. */
static int check_residual(const fspec_chain_block *b, double complex one, const fspec_state *x)
{
    const fspec_state *u = &x[b->first];
    double complex omega = b->skip2 * one * one / (u[2] * u[3]);
    double complex w = csqrt(creal(omega) + I * fabs(cimag(omega)));
    double complex omega_x = u[1] * w / one, omega_a = u[3] * w / one;
    if (!upper(omega) || !upper(omega_a) || !upper(omega_x)) return 0;
    double side = creal(omega_x) < 0 ? -1.0 : 1.0;
    if (fabs(creal(omega_x)) < 1e-9 * cabs(omega_x)) return 1;
    for (size_t j = 0; j < b->n_factors; j++) {
        double complex zeta = u[4 + j];
        if (!upper(creal(zeta) + I * side * cimag(zeta))) return 0;
    }
    return 1;
}

/* omega = (1+m)/(m S). S may have lost digits near a hard end. */
static int check_given(const fspec_chain_block *b, double complex m, double complex one)
{
    double value[4], angle = carg(creal(one / m) + I * fabs(cimag(one / m)));
    fspec_given_value(b, creal(m), cimag(m), creal(one), value);
    angle += value[1];
    return angle > -1e-6 && angle < FSPEC_PI + 1e-6;
}

/* With runs, m is that of the chain and not of free blocks: instead of the blocks' own arguments
 * the runs' alpha and beta have known signs. */
static int check_runs(const fspec_chain *c, const fspec_state *x)
{
    for (size_t i = 0; i < c->n_runs; i++)
        if (!fspec_run_check(&c->runs[i], x + c->runs[i].first)) return 0;
    return 1;
}

int fspec_chain_check(const fspec_chain *c, const fspec_state *x)
{
    for (size_t i = 0; i < c->size; i++)
        if (!(cabs(x[i]) < 1e100 && cabs(x[i]) > 0)) return 0;
    double complex m = x[0], one = x[1] + (1.0 - c->positive);
    if (!upper(-m) || !upper(-x[1])) return 0;
    if (c->n_runs) return check_runs(c, x);
    for (size_t i = 0; i < c->n_blocks; i++) {
        const fspec_chain_block *b = &c->blocks[i];
        if (b->kind == FSPEC_PLAIN) {
            double complex zeta = x[b->first];
            int gaussian = c->factors[b->first_factor].gaussian;
            double complex inner = b->rho == 1.0 ? one : 1.0 + b->rho * m;
            if (!upper(zeta) || (gaussian && b->r == 1.0 && !upper(inner * zeta))) return 0;
        } else if (b->kind == FSPEC_RESIDUAL && !check_residual(b, one, x)) {
            return 0;
        } else if (b->kind == FSPEC_GIVEN && !check_given(b, m, one)) {
            return 0;
        }
    }
    return 1;
}

/* ---- moments -------------------------------------------------------------------------------- */

double fspec_chain_log_moment(const fspec_chain *c, unsigned k)
{
    if (k == 1) return c->log_mean;
    double *logs = malloc(k * sizeof *logs), value = NAN;
    int known = !c->given && (c->n_runs == 0 || k <= 3); /* three are those of free blocks */
    if (logs && known &&
        fspec_chain_log_moments(c->n_source, c->source, c->final_width, k, logs) == FSPEC_OK)
        value = logs[k - 1];
    free(logs);
    return value;
}

/* Var/mean^2 of D W: mu_2/mu_1^2 - 1 of the slopes, and N_out/N_in of Gaussian weights (of tall
 * orthogonal ones less 1). These add over layers. */
static double layer_variance(const fspec_layer *layer)
{
    double mu = layer->slopes->mean, v = layer->slopes->second / (mu * mu) - 1.0;
    double ratio = layer->width_out / layer->width_in;
    if (layer->ensemble == FSPEC_GAUSSIAN) return v + ratio;
    return ratio > 1.0 ? v + ratio - 1.0 : v;
}

/* a I + X, X X^T of mean kappa and variance kappa^2 v: mean a^2 + kappa, variance
 * 2 a^2 kappa + kappa^2 v (Ling & Qiu 2018, theorem 2). */
static double residual_variance(const fspec_block *block)
{
    double kappa = 1.0, v = 0.0, a2 = block->skip * block->skip;
    for (size_t j = 0; j < block->n_layers; j++) {
        kappa *= block->layers[j].weight_variance * block->layers[j].slopes->mean;
        v += layer_variance(&block->layers[j]);
    }
    return (2.0 * a2 * kappa + kappa * kappa * v) / ((a2 + kappa) * (a2 + kappa));
}

double fspec_chain_relative_variance(const fspec_chain *c)
{
    double sum = 0.0;
    for (size_t i = 0; i < c->n_source; i++) {
        const fspec_block *b = &c->source[i];
        if (b->log_s) {
            /* S'(0)/S(0) = -variance/mean^2 */
            double log_s[2], dlog_s[2];
            b->log_s(0.0, -1e-300, 1.0, log_s, dlog_s, b->data);
            sum -= b->repeat * dlog_s[0];
        } else if (b->skip > 0) {
            sum += b->repeat * residual_variance(b);
        } else {
            sum += b->repeat * layer_variance(b->layers) * c->final_width / b->layers->width_out;
        }
    }
    return sum;
}
