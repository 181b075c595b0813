/* Chains by the public header: closed laws, the slow twin, gaps, atoms, all levels, memory. */
#include <math.h>
#include <stddef.h>

#include "check.h"
#include "fspec_law.h"

#define PI 3.14159265358979323846

static fspec_slopes *two_slopes(double low, double high, double share)
{
    double values[2] = {low, high}, chances[2] = {1.0 - share, share};
    fspec_slopes *slopes = NULL;
    CHECK(fspec_slopes_discrete(2, values, chances, &slopes) == FSPEC_OK, "slopes");
    return slopes;
}

static fspec_law *one_block(const fspec_slopes *slopes, double variance, int ensemble, double skip,
                            double repeat)
{
    fspec_layer layer = {slopes, variance, ensemble, 1.0, 1.0};
    fspec_block block = {.n_layers = 1, .layers = &layer, .skip = skip, .repeat = repeat};
    fspec_law *law = NULL;
    int status = fspec_law_chain(1, &block, 0.0, &law);
    CHECK(status == FSPEC_OK, "%s", fspec_status_message(status));
    CHECK(law && fspec_law_mass_error(law) < 1e-12, "mass off by %g", fspec_law_mass_error(law));
    return law;
}

/* Plain 0/1 chains against their closed form. */
static void test_against_closed_form(void)
{
    const double p = 0.625, depths[] = {1, 3, 10, 200};
    fspec_slopes *slopes = two_slopes(0.0, 1.0, p);
    for (int k = 0; k < 8; k++) {
        double depth = depths[k / 2], x[4], closed[4], chain[4];
        int ensemble = k % 2;
        if (depth == 1 && ensemble == FSPEC_ORTHOGONAL) continue; /* atoms only */
        fspec_law *exact = NULL, *law = one_block(slopes, 1.5, ensemble, 0.0, depth);
        CHECK(fspec_law_plain_chain(depth, p, 1 - p, 1.5, ensemble, &exact) == FSPEC_OK, "closed");
        const double shares[4] = {1 - p + 0.02, 1 - p + 0.2, 0.8, 0.99};
        CHECK(fspec_law_quantile(exact, 4, shares, FSPEC_LOG_LAMBDA, x) == 0, "quantiles");
        fspec_law_density(exact, 4, x, FSPEC_LOG_LAMBDA, closed);
        CHECK(fspec_law_density(law, 4, x, FSPEC_LOG_LAMBDA, chain) == 0, "density");
        for (int i = 0; i < 4; i++)
            CHECK(fabs(chain[i] / closed[i] - 1) < 1e-12, "depth %g ensemble %d at %g: %g", depth,
                  ensemble, x[i], chain[i] / closed[i] - 1);
        CHECK(fspec_law_atom_count(law) == fspec_law_atom_count(exact), "atoms");
        double moment = fspec_law_log_moment(law, 5) - fspec_law_log_moment(exact, 5);
        CHECK(fabs(moment) < 1e-11, "fifth moment off by %g", moment);
        fspec_law_free(exact);
        fspec_law_free(law);
    }
    fspec_slopes_free(slopes);
}

/* One relu block: half of the coordinates pass unchanged, so there is an inverse root at 1, and a
 * real gap above it. */
static void test_gap(void)
{
    fspec_slopes *slopes = two_slopes(0.0, 1.0, 0.5);
    fspec_law *law = one_block(slopes, 0.5, FSPEC_GAUSSIAN, 1.0, 1.0);
    double low[2], high[2], x[3], rho[3], re[3], im[3];
    int status[3];
    CHECK(fspec_law_interval_count(law) == 2, "%d intervals", fspec_law_interval_count(law));
    for (int i = 0; i < 2; i++) fspec_law_interval(law, i, FSPEC_LAMBDA, &low[i], &high[i]);
    CHECK(high[0] == 1.0 && low[1] > 1.0, "%.17g %.17g", high[0], low[1]);
    x[0] = 1.0, x[1] = 0.5 * (1.0 + low[1]), x[2] = NAN;
    fspec_law_density(law, 3, x, FSPEC_LAMBDA, rho);
    CHECK(rho[0] == INFINITY && rho[1] == 0.0 && isnan(rho[2]), "%g %g", rho[0], rho[1]);
    fspec_law_solve(law, 3, x, FSPEC_LAMBDA, re, im, rho, status, NULL, NULL);
    CHECK(status[0] == FSPEC_SINGULAR && status[1] == FSPEC_OK && im[1] == 0.0, "%g", im[1]);
    CHECK(status[2] == FSPEC_BAD_POINT, "%d", status[2]);
    fspec_law_free(law);
    fspec_slopes_free(slopes);
}

/* Twenty relu blocks, against 25 digits of the residual equation. */
static void test_residual_density(void)
{
    fspec_slopes *slopes = two_slopes(0.0, 1.0, 0.5);
    for (int ensemble = 0; ensemble < 2; ensemble++) {
        const double x[2] = {0.119378, 0.185879};
        const double exact[2] = {0.34386620328095266, 0.95078992609191477};
        fspec_law *law = one_block(slopes, 0.05, ensemble, 1.0, 20.0);
        double rho;
        fspec_law_density(law, 1, &x[ensemble], FSPEC_LAMBDA, &rho);
        CHECK(fabs(rho / exact[ensemble] - 1) < 1e-12, "%d: %.17g", ensemble, rho);
        fspec_law_free(law);
    }
    fspec_slopes_free(slopes);
}

/* A chain of every kind of block: Newton, table and walk agree on every level; G off the axis. */
static void test_routes(void)
{
    fspec_slopes *relu = two_slopes(0.0, 1.0, 0.5), *leaky = two_slopes(0.09, 1.0, 0.4);
    fspec_layer layers[4] = {{relu, 1.2, FSPEC_GAUSSIAN, 1, 1},
                             {leaky, 0.6, FSPEC_ORTHOGONAL, 1, 1},
                             {leaky, 1.1, FSPEC_GAUSSIAN, 1, 1},
                             {leaky, 0.8, FSPEC_ORTHOGONAL, 1, 1}};
    fspec_block blocks[3] = {{.n_layers = 2, .layers = layers, .skip = 0.7, .repeat = 3},
                             {.n_layers = 1, .layers = layers + 2, .skip = 1.1, .repeat = 1.5},
                             {.n_layers = 1, .layers = layers + 3, .repeat = 2}};
    fspec_law *law = NULL;
    CHECK(fspec_law_chain(3, blocks, 0.0, &law) == FSPEC_OK, "chain");
    enum { N = 37 };
    double p[N], x[N], table[N], newton[N], slow[N], bound[N], part[N];
    for (int i = 0; i < N; i++) p[i] = (i + 0.5) / N;
    CHECK(fspec_law_quantile(law, N, p, FSPEC_LAMBDA, x) == 0, "quantiles");
    CHECK(fspec_law_density(law, N, x, FSPEC_LAMBDA, table) == 0, "table");
    CHECK(fspec_law_solve(law, N, x, FSPEC_LAMBDA, NULL, NULL, newton, NULL, NULL, bound) == 0,
          "newton");
    CHECK(fspec_law_walk(law, N, x, FSPEC_LAMBDA, NULL, NULL, slow, NULL) == 0, "walk");
    for (int i = 0; i < N; i++) {
        CHECK(fabs(table[i] - newton[i]) < 1e-12 * newton[i] + 4 * bound[i], "at %g", x[i]);
        CHECK(fabs(slow[i] - newton[i]) < 1e-12 * newton[i] + 4 * bound[i], "at %g", x[i]);
    }
    for (int level = 0; level < FSPEC_LEVELS; level++) {
        const fspec_kernels *kernels = fspec_kernels_level(level);
        if (!kernels) continue;
        kernels->table(law, N, x, FSPEC_LAMBDA, part);
        for (int i = 0; i < N; i++)
            CHECK(fabs(part[i] / table[i] - 1) < 1e-13, "%s at %g", kernels->name, x[i]);
    }
    double below[N], z_re[2] = {1e6, 1.0}, z_im[2] = {1e6, -0.5}, g_re[2], g_im[2];
    fspec_law_cdf(law, N, x, FSPEC_LAMBDA, below, NULL);
    for (int i = 0; i < N; i++) CHECK(fabs(below[i] - p[i]) < 1e-13, "cdf at %g", x[i]);
    CHECK(fspec_law_green(law, 2, z_re, z_im, g_re, g_im, NULL, NULL, NULL, NULL, NULL) == 0, "G");
    CHECK(fabs(g_re[0] * 2e6 - 1) < 1e-4 && g_im[0] < 0 && g_im[1] > 0, "%g %g", g_re[0], g_im[1]);
    fspec_law_free(law);
    fspec_slopes_free(relu);
    fspec_slopes_free(leaky);
}

/* One wide Gaussian layer is Marchenko-Pastur of any ratio. */
static void test_rectangular(void)
{
    double value = 1.0, chance = 1.0;
    fspec_slopes *linear = NULL;
    fspec_slopes_discrete(1, &value, &chance, &linear);
    for (double ratio = 0.2; ratio < 4; ratio += 0.6) {
        fspec_layer layer = {linear, 1.0, FSPEC_GAUSSIAN, ratio, 1.0};
        fspec_block block = {.n_layers = 1, .layers = &layer, .repeat = 1};
        fspec_law *law = NULL;
        CHECK(fspec_law_chain(1, &block, 0.0, &law) == FSPEC_OK, "ratio %g", ratio);
        double low = pow(1 - sqrt(ratio), 2), high = pow(1 + sqrt(ratio), 2);
        double x = 0.5 * (low + high);
        double rho, exact = sqrt((high - x) * (x - low)) / (2 * PI * ratio * x);
        fspec_law_density(law, 1, &x, FSPEC_LAMBDA, &rho);
        CHECK(fabs(rho / exact - 1) < 1e-13, "ratio %g: %g", ratio, rho / exact - 1);
        CHECK(fspec_law_atom_count(law) == (ratio > 1), "ratio %g", ratio);
        fspec_law_free(law);
    }
    fspec_slopes_free(linear);
}

static void test_bad_chains(void)
{
    fspec_slopes *relu = two_slopes(0.0, 1.0, 0.5);
    fspec_layer good = {relu, 1.0, FSPEC_GAUSSIAN, 1, 1}, bad = good;
    fspec_block block = {.n_layers = 1, .layers = &good, .skip = 1.0, .repeat = 1};
    fspec_law *law = NULL;
    CHECK(fspec_law_chain(0, &block, 0.0, &law) == FSPEC_BAD_ARGUMENT, "no block");
    block.repeat = 0.0;
    CHECK(fspec_law_chain(1, &block, 0.0, &law) == FSPEC_BAD_ARGUMENT, "repeat 0");
    block.repeat = 1.0, block.skip = -1.0;
    CHECK(fspec_law_chain(1, &block, 0.0, &law) == FSPEC_BAD_ARGUMENT, "skip < 0");
    block.skip = 1.0, block.layers = &bad, bad.weight_variance = 0.0;
    CHECK(fspec_law_chain(1, &block, 0.0, &law) == FSPEC_BAD_ARGUMENT, "variance 0");
    bad.weight_variance = 1.0, bad.width_out = 2.0;
    CHECK(fspec_law_chain(1, &block, 0.0, &law) == FSPEC_BAD_ARGUMENT, "width of a residual");
    CHECK(law == NULL, "a failed constructor set its output");
    fspec_slopes_free(relu);
}

void test_chains(void)
{
    test_against_closed_form();
    test_gap();
    test_residual_density();
    test_routes();
    test_rectangular();
    test_bad_chains();
}
