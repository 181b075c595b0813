/* Plain C tests of the public header and of the instruction levels. Run under sanitizers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "fspec_law.h"

int checks, failures;

static fspec_law *plain(double depth, double p, double q, double variance, int ensemble)
{
    fspec_law *law = NULL;
    int status = fspec_law_plain_chain(depth, p, q, variance, ensemble, &law);
    CHECK(status == FSPEC_OK, "depth %g p %g: %s", depth, p, fspec_status_message(status));
    return law;
}

static fspec_law *resnet(double c)
{
    fspec_law *law = NULL;
    CHECK(fspec_law_resnet_limit(c, 1.0, 0.0, &law) == FSPEC_OK, "c %g", c);
    return law;
}

static fspec_law *bernoulli(double v)
{
    fspec_law *law = NULL;
    CHECK(fspec_law_bernoulli_limit(v, &law) == FSPEC_OK, "v %g", v);
    return law;
}

/* rho = sqrt((4 - x)/x)/(2 pi): one square Gaussian matrix. */
static void test_quarter_circle(void)
{
    fspec_law *law = plain(1, 1.0, 0.0, 1.0, FSPEC_GAUSSIAN);
    for (int i = 1; i < 200; i++) {
        double x = 4.0 * i / 200, rho, exact = sqrt((4 - x) / x) / (2 * M_PI);
        fspec_law_density(law, 1, &x, FSPEC_LAMBDA, &rho);
        CHECK(fabs(rho / exact - 1) < 4e-15, "x %g: %.17g, exact %.17g", x, rho, exact);
    }
    fspec_law_free(law);
}

/* lambda rho is even in log lambda, so that half the mass lies below 1. */
static void test_symmetry(void)
{
    double cs[] = {1e-8, 1e-3, 0.125, 1, 10, 100}, one = 1.0, cdf;
    for (int k = 0; k < 6; k++) {
        fspec_law *law = resnet(cs[k]);
        double low, high;
        CHECK(fspec_law_log_support(law, &low, &high) == 1, "no support");
        CHECK(fabs(low + high) < 1e-14 * high, "edges %g %g", low, high);
        fspec_law_cdf(law, 1, &one, FSPEC_LAMBDA, &cdf, NULL);
        CHECK(fabs(cdf - 0.5) < 5e-16, "c %g: cdf(1) = %.17g", cs[k], cdf);
        for (int i = 1; i < 50; i++) {
            double x[2] = {high * i / 50, -high * i / 50}, rho[2];
            CHECK(fspec_law_density(law, 2, x, FSPEC_LOG_LAMBDA, rho) == 0, "failures");
            CHECK(fabs(rho[0] / rho[1] - 1) < 1e-13, "c %g at %g", cs[k], x[0]);
        }
        fspec_law_free(law);
    }
}

/* Every level this processor runs gives the portable level's digits to rounding. */
static void levels_agree(const fspec_law *law, const char *name)
{
    enum { N = 1003 };
    double low, high, x[N], reference[N], rho[N];
    fspec_law_log_support(law, &low, &high);
    if (low == -INFINITY) low = high - 60.0;
    for (int i = 0; i < N; i++) x[i] = low + (high - low) * (i - 3) / (N - 7.0);
    fspec_kernels_level(0)->density(law, N, x, FSPEC_LOG_LAMBDA, reference);
    for (int level = 1; level < FSPEC_LEVELS; level++) {
        const fspec_kernels *kernels = fspec_kernels_level(level);
        if (!kernels) continue;
        size_t failed = kernels->density(law, N, x, FSPEC_LOG_LAMBDA, rho);
        CHECK(failed == 0, "%s, %s: %zu failures", name, kernels->name, failed);
        for (int i = 0; i < N; i++) {
            double edge = fmin(fabs(x[i] - low), fabs(high - x[i]));
            double tolerance = 2e-14 * fmax(1.0, 0.5 / (edge + 1e-300)) * reference[i];
            CHECK(rho[i] == reference[i] || fabs(rho[i] - reference[i]) <= tolerance,
                  "%s, %s at %g: %.17g, portable %.17g", name, kernels->name, x[i], rho[i],
                  reference[i]);
        }
    }
}

static void test_levels(void)
{
    fspec_law *laws[] = {resnet(1e-6), resnet(0.125), resnet(50), bernoulli(0.3), bernoulli(1),
                         plain(10, 1, 0, 1, FSPEC_GAUSSIAN), plain(7, .5, .5, 2, FSPEC_GAUSSIAN),
                         plain(9, .9, .1, 1.1, FSPEC_ORTHOGONAL)};
    const char *names[] = {"resnet 1e-6", "resnet .125", "resnet 50", "bernoulli .3",
                           "bernoulli 1", "fuss-catalan 10", "relu 7", "orthogonal 9"};
    for (int i = 0; i < 8; i++) {
        levels_agree(laws[i], names[i]);
        fspec_law_free(laws[i]);
    }
}

static void test_round_trip(void)
{
    fspec_law *laws[] = {resnet(1e-8), resnet(2), resnet(100), bernoulli(0.3), bernoulli(4),
                         plain(1, 1, 0, 1, FSPEC_GAUSSIAN), plain(1, .5, .5, 2, FSPEC_GAUSSIAN),
                         plain(50, .5, .5, 2, FSPEC_GAUSSIAN),
                         plain(10, .95, .05, 1.05, FSPEC_ORTHOGONAL)};
    for (int k = 0; k < 9; k++) {
        for (int i = 0; i <= 400; i++) {
            double p = i / 400.0, x, back, before;
            size_t failed = fspec_law_quantile(laws[k], 1, &p, FSPEC_LOG_LAMBDA, &x);
            CHECK(failed == 0, "law %d, p %g", k, p);
            fspec_law_cdf(laws[k], 1, &x, FSPEC_LOG_LAMBDA, &back, NULL);
            double below = nextafter(x, -INFINITY);
            fspec_law_cdf(laws[k], 1, &below, FSPEC_LOG_LAMBDA, &before, NULL);
            if (x == -INFINITY) before = 0.0;
            CHECK(back >= p - 1e-13 && before <= p + 1e-11, "law %d, p %g: cdf %.17g", k, p, back);
        }
        fspec_law_free(laws[k]);
    }
}

static void test_special_points(void)
{
    fspec_law *law = resnet(0.5), *hard = plain(3, 1, 0, 1, FSPEC_GAUSSIAN);
    double x[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, -1.0, 5e-324, 1e308, -1e308};
    double rho[9], at_zero;
    int status[9];
    CHECK(fspec_law_density(law, 9, x, FSPEC_LAMBDA, rho) == 0, "failures");
    CHECK(isnan(rho[0]), "NaN in, %g out", rho[0]);
    for (int i = 1; i < 9; i++) CHECK(rho[i] == 0.0, "density(%g) = %g", x[i], rho[i]);
    fspec_law_solve(law, 9, x, FSPEC_LAMBDA, NULL, NULL, NULL, status, NULL, NULL);
    CHECK(status[0] == FSPEC_BAD_POINT && status[3] == FSPEC_OK, "%d %d", status[0], status[3]);
    double zero = 0.0;
    fspec_law_density(hard, 1, &zero, FSPEC_LAMBDA, &at_zero);
    CHECK(at_zero == INFINITY, "hard end: %g", at_zero);
    fspec_law_free(law);
    fspec_law_free(hard);
}

static void test_bad_arguments(void)
{
    fspec_law *law = NULL;
    CHECK(fspec_law_resnet_limit(0, 1, 0, &law) == FSPEC_BAD_ARGUMENT, "c = 0");
    CHECK(fspec_law_resnet_limit(NAN, 1, 0, &law) == FSPEC_BAD_ARGUMENT, "c = NaN");
    CHECK(fspec_law_resnet_limit(1, 0, 0, &law) == FSPEC_BAD_ARGUMENT, "skip = 0");
    CHECK(fspec_law_smooth_limit(-1, &law) == FSPEC_BAD_ARGUMENT, "variance < 0");
    CHECK(fspec_law_bernoulli_limit(INFINITY, &law) == FSPEC_BAD_ARGUMENT, "variance inf");
    CHECK(fspec_law_plain_chain(2.5, 1, 0, 1, 0, &law) == FSPEC_BAD_ARGUMENT, "depth 2.5");
    CHECK(fspec_law_plain_chain(2, .5, .4, 1, 0, &law) == FSPEC_BAD_ARGUMENT, "p + q != 1");
    CHECK(fspec_law_plain_chain(2, 1, 0, 1, 7, &law) == FSPEC_BAD_ARGUMENT, "ensemble 7");
    CHECK(law == NULL, "a failed constructor set its output");
    fspec_law_free(NULL);
    for (int status = -1; status < 9; status++)
        CHECK(fspec_status_message(status) != NULL, "status %d", status);
}

typedef struct {
    double m[2], e[2], dm[2];
} transform;

static transform transform_at(const fspec_slopes *slopes, double re, double im)
{
    transform v;
    fspec_slopes_transform(slopes, 1, &re, &im, v.m, v.e, v.dm);
    return v;
}

/* d = 0, 1, 4 with probability 1/2, 1/4, 1/4: M(2) = 1/4 - 1/2, M' = -1/4 - 1/4. */
static void test_discrete_slopes(void)
{
    double values[] = {4.0, 0.0, 1.0}, chances[] = {0.25, 0.5, 0.25}, summary[7];
    fspec_slopes *slopes = NULL;
    CHECK(fspec_slopes_discrete(3, values, chances, &slopes) == FSPEC_OK, "atoms");
    fspec_slopes_summary(slopes, summary);
    CHECK(summary[0] == 1.25 && summary[1] == 4.25 && summary[2] == 4.0, "%g", summary[0]);
    CHECK(summary[3] == 0.5 && summary[4] == 0.5 && summary[5] == 0.0, "%g", summary[3]);
    transform v = transform_at(slopes, 2.0, 0.0);
    CHECK(fabs(v.m[0] + 0.25) < 1e-15 && v.m[1] == 0.0, "M = %g", v.m[0]);
    CHECK(fabs(v.e[0] - 0.25) < 1e-15 && fabs(v.dm[0] + 0.5) < 1e-15, "%g %g", v.e[0], v.dm[0]);
    v = transform_at(slopes, 1.0, 2.0); /* 1/(2i) = -i/2, 4/(-3 + 2i) = (-12 - 8i)/13 */
    CHECK(fabs(v.m[0] + 3.0 / 13.0) < 1e-15, "Re M = %.17g", v.m[0]);
    CHECK(fabs(v.m[1] + 0.125 + 2.0 / 13.0) < 1e-15, "Im M = %.17g", v.m[1]);
    fspec_slopes_free(slopes);
    chances[0] = 0.3;
    CHECK(fspec_slopes_discrete(3, values, chances, &slopes) == FSPEC_BAD_ARGUMENT, "sum 1.05");
}

/* phi' = h, h ~ N(0, 1): d = h^2. The nodes of the "rule" are of no use: the panels serve. */
static fspec_slopes *chi_square(void)
{
    enum { PANELS = 21 };
    double value = 1.0, mass = 1.0, centre[PANELS], half[PANELS], series[2 * PANELS];
    int joints[PANELS];
    size_t panels = PANELS;
    for (int i = 0; i < PANELS; i++) {
        series[2 * i] = centre[i] = i - 0.5 * (PANELS - 1);
        series[2 * i + 1] = half[i] = 0.5;
        joints[i] = (i > 0) + 2 * (i < PANELS - 1);
    }
    fspec_smooth_slopes law = {.count = 1, .value = &value, .mass = &mass, .mean = 1.0,
                               .second = 3.0, .top = 110.25, .largest = INFINITY,
                               .resolved = 1.1e-31, .n_covers = 1, .cover_panels = &panels,
                               .n_terms = 2, .centre = centre, .half = half,
                               .coefficients = series, .joints = joints};
    fspec_slopes *slopes = NULL;
    CHECK(fspec_slopes_smooth(&law, &slopes) == FSPEC_OK, "chi square");
    return slopes;
}

static void test_smooth_slopes(void)
{
    fspec_slopes *slopes = chi_square();
    for (double a = 1e-9; a < 5.0; a *= 3.7) { /* E a^2/(a^2 + h^2) */
        double exact = a * sqrt(0.5 * M_PI) * exp(0.5 * a * a) * erfc(a / sqrt(2.0));
        transform v = transform_at(slopes, -a * a, 0.0);
        CHECK(fabs(v.e[0] / exact - 1.0) < 4e-15, "a = %g: E = %.17g, %.17g", a, v.e[0], exact);
        CHECK(fabs(v.m[0] + 1.0 - exact) < 4e-15 && fabs(v.m[1]) < 1e-15, "M(%g)", -a * a);
    }
    for (double x = 1e-13; x < 20.0; x *= 2.9) { /* Im M = -pi x rho(x) on the axis */
        double exact = -sqrt(0.5 * M_PI * x) * exp(-0.5 * x), s = 1e-5 * x;
        transform v = transform_at(slopes, x, 0.0), below = transform_at(slopes, x, -0.0);
        CHECK(fabs(v.m[1] / exact - 1.0) < 1e-14, "x %g: %.17g, %.17g", x, v.m[1], exact);
        CHECK(v.m[0] == below.m[0] && v.m[1] == -below.m[1], "M(%g - i0)", x);
        v = transform_at(slopes, x, x);
        transform left = transform_at(slopes, x - s, x), right = transform_at(slopes, x + s, x);
        double size = hypot(v.dm[0], v.dm[1]);
        for (int k = 0; k < 2; k++)
            CHECK(fabs((right.e[k] - left.e[k]) / (2.0 * s) - v.dm[k]) < 1e-8 * size, "%g", x);
    }
    CHECK(isnan(transform_at(slopes, 1e-33, 0.0).e[0]), "below what is resolved");
    fspec_slopes_free(slopes);
}

int main(void)
{
    test_quarter_circle();
    test_symmetry();
    test_levels();
    test_round_trip();
    test_special_points();
    test_bad_arguments();
    test_discrete_slopes();
    test_smooth_slopes();
    test_chains();
    test_closed();
    test_runs();
    test_sharing();
    printf("%d passed, %d failed\n", checks - failures, failures);
    return failures != 0;
}
