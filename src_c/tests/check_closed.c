/* The closed correction for a shared basis: 50 digits, direct sums, contour integrals, the fourth
 * moment and the limit of many blocks. */
#include <math.h>

#include "check.h"
#include "fspec_closed.h"
#include "fspec_path.h"

enum { MOST_SITES = 64, DEEP = 2000 };

/* ---- chains --------------------------------------------------------------------------------- */

typedef struct {
    fspec_slopes *hard, *soft, *sparse;
    fspec_chain *chain;
} network;

static fspec_slopes *slopes_of(size_t n, const double *values, const double *chances)
{
    fspec_slopes *slopes = NULL;
    CHECK(fspec_slopes_discrete(n, values, chances, &slopes) == FSPEC_OK, "slopes");
    return slopes;
}

static void make_slopes(network *n)
{
    n->hard = slopes_of(2, (double[]){0.0, 1.0}, (double[]){0.5, 0.5});
    n->soft = slopes_of(3, (double[]){0.1, 0.4, 1.2}, (double[]){0.3, 0.5, 0.2});
    n->sparse = slopes_of(3, (double[]){0.0, 0.3, 0.9}, (double[]){0.15, 0.25, 0.6});
}

static void drop(network *n)
{
    fspec_chain_free(n->chain);
    fspec_slopes_free(n->hard);
    fspec_slopes_free(n->soft);
    fspec_slopes_free(n->sparse);
}

/* A plain layer, two unequal residual blocks, and one of two factors, the outer one sparse. */
static network mixed(void)
{
    network n;
    make_slopes(&n);
    fspec_layer layers[5] = {{n.soft, 0.9, FSPEC_ORTHOGONAL, 1, 1},
                             {n.hard, 0.7, FSPEC_GAUSSIAN, 1, 1},
                             {n.soft, 0.5, FSPEC_ORTHOGONAL, 1, 1},
                             {n.hard, 0.6, FSPEC_ORTHOGONAL, 1, 1},
                             {n.sparse, 0.8, FSPEC_GAUSSIAN, 1, 1}};
    fspec_block blocks[4] = {{.n_layers = 1, .layers = layers, .repeat = 1},
                             {.n_layers = 1, .layers = layers + 1, .skip = 0.9, .repeat = 2},
                             {.n_layers = 1, .layers = layers + 2, .skip = 1.1, .repeat = 1},
                             {.n_layers = 2, .layers = layers + 3, .skip = 1.2, .repeat = 1}};
    CHECK(fspec_chain_new(4, blocks, 0.0, &n.chain) == FSPEC_OK, "chain");
    return n;
}

/* Plain layers of other widths and with slopes 0: 1 + m of its own accuracy, M(zeta) = r m. */
static network narrowing(void)
{
    network n;
    make_slopes(&n);
    fspec_layer layers[3] = {{n.sparse, 0.9, FSPEC_GAUSSIAN, 2.5, 1},
                             {n.hard, 0.7, FSPEC_GAUSSIAN, 1, 2.5},
                             {n.soft, 0.5, FSPEC_ORTHOGONAL, 1, 1}};
    fspec_block blocks[3] = {{.n_layers = 1, .layers = layers, .repeat = 1},
                             {.n_layers = 1, .layers = layers + 1, .repeat = 1},
                             {.n_layers = 1, .layers = layers + 2, .skip = 1.1, .repeat = 2}};
    CHECK(fspec_chain_new(3, blocks, 0.0, &n.chain) == FSPEC_OK, "chain");
    return n;
}

static network equal(const fspec_slopes *slopes, double variance, int ensemble, double repeat)
{
    network n = {NULL, NULL, NULL, NULL};
    fspec_layer layer = {slopes, variance, ensemble, 1, 1};
    fspec_block block = {.n_layers = 1, .layers = &layer, .skip = 1, .repeat = repeat};
    CHECK(fspec_chain_new(1, &block, 0.0, &n.chain) == FSPEC_OK, "chain");
    return n;
}

/* The walker at m; contours may cross the real axis, so the branch is not asked for. */
static fspec_walker walker_at(const fspec_chain *chain, double complex m)
{
    fspec_walker w;
    CHECK(fspec_walker_init(&w, chain) == FSPEC_OK, "memory");
    CHECK(fspec_walker_start(&w) == FSPEC_OK, "start");
    CHECK(fspec_walker_to_m(&w, m) == FSPEC_OK, "m = %g%+gi", creal(m), cimag(m));
    w.unchecked = 1;
    return w;
}

static fspec_closed closed_at(const fspec_chain *chain, size_t n_sites, const size_t *sites,
                              double complex m)
{
    fspec_walker w = walker_at(chain, m);
    fspec_closed out;
    fspec_closed_correction(chain, n_sites, sites, w.x, &out);
    fspec_walker_free(&w);
    return out;
}

/* ---- 50 digits ------------------------------------------------------------------------------ */

static const size_t order[8] = {2, 1, 0, 1, 3, 2, 1, 3}; /* of mixed() */
static const size_t uneven[5] = {0, 2, 1, 2, 2};         /* of narrowing() */
static const double complex narrow_points[3] = {0.02, -0.2 - 0.1 * I, -0.45 - 0.02 * I};

/* The blocks' equations, omega = E w^2/(E w)^2 - 1 and the double and triple sums with 50 digits;
 * derivatives from Cauchy's integral on 24 points. */
typedef struct {
    double complex m, u[4], two, three, next;
} reference;

static double off(double complex a, double complex exact) { return cabs(a / exact - 1.0); }

static void compare(const char *name, fspec_closed found, const reference *exact)
{
    for (int k = 0; k < 4; k++)
        CHECK(off(found.u[k], exact->u[k]) < 1e-14, "%s: derivative %d off by %g", name, k,
              off(found.u[k], exact->u[k]));
    CHECK(off(found.two, exact->two) < 2e-14, "%s: %g", name, off(found.two, exact->two));
    CHECK(off(found.three, exact->three) < 2e-14, "%s: %g", name, off(found.three, exact->three));
    CHECK(off(found.next, exact->next) < 2e-14, "%s: %g", name, off(found.next, exact->next));
}

static void test_digits(void)
{
    static const reference complex_m = {
        -0.3 - 0.8 * I,
        {0.00332355348029198334 - 0.00193467230183938727 * I,
         0.0338600554230817766 - 0.000343008262888756882 * I,
         0.0310640028111154905 + 0.394884915969556282 * I,
         -3.5961972602189911 - 0.359515403693019751 * I},
        0.00293703129740232192 - 0.00205312627721797592 * I,
        0.000386522182889661419 + 0.000118453975378588647 * I,
        9.59444153973960154e-6 + 0.000177753303110418097 * I};
    static const reference real_m = {
        0.01,
        {-2.46602603240608807e-10, -9.89736817063135139e-8, -0.0000298582465282373662,
         -0.0060379967069375661},
        -2.46596640015853285e-10, -5.9632247555224102e-15, -7.46486871047289397e-17};
    network n = mixed();
    compare("m complex", closed_at(n.chain, 8, order, complex_m.m), &complex_m);
    compare("m real", closed_at(n.chain, 8, order, real_m.m), &real_m);
    drop(&n);
}

/* kappa = 1.25e-6: omega is of the order of kappa^2 until |m| nears 1/kappa. */
static void test_small_blocks(void)
{
    static const reference ordinary = {
        -0.5 - 0.3 * I,
        {-7.04706567671261151e-28 - 2.11411907371505878e-33 * I,
         2.19702600214258978e-32 - 4.97440014682799752e-27 * I,
         4.29164008849601971e-26 + 2.28237148361553185e-31 * I,
         -2.35638557149028878e-30 + 3.5629801880398734e-25 * I},
        -7.04706567671220419e-28 - 2.11411907371487548e-33 * I,
        -4.07319855732724468e-41 - 1.83293880520249197e-46 * I,
        -1.35773285244453635e-41 - 6.10979601735277754e-47 * I};
    static const reference far = {
        -0.5 - 600 * I,
        {-0.00186134318907531623 - 0.000012412606693872841 * I,
         2.20063980038058809e-7 - 0.0000294574342574987502 * I,
         4.31665635753622412e-7 + 3.62677711750026748e-9 * I,
         -5.53227293213106719e-11 + 5.8570345565430372e-9 * I},
        -0.00170769361680077709 - 0.0000109365578287007857 * I,
        -0.000153649572274539134 - 1.47604886517205531e-6 * I,
        -0.0000512165240915832093 - 4.92016288391442435e-7 * I};
    static const size_t three[3] = {0, 0, 0};
    fspec_slopes *slopes = slopes_of(2, (double[]){0.5, 1.5}, (double[]){0.25, 0.75});
    network n = equal(slopes, 1e-6, FSPEC_GAUSSIAN, 1);
    compare("|m| < 1", closed_at(n.chain, 3, three, ordinary.m), &ordinary);
    compare("|m| = 600", closed_at(n.chain, 3, three, far.m), &far);
    drop(&n);
    fspec_slopes_free(slopes);
}

/* ---- direct sums ---------------------------------------------------------------------------- */

typedef long double complex wide;

typedef struct {
    wide omega, cubic, quartic, y;
} direct_site;

static direct_site direct(const fspec_chain *c, const fspec_chain_block *b, const fspec_state *x)
{
    const fspec_slopes *s = c->factors[b->first_factor + b->n_factors - 1].slopes;
    int plain = b->kind == FSPEC_PLAIN;
    wide zeta = x[plain ? b->first : b->first + 3 + b->n_factors], mean = s->zero, w;
    for (size_t k = 0; k < s->count; k++) mean += s->mass[k] * zeta / (zeta - s->value[k]);
    direct_site out = {0.0L, 0.0L, 0.0L, 0.0L};
    for (size_t k = 0; k <= s->count; k++) {
        double mass = k < s->count ? s->mass[k] : s->zero;
        w = (k < s->count ? zeta / (zeta - s->value[k]) / mean : 1.0L / mean) - 1.0L;
        out.omega += mass * w * w;
        out.cubic += mass * w * w * w;
        out.quartic += mass * w * w * w * w;
    }
    wide m = x[0];
    if (!plain) out.y = (1.0L + m) * x[b->first + 2] / (m * x[b->first + 3]);
    return out;
}

static void check_sums(const fspec_chain *c, size_t n, const size_t *sites, double complex m)
{
    fspec_walker w = walker_at(c, m);
    fspec_closed found;
    fspec_closed_correction(c, n, sites, w.x, &found);
    direct_site d[MOST_SITES];
    for (size_t i = 0; i < n; i++) d[i] = direct(c, &c->blocks[sites[i]], w.x);
    wide two = 0, three = 0, cubic = 0, quartic = 0;
    for (size_t i = 0; i < n; i++) {
        wide y = 1.0L, inner = 0.0L;
        for (size_t k = i + 1; k < n; k++) {
            y *= d[k].y;
            two -= d[i].omega * d[k].omega * y * y / 2;
            three -= 4 * d[i].omega * inner * d[k].omega * y * y;
            inner += d[k].omega;
            cubic -= d[i].cubic * d[k].cubic * y * y * y / 3;
            quartic -= d[i].quartic * d[k].quartic * y * y * y * y / 4;
        }
    }
    wide next = cabsl(cubic) < cabsl(quartic) ? quartic : cubic;
    if (two != 0 && cabsl(next) < cabsl(three * three / two)) next = three * three / two;
    double size = cabs((double complex)two) + cabs((double complex)three);
    CHECK(cabs(found.two - (double complex)two) <= 2e-14 * size, "%zu sites: dU_1", n);
    CHECK(cabs(found.three - (double complex)three) <= 2e-14 * size, "%zu sites: dU_3", n);
    CHECK(cabs(found.u[0] - found.two - found.three) <= 1e-14 * size, "%zu sites: dU", n);
    CHECK(cabs(found.next - (double complex)next) <= 5e-14 * cabs(found.next), "%zu sites", n);
    fspec_walker_free(&w);
}

static void test_sums(void)
{
    const double complex points[4] = {0.05, -0.4 - 0.5 * I, 0.05 - 0.3 * I, -0.9 - 0.01 * I};
    size_t sites[MOST_SITES];
    unsigned seed = 1;
    for (size_t i = 0; i < MOST_SITES; i++) {
        seed = seed * 1103515245u + 12345u;
        sites[i] = (seed >> 16) % 8 == 0 ? 0 : 1 + (seed >> 16) % 3;
    }
    network n = mixed();
    for (int i = 0; i < 4; i++)
        for (size_t count = 0; count <= MOST_SITES; count += count < 4 ? 1 : 20)
            check_sums(n.chain, count, sites, points[i]);
    drop(&n);
    n = narrowing();
    for (int i = 0; i < 3; i++) check_sums(n.chain, 5, uneven, narrow_points[i]);
    drop(&n);
}

/* Slopes of nearly one value, and very rarely another one. */
static void test_narrow_slopes(void)
{
    const double rare = ldexp(1.0, -40);
    const size_t sites[3] = {0, 0, 0};
    fspec_slopes *slopes = slopes_of(3, (double[]){0.125, 1.0, 1.0 + ldexp(1.0, -13)},
                                     (double[]){rare, 0.5 - rare, 0.5});
    network n = equal(slopes, 0.5, FSPEC_GAUSSIAN, 3);
    check_sums(n.chain, 3, sites, -0.4 - 0.5 * I);
    drop(&n);
    fspec_slopes_free(slopes);
}

/* More kinds of blocks than the small ones' memory holds. */
static void test_many_blocks(void)
{
    enum { KINDS = 40 };
    network n;
    make_slopes(&n);
    fspec_layer layers[KINDS];
    fspec_block blocks[KINDS];
    size_t sites[KINDS];
    for (size_t i = 0; i < KINDS; i++) {
        layers[i] = (fspec_layer){i % 2 ? n.soft : n.sparse, 0.02 + 0.001 * i, i % 3 != 0, 1, 1};
        blocks[i] = (fspec_block){
            .n_layers = 1, .layers = &layers[i], .skip = 0.9 + 0.01 * i, .repeat = 1};
        sites[i] = (7 * i) % KINDS;
    }
    CHECK(fspec_chain_new(KINDS, blocks, 0.0, &n.chain) == FSPEC_OK, "chain");
    check_sums(n.chain, KINDS, sites, -0.4 - 0.9 * I);
    drop(&n);
}

/* ---- derivatives ---------------------------------------------------------------------------- */

/* Cauchy's integral over a circle, by the trapezoidal rule. */
static void check_derivatives(const fspec_chain *c, size_t n, const size_t *sites, double complex m)
{
    enum { POINTS = 32 };
    double radius = 0.1 * fmin(cabs(m), cabs(c->positive + m));
    fspec_walker w = walker_at(c, m);
    fspec_closed centre, there;
    fspec_closed_correction(c, n, sites, w.x, &centre);
    double complex derivative[4] = {0.0};
    for (int j = 0; j < POINTS; j++) {
        double complex turn = cexp(2.0 * I * FSPEC_PI * j / POINTS), power = 1.0;
        CHECK(fspec_walker_to_m(&w, m + radius * turn) == FSPEC_OK, "circle");
        fspec_closed_correction(c, n, sites, w.x, &there);
        for (int k = 0; k < 4; k++, power *= radius * turn)
            derivative[k] += there.u[0] / power / POINTS;
    }
    double factorial = 1.0, rounding = 5e-15 * cabs(centre.u[0]); /* of the integral */
    for (int k = 0; k < 4; k++, factorial *= k, rounding /= radius) {
        double error = cabs(centre.u[k] - factorial * derivative[k]);
        CHECK(error < factorial * rounding, "derivative %d at %g%+gi: off by %g of %g", k,
              creal(m), cimag(m), error, cabs(centre.u[k]));
    }
    fspec_walker_free(&w);
}

static void test_derivatives(void)
{
    const double complex points[5] = {0.02, 1e-5 - 3e-6 * I, -0.2 - 0.6 * I, 0.1 - 0.2 * I,
                                      -0.95 - 0.04 * I};
    network n = mixed();
    for (int i = 0; i < 5; i++) check_derivatives(n.chain, 8, order, points[i]);
    drop(&n);
    n = narrowing();
    for (int i = 0; i < 3; i++) check_derivatives(n.chain, 5, uneven, narrow_points[i]);
    drop(&n);
}

/* ---- limits --------------------------------------------------------------------------------- */

/* m -> 0: log z = log M - log m + ... - dU' and dU = -c m^4 change the fourth moment by 4 c M^4,
 *     4 c = 2 sum_{i<j} (s2_i s2_j)^2 V_i V_j/(k_i k_j)^2 prod_{k=i+1..j} (a_k^2/k_k)^2,
 * k = a^2 + kappa, V = Var d; a block of two factors has kappa_1 s2_2 for s2. */
static void test_fourth_moment(void)
{
    const double skip2[4] = {0.0, 0.81, 1.21, 1.44}, s2[4] = {0.9, 0.7, 0.5, 0.6 * 0.5 * 0.8};
    network n = mixed();
    double share[4], kept[4], sum = 0.0, m = 1e-7;
    for (int b = 0; b < 4; b++) {
        const fspec_slopes *s = b == 1 ? n.hard : b == 3 ? n.sparse : n.soft;
        double k = skip2[b] + s2[b] * s->mean;
        share[b] = s2[b] * s2[b] * (s->second - s->mean * s->mean) / (k * k);
        kept[b] = skip2[b] / k;
    }
    for (int i = 0; i < 8; i++) {
        double y = 1.0;
        for (int j = i + 1; j < 8; j++) {
            y *= kept[order[j]];
            sum += 2.0 * share[order[i]] * share[order[j]] * y * y;
        }
    }
    fspec_closed found = closed_at(n.chain, 8, order, m);
    const double exact[4] = {-sum * pow(m, 4) / 4, -sum * pow(m, 3), -3 * sum * pow(m, 2),
                             -6 * sum * m};
    for (int k = 0; k < 4; k++)
        CHECK(off(found.u[k], exact[k]) < 1e-5, "derivative %d: %g", k, creal(found.u[k]));
    drop(&n);
}

/* L blocks of kappa = theta/L, L -> infinity: dU -> -theta^4 v^2/(2 L^2) h (m(1+m))^4,
 * h = (2 theta - 1 + exp(-2 theta))/(4 theta^2); the next order falls off like 1/L. */
static void test_deep(void)
{
    static const size_t zeros[2 * DEEP];
    const double theta = 0.7;
    const double complex m = -0.4 - 0.9 * I;
    double h = (2.0 * theta - 1.0 + exp(-2.0 * theta)) / (4.0 * theta * theta);
    fspec_slopes *slopes = slopes_of(3, (double[]){0.1, 0.4, 1.2}, (double[]){0.3, 0.5, 0.2});
    double v = slopes->second / (slopes->mean * slopes->mean) - 1.0;
    for (int ensemble = 0; ensemble < 2; ensemble++) {
        double complex ratio[2];
        for (int i = 0; i < 2; i++) {
            double depth = (i + 1) * DEEP;
            network n = equal(slopes, theta / depth / slopes->mean, ensemble, depth);
            fspec_closed found = closed_at(n.chain, (i + 1) * DEEP, zeros, m);
            double complex limit = -h * cpow(m * (1.0 + m) * theta, 4) * v * v / 2.0;
            ratio[i] = found.u[0] * depth * depth / limit;
            drop(&n);
        }
        CHECK(off(2.0 * ratio[1] - ratio[0], 1.0) < 1e-5, "%g", off(ratio[1], 1.0));
    }
    fspec_slopes_free(slopes);
}

static void check_nothing(const char *name, fspec_closed found)
{
    CHECK(found.u[0] == 0.0 && found.u[3] == 0.0 && found.next == 0.0, "%s", name);
}

/* Slopes of one value, a single site, and plain layers only have nothing to correct. */
static void test_nothing(void)
{
    const size_t three[3] = {0, 0, 0};
    fspec_slopes *one = slopes_of(1, (double[]){0.7}, (double[]){1.0});
    network n = mixed(), same = equal(one, 0.5, FSPEC_GAUSSIAN, 3);
    check_nothing("plain layers", closed_at(n.chain, 3, three, -0.3 - 0.8 * I));
    check_nothing("one site", closed_at(n.chain, 1, order, -0.3 - 0.8 * I));
    check_nothing("equal slopes", closed_at(same.chain, 3, three, -0.3 - 0.8 * I));
    drop(&n);
    drop(&same);
    fspec_slopes_free(one);
}

void test_closed(void)
{
    test_digits();
    test_small_blocks();
    test_sums();
    test_narrow_slopes();
    test_many_blocks();
    test_derivatives();
    test_fourth_moment();
    test_deep();
    test_nothing();
}
