/* Runs of blocks with shared coordinates: complex Gauss rules, and the equations at given m against
 * all patterns of slopes one by one. */
#include <math.h>

#include "check.h"
#include "fspec_path.h"
#include "fspec_rule.h"
#include "fspec_run.h"

enum { COUNT = 24, MOST_SITES = 5, NETS = 8 };

/* ---- rules ---------------------------------------------------------------------------------- */

static double complex scratch[(FSPEC_RULE_NODES + 2) * COUNT];

static double random_unit(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return ((*seed >> 8) & 0xffff) / 65536.0 - 0.5;
}

/* Nodes about 2 - i and weights about 1/COUNT; the weights sum to 1. */
static void random_sum(unsigned seed, int real, double complex *x, double complex *w)
{
    double complex sum = 0.0;
    for (int i = 0; i < COUNT; i++) {
        x[i] = 2.0 + 0.7 * random_unit(&seed);
        w[i] = 1.0 + random_unit(&seed);
        if (!real) x[i] += I * (random_unit(&seed) - 1.0), w[i] += 0.5 * I * random_unit(&seed);
        sum += w[i];
    }
    for (int i = 0; i < COUNT; i++) w[i] /= sum;
}

/* sum w (x - centre)^k, and the same of moduli */
static double complex moment(size_t n, const double complex *x, const double complex *w,
                             double complex centre, unsigned k, double *size)
{
    double complex sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        double complex term = w[i];
        for (unsigned j = 0; j < k; j++) term *= x[i] - centre;
        sum += term;
        *size += cabs(term);
    }
    return sum;
}

static void check_moments(const char *name, const double complex *x, const double complex *w,
                          const fspec_rule *rule)
{
    double complex centre = 0.0;
    for (int i = 0; i < COUNT; i++) centre += w[i] * x[i];
    for (unsigned k = 0; k < 2 * rule->n; k++) {
        double size = 0.0;
        double complex exact = moment(COUNT, x, w, centre, k, &size);
        double error = cabs(moment(rule->n, rule->x, rule->w, centre, k, &size) - exact);
        CHECK(error < 1e-12 * size, "%s, %zu nodes: moment %u off by %g of %g", name, rule->n, k,
              error, size);
    }
}

static void test_rule_moments(void)
{
    double complex x[COUNT], w[COUNT];
    for (unsigned k = 0; k < 40; k++) {
        size_t most = 1 + k % 8;
        int real = k % 3 == 0;
        fspec_rule rule = {0};
        random_sum(k, real, x, w);
        fspec_rule_compress(COUNT, x, w, most, scratch, &rule);
        CHECK(rule.n == most, "%zu nodes of %zu", rule.n, most);
        check_moments("cold", x, w, &rule);
        for (size_t i = 0; i < rule.n && real; i++) {
            CHECK(cimag(rule.x[i]) == 0.0 && cimag(rule.w[i]) == 0.0, "a real rule");
            CHECK(creal(rule.w[i]) > 0.0, "weight %g", creal(rule.w[i]));
        }
    }
}

/* Largest distance of a node of one rule from the nearest of the other. */
static double apart(const fspec_rule *a, const fspec_rule *b)
{
    double most = a->n == b->n ? 0.0 : INFINITY;
    for (size_t i = 0; i < a->n; i++) {
        double least = INFINITY;
        for (size_t j = 0; j < b->n; j++)
            least = fmin(least, cabs(a->x[i] - b->x[j]) + cabs(a->w[i] - b->w[j]));
        most = fmax(most, least);
    }
    return most;
}

/* From the nodes of a sum nearby, or of an entirely other one, as from none. */
static void test_rule_guess(void)
{
    double complex x[COUNT], w[COUNT];
    for (size_t most = 3; most < 7; most++) {
        fspec_rule cold = {0}, warm = {0};
        random_sum(7, 0, x, w);
        fspec_rule_compress(COUNT, x, w, most, scratch, &warm);
        for (int i = 0; i < COUNT; i++) x[i] += 0.01 * (1.0 - I) * w[i];
        fspec_rule_compress(COUNT, x, w, most, scratch, &warm);
        fspec_rule_compress(COUNT, x, w, most, scratch, &cold);
        CHECK(apart(&cold, &warm) < 1e-11, "%zu nodes: %g apart", most, apart(&cold, &warm));
        check_moments("warm", x, w, &warm);
        random_sum(8, most % 2, x, w);
        fspec_rule_compress(COUNT, x, w, most - most % 2, scratch, &warm);
        check_moments("another sum", x, w, &warm);
    }
}

/* A sum of three distinct nodes has a rule of three; one of few terms is its own. */
static void test_rule_few(void)
{
    const double complex place[3] = {0.3 - 0.1 * I, 1.0, -0.4 - 0.9 * I};
    const double share[3] = {0.2, 0.5, 0.3};
    double complex x[COUNT], w[COUNT];
    for (int i = 0; i < COUNT; i++) {
        x[i] = place[i % 3];
        w[i] = share[i % 3] * 3.0 / COUNT;
    }
    fspec_rule few = {3, {place[0], place[1], place[2]}, {0.2, 0.5, 0.3}, 0, {0}};
    for (size_t most = 3; most < 8; most++) {
        fspec_rule rule = {0};
        fspec_rule_compress(COUNT, x, w, most, scratch, &rule);
        CHECK(apart(&few, &rule) < 1e-12, "at most %zu: %zu nodes, %g apart", most, rule.n,
              apart(&few, &rule));
    }
    fspec_rule rule = {0};
    random_sum(3, 0, x, w);
    fspec_rule_compress(5, x, w, 5, scratch, &rule);
    CHECK(rule.n == 5, "%zu nodes", rule.n);
    for (int i = 0; i < 5; i++) CHECK(rule.x[i] == x[i] && rule.w[i] == w[i], "node %d", i);
    for (int i = 0; i < COUNT; i++) x[i] = 0.25 - I;
    fspec_rule_compress(COUNT, x, w, 4, scratch, &rule);
    CHECK(rule.n == 1 && cabs(rule.x[0] - x[0]) < 1e-15, "one place: %zu nodes", rule.n);
}

/* ---- networks ------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    size_t n_blocks, n_sites, patterns; /* of all sites but one, at most */
    fspec_block blocks[3];
    fspec_layer layers[3];
    size_t sites[MOST_SITES];
} net;

static fspec_slopes *relu, *sparse, *soft;

static fspec_slopes *slopes_of(size_t n, const double *values, const double *chances)
{
    fspec_slopes *slopes = NULL;
    CHECK(fspec_slopes_discrete(n, values, chances, &slopes) == FSPEC_OK, "slopes");
    return slopes;
}

static net equal(const char *name, const fspec_slopes *slopes, double variance, int ensemble,
                 double skip, size_t depth)
{
    net n = {.name = name, .n_blocks = 1, .n_sites = depth};
    n.layers[0] = (fspec_layer){slopes, variance, ensemble, 1, 1};
    n.blocks[0] = (fspec_block){.n_layers = 1, .skip = skip, .repeat = (double)depth};
    n.patterns = (size_t)1 << (depth - 1);
    return n;
}

/* Two kinds of blocks, the second one with skip 1.2 and relu inside. */
static net two_kinds(const char *name, double skip, fspec_layer first, size_t n_layers,
                     size_t patterns)
{
    net n = {name, 2, 4, patterns,
             {{.n_layers = 1, .skip = skip, .repeat = skip ? 2 : 1},
              {.n_layers = n_layers, .skip = 1.2, .repeat = skip ? 2 : 3}},
             {first, {relu, 0.6, FSPEC_GAUSSIAN, 1, 1}, {sparse, 0.8, FSPEC_ORTHOGONAL, 1, 1}},
             {0, 1, skip ? 0 : 1, 1}};
    return n;
}

static void make_nets(net *nets)
{
    const fspec_layer gaussian = {soft, 0.9, FSPEC_GAUSSIAN, 1, 1};
    const fspec_layer orthogonal = {soft, 0.7, FSPEC_ORTHOGONAL, 1, 1};
    const fspec_layer narrow = {relu, 0.7, FSPEC_GAUSSIAN, 1, 2.5};
    nets[0] = equal("relu", relu, 0.5, FSPEC_GAUSSIAN, 1.0, 3);
    nets[1] = equal("sparse", sparse, 0.7, FSPEC_ORTHOGONAL, 0.9, 5);
    nets[2] = equal("kappa > a^2", relu, 4.0, FSPEC_GAUSSIAN, 0.5, 2);
    nets[3] = two_kinds("unequal", 0.8, gaussian, 1, 18);
    nets[4] = two_kinds("branch of two", 0.8, orthogonal, 2, 18);
    nets[5] = two_kinds("plain first", 0.0, orthogonal, 1, 12);
    nets[6] = two_kinds("plain Gaussian, branch of two", 0.0, gaussian, 2, 12);
    nets[7] = two_kinds("plain of low rank", 0.0, narrow, 1, 8);
}

/* Blocks refer to layers in the same struct: set where it stands. */
static const fspec_block *blocks_of(net *n)
{
    n->blocks[0].layers = n->layers;
    n->blocks[1].layers = n->layers + 1;
    return n->blocks;
}

/* ---- one point of a chain with one run ------------------------------------------------------ */

typedef struct {
    fspec_chain *chain;
    const fspec_run *run;
    fspec_walker walker;
    const fspec_state *x, *rates; /* the run's */
} place;

static void open_place(place *p, net *n, size_t nodes)
{
    fspec_shared shared = {n->n_sites, n->sites, 8, nodes};
    const fspec_block *blocks = blocks_of(n);
    CHECK(fspec_chain_new(n->n_blocks, blocks, 0.0, &p->chain) == FSPEC_OK, "%s", n->name);
    CHECK(fspec_chain_share(p->chain, blocks, 1, &shared) == FSPEC_OK, "%s", n->name);
    CHECK(fspec_walker_init(&p->walker, p->chain) == FSPEC_OK, "memory");
    p->run = p->chain->runs;
    p->x = p->walker.x + p->run->first;
    p->rates = p->walker.rates + p->run->first;
}

static void move_to(const net *n, place *p, double complex l)
{
    int status = fspec_walker_from_above(&p->walker, l);
    CHECK(status == FSPEC_OK, "%s, l = %g%+gi: status %d", n->name, creal(l), cimag(l), status);
}

static void leave(place *p)
{
    fspec_walker_free(&p->walker);
    fspec_chain_free(p->chain);
}

/* log z in units of the free mean */
static const double complex points[] = {1.5 + 0.6 * I,  0.7,           0.3,
                                        -0.2 + 0.1 * I, -1.0 + 1.5 * I, -2.5 + 0.3 * I};
enum { POINTS = sizeof points / sizeof *points };

/* D of a solved state */
static double complex term(const place *p) { return -clog(p->x[p->run->size - 1]); }

/* Rules of one node are the free law. */
static void test_one_node(net *nets)
{
    for (int k = 0; k < NETS; k++) {
        place p;
        open_place(&p, &nets[k], 1);
        for (int i = 0; i < POINTS; i++) {
            move_to(&nets[k], &p, points[i]);
            CHECK(cabs(term(&p)) < 1e-14 * (double)nets[k].n_sites, "%s: D = %g", nets[k].name,
                  cabs(term(&p)));
            for (size_t j = p.run->frame->size; j < p.run->size; j++)
                CHECK(cabs(p.x[j] - 1.0) < 1e-12 && cabs(p.rates[j]) < 1e-7, "%s, point %d: %g",
                      nets[k].name, i, cabs(p.x[j] - 1.0));
        }
        leave(&p);
    }
}

/* ---- all patterns --------------------------------------------------------------------------- */

/* phi(x) = 1/((1+x) S(x)); the inner slopes are 0 or 1, 1/S = (p+x)/(1+x). A plain layer stands
 * for any other one below the run: its matrix is taken orthogonal of variance 1. */
static double complex phi(const fspec_block *b, double complex x)
{
    double complex value = 1.0 / (1.0 + x);
    for (size_t j = 0; j < b->n_layers && b->skip > 0.0; j++) {
        value *= b->layers[j].weight_variance;
        if (b->layers[j].ensemble == FSPEC_GAUSSIAN) value *= 1.0 + x;
        if (j + 1 < b->n_layers) value *= (b->layers[j].slopes->positive + x) / (1.0 + x);
    }
    return value;
}

typedef struct {
    size_t n;
    const fspec_block *block[MOST_SITES];
    double complex alpha[MOST_SITES], beta[MOST_SITES], z;
    double complex gin[MOST_SITES], gout[MOST_SITES], top, bottom; /* <z/(z - P_L)>, <1/(1-Q_0)> */
} sums;

/* alpha = gin phi and beta = gout phi of the free law, times A and B. */
static void gauge(const net *n, const place *p, sums *s)
{
    const fspec_chain *c = p->run->frame;
    const fspec_state *x = p->x, *a = x + c->size;
    double complex m = x[0], one = 1.0 + m, product = 1.0;
    s->n = n->n_sites;
    for (size_t l = 0; l < s->n; l++) {
        const fspec_block *b = s->block[l] = &n->blocks[n->sites[l]];
        const fspec_state *y = &x[c->blocks[p->run->sites[l]].first];
        double complex u = b->skip == 0.0 ? m : y[0];
        s->alpha[l] = one * product * phi(b, u) * a[l];
        s->beta[l] = u / (one * product) * a[s->n + l];
        if (b->skip == 0.0) product *= m / one * y[0];
        else product *= b->skip * b->skip * m * one / (y[2] * y[3]);
    }
    s->z = product * one / m / a[2 * s->n];
}

static void add_pattern(sums *s, const double *d, double mass)
{
    double complex p[MOST_SITES + 1] = {1.0}, q[MOST_SITES + 1];
    size_t n = s->n;
    for (size_t l = 0; l < n; l++) {
        double a2 = s->block[l]->skip * s->block[l]->skip;
        p[l + 1] = a2 * p[l] / (1.0 - p[l] * s->beta[l]) + s->alpha[l] * d[l];
    }
    q[n] = 1.0 / s->z;
    for (size_t l = n; l-- > 0;) {
        double a2 = s->block[l]->skip * s->block[l]->skip;
        q[l] = a2 * q[l + 1] / (1.0 - q[l + 1] * s->alpha[l] * d[l]) + s->beta[l];
    }
    for (size_t l = 0; l < n; l++) {
        s->gin[l] += mass * p[l] / (1.0 - p[l] * q[l]);
        s->gout[l] += mass * d[l] * q[l + 1] / (1.0 - p[l + 1] * q[l + 1]);
    }
    s->top += mass * s->z / (s->z - p[n]);
    s->bottom += mass / (1.0 - q[0]);
}

static void add_patterns(sums *s, size_t l, double *d, double mass)
{
    if (l == s->n) {
        add_pattern(s, d, mass);
        return;
    }
    const fspec_slopes *slopes = s->block[l]->layers[s->block[l]->n_layers - 1].slopes;
    for (size_t k = 0; k < slopes->count; k++) {
        d[l] = slopes->value[k];
        add_patterns(s, l + 1, d, mass * slopes->mass[k]);
    }
    d[l] = 0.0;
    if (slopes->zero > 0.0) add_patterns(s, l + 1, d, mass * slopes->zero);
}

/* The largest relative residual of alpha = gin phi(beta gin), beta = gout phi(alpha gout),
 * 1 + m = z G(z) = <1/(1 - Q_0)>. */
static double residual(const net *n, const place *p)
{
    sums s = {0};
    double d[MOST_SITES], worst;
    gauge(n, p, &s);
    add_patterns(&s, 0, d, 1.0);
    worst = fmax(cabs(s.top / (1.0 + p->x[0]) - 1.0), cabs(s.bottom / (1.0 + p->x[0]) - 1.0));
    for (size_t l = 0; l < s.n; l++) {
        double complex of_in = phi(s.block[l], s.beta[l] * s.gin[l]);
        double complex of_out = phi(s.block[l], s.alpha[l] * s.gout[l]);
        worst = fmax(worst, cabs(s.gin[l] * of_in / s.alpha[l] - 1.0));
        worst = fmax(worst, cabs(s.gout[l] * of_out / s.beta[l] - 1.0));
    }
    return worst;
}

/* Im alpha, Im beta <= 0 on the branch of z in the upper half plane. */
static void check_branch(const net *n, place *p)
{
    fspec_state *a = p->walker.x + p->run->first + p->run->frame->size, *b = a + n->n_sites;
    CHECK(fspec_chain_check(p->chain, p->walker.x), "%s", n->name);
    a[1] = -a[1];
    CHECK(!fspec_chain_check(p->chain, p->walker.x), "%s: alpha", n->name);
    a[1] = -a[1], b[0] = -b[0];
    CHECK(!fspec_chain_check(p->chain, p->walker.x), "%s: beta", n->name);
}

static void test_patterns(net *nets)
{
    for (int k = 0; k < NETS; k++) {
        place exact, two;
        open_place(&exact, &nets[k], nets[k].patterns);
        open_place(&two, &nets[k], 2);
        for (int i = 0; i < POINTS; i++) {
            move_to(&nets[k], &exact, points[i]);
            move_to(&nets[k], &two, points[i]);
            double left = residual(&nets[k], &exact), d = cabs(term(&exact));
            double apart = cabs(two.walker.x[0] / exact.walker.x[0] - 1.0);
            CHECK(left < 1e-12, "%s, point %d: %g", nets[k].name, i, left);
            CHECK(d > 1e-4 && apart < 5e-3, "%s, point %d: D %g, two nodes off by %g",
                  nets[k].name, i, d, apart);
        }
        check_branch(&nets[k], &exact);
        leave(&exact);
        leave(&two);
    }
}

/* dl/dm and the run's rates against Cauchy's integral over a circle. */
static void test_rates(net *nets)
{
    enum { AROUND = 16 };
    for (int k = 0; k < NETS; k++) {
        place p;
        open_place(&p, &nets[k], 3);
        move_to(&nets[k], &p, points[0]);
        const size_t e = p.run->size - 1, a = p.run->frame->size + 1; /* A_2 */
        const double complex m = p.x[0], exact[3] = {p.walker.slope, p.rates[a], p.rates[e]};
        double radius = 0.05 * fmin(cabs(m), cabs(1.0 + m));
        double complex found[3] = {0.0};
        for (int i = 0; i < AROUND; i++) {
            double complex step = radius * cexp(2.0 * I * FSPEC_PI * i / AROUND);
            CHECK(fspec_walker_to_m(&p.walker, m + step) == FSPEC_OK, "circle");
            found[0] += p.walker.l / step / AROUND;
            found[1] += p.x[a] / step / AROUND;
            found[2] += p.x[e] / step / AROUND;
        }
        for (int i = 0; i < 3; i++)
            CHECK(cabs(found[i] - exact[i]) < 2e-7 * cabs(exact[i]) + 1e-10, "%s, %d: %g of %g",
                  nets[k].name, i, cabs(found[i] - exact[i]), cabs(exact[i]));
        leave(&p);
    }
}

void test_runs(void)
{
    net nets[NETS];
    relu = slopes_of(2, (double[]){0.0, 1.0}, (double[]){0.5, 0.5});
    sparse = slopes_of(2, (double[]){0.0, 1.0}, (double[]){0.8, 0.2});
    soft = slopes_of(3, (double[]){0.1, 0.4, 1.2}, (double[]){0.3, 0.5, 0.2});
    make_nets(nets);
    test_rule_moments();
    test_rule_guess();
    test_rule_few();
    test_one_node(nets);
    test_patterns(nets);
    test_rates(nets);
    fspec_slopes_free(relu);
    fspec_slopes_free(sparse);
    fspec_slopes_free(soft);
}
