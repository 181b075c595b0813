/* Laws of chains with shared coordinates, by the public header: what sharing adds at given m, mass,
 * atoms, edges, cells, bad arguments. */
#include <math.h>
#include <stddef.h>

#include "check.h"
#include "fspec_law.h"
#include "fspec_path.h"
#include "fspec_table.h"

static fspec_slopes *relu, *sparse, *rare, *soft, *one;

static fspec_slopes *slopes_of(size_t n, const double *values, const double *chances)
{
    fspec_slopes *slopes = NULL;
    CHECK(fspec_slopes_discrete(n, values, chances, &slopes) == FSPEC_OK, "slopes");
    return slopes;
}

/* One or two kinds of blocks of one layer each, and the run of their sites. */
typedef struct {
    size_t n_blocks;
    fspec_block blocks[2];
    fspec_layer layers[2];
    size_t n_sites, sites[4], nodes;
} net;

static net equal(const fspec_slopes *slopes, double variance, int ensemble, size_t depth,
                 size_t nodes)
{
    return (net){1, {{.n_layers = 1, .skip = 1.0, .repeat = (double)depth}},
                 {{slopes, variance, ensemble, 1, 1}}, depth, {0}, nodes};
}

/* A plain orthogonal layer, slopes 1.5 or .2, below two residual blocks. */
static net plain_below(const fspec_slopes *slopes, size_t nodes)
{
    return (net){2, {{.n_layers = 1, .repeat = 1}, {.n_layers = 1, .skip = 1.1, .repeat = 2}},
                 {{soft, 0.8, FSPEC_ORTHOGONAL, 1, 1}, {slopes, 0.5, FSPEC_GAUSSIAN, 1, 1}},
                 3, {0, 1, 1}, nodes};
}

static fspec_shared run_of(const net *n)
{
    return (fspec_shared){n->n_sites, n->sites, 8, n->nodes};
}

static const fspec_block *blocks_of(net *n)
{
    for (size_t i = 0; i < n->n_blocks; i++) n->blocks[i].layers = &n->layers[i];
    return n->blocks;
}

static fspec_law *shared_law(net *n, double mass_error)
{
    fspec_law *law = NULL;
    fspec_shared run = run_of(n);
    int status = fspec_law_shared_chain(n->n_blocks, blocks_of(n), 1, &run, 0.0, &law);
    CHECK(status == FSPEC_OK, "%s", fspec_status_message(status));
    CHECK(law && fspec_law_mass_error(law) < mass_error, "mass off by %g",
          law ? fspec_law_mass_error(law) : NAN);
    return law;
}

/* ---- D -------------------------------------------------------------------------------------- */

enum { STATES = 12 };

/* The free chain's log z at points m that come down from m > 0 one after the other */
static void free_log_z(net *n, const double *re, const double *im, double complex *l)
{
    fspec_chain *chain;
    fspec_walker w;
    CHECK(fspec_chain_new(n->n_blocks, blocks_of(n), 0.0, &chain) == FSPEC_OK, "chain");
    CHECK(fspec_walker_init(&w, chain) == FSPEC_OK && fspec_walker_start(&w) == FSPEC_OK, "start");
    w.unchecked = 1;
    for (int i = STATES - 1; i >= 0; i--) {
        CHECK(fspec_walker_to_m(&w, re[i] + I * im[i]) == FSPEC_OK, "m = %g%+gi", re[i], im[i]);
        l[i] = w.l + chain->log_mean;
    }
    fspec_walker_free(&w);
    fspec_chain_free(chain);
}

typedef struct {
    double complex d, closed, slope, next; /* a row of fspec_sharing */
} terms;

static void terms_at(net *n, size_t count, const double *re, const double *im, terms *out,
                     int *status)
{
    fspec_shared run = run_of(n);
    CHECK(fspec_sharing(n->n_blocks, blocks_of(n), 1, &run, count, re, im, (double *)out,
                        status) == FSPEC_OK, "sharing");
}

/* log z(m) = log z_free(m) + D(m) on the law's own points. */
static void check_terms(net *n, double tolerance)
{
    fspec_law *law = shared_law(n, 1e-10);
    double p[STATES], x[STATES], re[STATES], im[STATES];
    double complex l[STATES];
    terms at[STATES];
    int status[STATES];
    for (int i = 0; i < STATES; i++) p[i] = (i + 0.6) / STATES;
    CHECK(fspec_law_quantile(law, STATES, p, FSPEC_LOG_LAMBDA, x) == 0, "quantiles");
    CHECK(fspec_law_solve(law, STATES, x, FSPEC_LOG_LAMBDA, re, im, NULL, NULL, NULL, NULL) == 0,
          "points");
    free_log_z(n, re, im, l);
    terms_at(n, STATES, re, im, at, status);
    for (int i = 0; i < STATES; i++) {
        double complex d = at[i].d;
        CHECK(status[i] == FSPEC_OK, "m = %g%+gi: %d", re[i], im[i], status[i]);
        CHECK(cabs(l[i] + d - x[i]) < tolerance, "at %g: log z off by %g", x[i],
              cabs(l[i] + d - x[i]));
        double off = cabs(d + at[i].slope), size = n->nodes ? 0.5 * cabs(d) + 1e-5 : 1e-300;
        CHECK(off < size, "D %g, -dU' off by %g", cabs(d), off);
    }
    fspec_law_free(law);
}

static void test_terms(void)
{
    net nets[] = {equal(relu, 0.5, FSPEC_GAUSSIAN, 2, 2), equal(relu, 0.3, FSPEC_ORTHOGONAL, 4, 3),
                  equal(soft, 0.4, FSPEC_GAUSSIAN, 3, 4), equal(relu, 0.3, FSPEC_GAUSSIAN, 4, 0),
                  plain_below(relu, 4)};
    for (int i = 0; i < 5; i++) check_terms(&nets[i], 2e-12);
}

/* A point that cannot be solved has a status, and leaves those after it alone. */
static void test_bad_points(void)
{
    net n = equal(relu, 0.3, FSPEC_GAUSSIAN, 2, 2);
    const double re[5] = {-0.4, NAN, -0.4, INFINITY, -0.4}, im[5] = {-0.5, 0.0, -0.5, 0.0, -0.5};
    terms at[5];
    int status[5];
    terms_at(&n, 5, re, im, at, status);
    CHECK(status[1] != FSPEC_OK && status[3] != FSPEC_OK, "%d %d", status[1], status[3]);
    for (int i = 0; i < 5; i += 2)
        CHECK(status[i] == FSPEC_OK && cabs(at[i].d - at[0].d) < 1e-14, "point %d: %d, D = %g", i,
              status[i], creal(at[i].d));
}

/* ---- laws ----------------------------------------------------------------------------------- */

/* By the twin in Python with 40 digits. */
static void test_edges(void)
{
    net n = equal(relu, 0.5, FSPEC_GAUSSIAN, 2, 2);
    fspec_law *law = shared_law(&n, 1e-11);
    double low, high;
    fspec_law_support(law, &low, &high);
    CHECK(fabs(low / 0.0567045138485365 - 1.0) < 1e-12, "%.17g", low);
    CHECK(fabs(high / 6.552289277947689 - 1.0) < 1e-12, "%.17g", high);
    CHECK(fspec_law_atom_count(law) == 0, "atoms");
    fspec_law_free(law);
}

static void check_atoms(net *n, int count, const double *places, const double *masses)
{
    fspec_shared run = run_of(n);
    double location[3], mass[3];
    size_t found = fspec_shared_atoms(n->n_blocks, blocks_of(n), 1, &run, 3, location, mass);
    CHECK(found == (size_t)count, "%zu atoms", found);
    for (int i = 0; i < count; i++) {
        CHECK(fabs(location[i] / places[i] - 1.0) < 1e-14, "%.17g", location[i]);
        CHECK(fabs(mass[i] - masses[i]) < 1e-14, "%.17g", mass[i]);
    }
    CHECK(fspec_shared_atoms(n->n_blocks, n->blocks, 1, &run, 0, NULL, NULL) == 0, "no room");
}

/* The law has the same one, and its density the rest. */
static void check_atom_at_one(net *n, double mass)
{
    const double place = 1.0;
    check_atoms(n, 1, &place, &mass);
    fspec_law *law = shared_law(n, 1e-9);
    double location, log_location, found;
    CHECK(fspec_law_atom_count(law) == 1, "%d atoms", fspec_law_atom_count(law));
    fspec_law_atom(law, 0, &location, &log_location, &found);
    CHECK(location == 1.0 && log_location == 0.0, "%.17g", location);
    CHECK(fabs(found - mass) < 1e-14, "%.17g", found);
    CHECK(fabs(fspec_law_continuous_mass(law) + mass - 1.0) < 1e-9, "%.17g",
          fspec_law_continuous_mass(law));
    fspec_law_free(law);
}

/* 2 P(S) - 1 at 1, P(S) = prod P(d = 0); above a plain layer of slopes d, P(d) P(S) - (1 - P(S))
 * at a^4 sigma^2 d. */
static void test_atoms(void)
{
    fspec_slopes *tenth = slopes_of(2, (double[]){0.0, 1.0}, (double[]){0.9, 0.1});
    net two = equal(sparse, 0.5, FSPEC_GAUSSIAN, 2, 2);
    net orthogonal = equal(sparse, 0.5, FSPEC_ORTHOGONAL, 2, 2);
    net three = equal(tenth, 0.4, FSPEC_GAUSSIAN, 3, 4);
    net plain = plain_below(rare, 4);
    const double scale = pow(1.1, 4) * 0.8, places[2] = {0.2 * scale, 1.5 * scale};
    const double masses[2] = {1.3 * 0.9025 - 1.0, 1.7 * 0.9025 - 1.0};
    check_atom_at_one(&two, 0.28);
    check_atom_at_one(&orthogonal, 0.28);
    check_atom_at_one(&three, 0.458);
    check_atoms(&plain, 2, places, masses);
    plain.layers[0].ensemble = FSPEC_GAUSSIAN;
    check_atoms(&plain, 0, NULL, NULL);
    fspec_slopes_free(tenth);
}

/* One site, constant slopes, and no run at all are the free law, to the last digit. */
static void check_same(net *n, size_t n_runs, size_t n_sites)
{
    fspec_law *free_law = NULL, *law = NULL;
    fspec_shared run = {n_sites, n->sites, 8, 3};
    const fspec_block *blocks = blocks_of(n);
    double x[5], p[5] = {0.05, 0.3, 0.5, 0.8, 0.97}, rho[5], same[5];
    CHECK(fspec_law_chain(n->n_blocks, blocks, 0.0, &free_law) == FSPEC_OK, "free");
    CHECK(fspec_law_shared_chain(n->n_blocks, blocks, n_runs, &run, 0.0, &law) == FSPEC_OK, "law");
    CHECK(fspec_law_quantile(free_law, 5, p, FSPEC_LOG_LAMBDA, x) == 0, "quantiles");
    fspec_law_density(free_law, 5, x, FSPEC_LOG_LAMBDA, rho);
    fspec_law_density(law, 5, x, FSPEC_LOG_LAMBDA, same);
    for (int i = 0; i < 5; i++) CHECK(rho[i] == same[i], "%.17g %.17g", rho[i], same[i]);
    CHECK(fspec_law_atom_count(law) == fspec_law_atom_count(free_law), "atoms");
    fspec_law_free(law);
    fspec_law_free(free_law);
}

static void test_nothing_shared(void)
{
    net n = equal(relu, 0.5, FSPEC_GAUSSIAN, 3, 3);
    net constant = equal(one, 0.5, FSPEC_GAUSSIAN, 3, 3);
    check_same(&n, 0, 3);
    check_same(&n, 1, 1);
    check_same(&n, 1, 0);
    check_same(&constant, 1, 3);
}

/* ---- cells ---------------------------------------------------------------------------------- */

enum { GAUSS = 24 };

/* Gauss-Legendre on [-1, 1] */
static void gauss(double *x, double *w)
{
    for (int i = 0; i < GAUSS; i++) {
        double p0, p1, d = 0.0;
        x[i] = cos(FSPEC_PI * (i + 0.75) / (GAUSS + 0.5));
        for (int it = 0; it < 20; it++) {
            p0 = 1.0, p1 = x[i];
            for (int k = 2; k <= GAUSS; k++) {
                double p2 = ((2 * k - 1) * x[i] * p1 - (k - 1) * p0) / k;
                p0 = p1, p1 = p2;
            }
            d = GAUSS * (x[i] * p1 - p0) / (x[i] * x[i] - 1.0);
            x[i] -= p1 / d;
        }
        w[i] = 2.0 / ((1.0 - x[i] * x[i]) * d * d);
    }
}

/* The mass of a cell: Gauss in the square root of the distance to the end it belongs to. */
static double cell_mass(const fspec_law *law, size_t i)
{
    double x[GAUSS], w[GAUSS], low, high, end, power, sum = 0.0;
    gauss(x, w);
    fspec_law_cell(law, i, &low, &high, &end, &power);
    double from = power == 0.0 ? low : sqrt(fabs(low - end));
    double to = power == 0.0 ? high : sqrt(fabs(high - end));
    for (int k = 0; k < GAUSS; k++) {
        double s = from + 0.5 * (to - from) * (1.0 + x[k]), l = s, rho, per = 1.0;
        if (power != 0.0) l = end + (high > end ? s * s : -s * s), per = 2.0 * s;
        fspec_law_density(law, 1, &l, FSPEC_LOG_LAMBDA, &rho);
        sum += 0.5 * fabs(to - from) * w[k] * rho * per;
    }
    return sum;
}

static void check_joint(const fspec_law *law, double l)
{
    const fspec_table *t = law->table;
    double here = fspec_table_y(t, l), low = nextafter(l, -INFINITY), high = nextafter(l, INFINITY);
    CHECK(here > 0.0 && fabs(fspec_table_y(t, low) / here - 1.0) < 1e-11, "density left of %g", l);
    CHECK(fabs(fspec_table_y(t, high) / here - 1.0) < 1e-11, "density right of %g", l);
}

/* Two orthogonal relu blocks: the density is positive and continuous at every joint of its cells,
 * and the distribution function there is what the cells below hold. */
static void test_cells(void)
{
    net n = equal(relu, 0.5, FSPEC_ORTHOGONAL, 2, 2);
    fspec_law *law = shared_law(&n, 1e-11);
    const fspec_table *t = law->table;
    size_t count = fspec_law_cell_count(law);
    double sum = 0.0, end, power, ends[2], cdf[2];
    CHECK(count > 4 && fspec_law_atom_count(law) == 0, "%zu cells", count);
    for (size_t i = 0; i < count; i++) {
        fspec_law_cell(law, i, &ends[0], &ends[1], &end, &power);
        fspec_law_cdf(law, 2, ends, FSPEC_LOG_LAMBDA, cdf, NULL);
        CHECK(fabs(cdf[0] - sum) < 1e-11, "cell %zu: cdf(low) off by %g", i, cdf[0] - sum);
        sum += cell_mass(law, i);
        CHECK(fabs(cdf[1] - sum) < 1e-11, "cell %zu: cdf(high) off by %g", i, cdf[1] - sum);
        CHECK(fspec_table_find(t, t->cells[i].low) >= 0, "low end of cell %zu", i);
        CHECK(fspec_table_find(t, t->cells[i].high) >= 0, "high end of cell %zu", i);
        if (i > 0 && t->cells[i - 1].high == t->cells[i].low) check_joint(law, t->cells[i].low);
    }
    CHECK(fabs(sum - 1.0) < 1e-11, "all cells: %.17g", sum);
    fspec_law_free(law);
}

/* ---- bad arguments -------------------------------------------------------------------------- */

static void refuse(const char *name, size_t n_blocks, const fspec_block *blocks,
                   const fspec_shared *run)
{
    fspec_law *law = NULL;
    const double re = -0.4, im = -0.5;
    double out[2 * FSPEC_SHARING_TERMS], location, mass;
    int status;
    CHECK(fspec_law_shared_chain(n_blocks, blocks, 1, run, 0.0, &law) == FSPEC_BAD_ARGUMENT, "%s",
          name);
    CHECK(law == NULL, "%s: a failed constructor set its output", name);
    CHECK(fspec_sharing(n_blocks, blocks, 1, run, 1, &re, &im, out, &status) == FSPEC_BAD_ARGUMENT,
          "%s", name);
    CHECK(fspec_shared_atoms(n_blocks, blocks, 1, run, 1, &location, &mass) == 0, "%s", name);
    fspec_law_free(law);
}

static void test_bad_runs(void)
{
    const double data[2] = {0.0, 0.5};
    fspec_layer layer = {relu, 0.5, FSPEC_GAUSSIAN, 1, 1}, wide = {relu, 0.5, FSPEC_GAUSSIAN, 2, 1};
    fspec_block blocks[4] = {
        {.n_layers = 1, .layers = &wide, .repeat = 1},
        {.n_layers = 1, .layers = &layer, .skip = 1.0, .repeat = 2},
        {.n_layers = 1, .layers = &layer, .repeat = 2},
        {.repeat = 1, .log_s = fspec_log_s_exponential, .data = (void *)data, .positive = 1.0}};
    const size_t good[2] = {1, 1}, outside[2] = {1, 4}, given[2] = {3, 1}, late[2] = {1, 2};
    const size_t width[3] = {0, 1, 1};
    const struct {
        const char *name;
        fspec_shared run;
    } bad[] = {{"site out of range", {2, outside, 2, 2}}, {"given by log S", {2, given, 2, 2}},
               {"a plain block not first", {2, late, 2, 2}}, {"another width", {3, width, 2, 2}},
               {"too many nodes", {2, good, 2, 65}}, {"no slope nodes", {2, good, 0, 2}},
               {"too many slope nodes", {2, good, 65, 2}}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuse(bad[i].name, 4, blocks, &bad[i].run);
    fspec_shared run = {2, good, 2, 2};
    fspec_law *law = NULL;
    blocks[1].repeat = 0.0;
    CHECK(fspec_law_shared_chain(4, blocks, 1, &run, 0.0, &law) == FSPEC_BAD_ARGUMENT, "repeat 0");
    CHECK(law == NULL, "a failed constructor set its output");
}

void test_sharing(void)
{
    relu = slopes_of(2, (double[]){0.0, 1.0}, (double[]){0.5, 0.5});
    sparse = slopes_of(2, (double[]){0.0, 1.0}, (double[]){0.8, 0.2});
    rare = slopes_of(2, (double[]){0.0, 1.0}, (double[]){0.95, 0.05});
    soft = slopes_of(2, (double[]){0.2, 1.5}, (double[]){0.3, 0.7});
    one = slopes_of(1, (double[]){0.7}, (double[]){1.0});
    test_terms();
    test_bad_points();
    test_edges();
    test_atoms();
    test_nothing_shared();
    test_cells();
    test_bad_runs();
    fspec_slopes *all[] = {relu, sparse, rare, soft, one};
    for (int i = 0; i < 5; i++) fspec_slopes_free(all[i]);
}
