/* M(zeta) = E d/(zeta - d), d = phi'(h)^2, at any zeta up to the support.
 *
 * On each panel phi' is a polynomial p(t), and the integrand has simple poles where p(t0) = +-s,
 * s^2 = zeta. Gauss-Legendre rules are exact to rounding once every pole inside a Bernstein
 * ellipse is taken out: near it the integrand is R/(t - t0) with
 *
 *     R = -half w(z0) s/(2 p'(t0)),   w the normal density,
 *
 * and the rule's error on 1/(t - t0) is known, F(t0) = int dt/(t - t0) - sum w_j/(x_j - t0)
 * (= -2 Q_n/P_n of Legendre). M + P(d > 0) = zeta E 1/(zeta - d) has the same pole terms.
 *
 * How many poles there are is the winding number of p about +-s on the ellipse.
 *
 * The including file sets FSPEC_LANES and FSPEC_NEAR, the name of the function.
 */
#include <complex.h>
#include <math.h>

#include "fspec_lanes.h"
#include "fspec_panels.h"
#include "fspec_slopes.h"

typedef double complex cplx;

static const double EPS = 2.220446049250313e-16;
static const double INVERSE_SQRT_2PI = 0.39894228040143267794;
/* How far in t the roots should keep from the joints; the first distance that some cover has. */
static const double CLEAR[] = {0.08, 0.02, 0.005, 0.0};
enum { CLEARS = sizeof CLEAR / sizeof *CLEAR };

/* Major semi-axis of an ellipse that encloses every root counted (rho = 2.6). */
static const double AXIS = 1.4923;
/* Where the search for a root gives up. */
static const double FAR_AWAY = 100.0;
/* How near the root a step starts that leaves nothing of its error. */
static const double SMALL_STEP = 1e-8;
/* Of p(t) beside its value: nearer to a double root no step can take t. */
static const double ROUNDING = 4e-16;
/* Distance of a rule's nodes from the poles, in units of the spacing, that costs no digits. */
static const double GAP = 0.3;

enum { MAX_STEPS = 30 };

/* Sums over nodes: of w, w d and w d 1/(zeta - d), times 1/(zeta - d) (as conj(..)/|..|^2). */
typedef struct {
    double w_re, w_im, d_re, d_im, square, cross;
} node_sums;

typedef struct {
    cplx m, dm;
} pole_sums;

typedef struct {
    cplx value, slope, curve;
} jet;

typedef struct {
    cplx t;
    jet p;
    int sign; /* p = sign s */
} root;

static double norm2(cplx a) { return creal(a) * creal(a) + cimag(a) * cimag(a); }
static double modulus(cplx a) { return sqrt(norm2(a)); }

static cplx square_root(cplx a)
{
    double size = modulus(a), big = sqrt(0.5 * (size + fabs(creal(a))));
    double small = big > 0.0 ? 0.5 * cimag(a) / big : 0.0;
    return creal(a) >= 0.0 ? big + I * small : fabs(small) + I * copysign(big, cimag(a));
}

/* p, p', p'' at t by Horner's rule. */
static jet series_at(const fspec_panel *panel, cplx t)
{
    cplx a = 0, b = 0, c = 0;
    for (size_t k = panel->terms; k-- > 0;) {
        c = c * t + b;
        b = b * t + a;
        a = a * t + panel->power[k];
    }
    return (jet){a, b, 2.0 * c};
}

/* Major semi-axis of the ellipse with foci +-1 through t. */
static double axis_of(cplx t) { return 0.5 * (modulus(t - 1.0) + modulus(t + 1.0)); }

/* Zeros of the quadratic part - target, the smaller one first; returns how many. */
static int quadratic_roots(const fspec_panel *panel, cplx target, cplx roots[2])
{
    double b = panel->guess[1], a = panel->guess[2];
    cplx c = panel->guess[0] - target;
    cplx root = square_root(b * b - 4.0 * a * c);
    cplx sum = -0.5 * (b + (b * creal(root) >= 0.0 ? root : -root));
    if (norm2(sum) == 0.0) { /* b = 0, c = 0 */
        roots[0] = roots[1] = 0.0;
        return a != 0.0 ? 2 : 0;
    }
    roots[0] = c / sum;
    if (a == 0.0)
        return 1;
    roots[1] = sum / a;
    return 2;
}

/* Roots of p = target in the ellipse: how often the image of the ellipse crosses the ray from the
 * target to the right. */
static int count_of_roots(const fspec_panel *panel, cplx target)
{
    vd x = v_set(creal(target)), y = v_set(cimag(target)), zero = v_set(0.0);
    const double *re = panel->corner_re, *im = panel->corner_im;
    vi turns = v_lt(zero, zero); /* none; a mask that holds is -1 */
    for (size_t k = 0; k < FSPEC_CORNERS; k += FSPEC_LANES) {
        vd re0 = v_load(re + k), im0 = v_load(im + k);
        vd re1 = v_load(re + k + 1), im1 = v_load(im + k + 1);
        vd side = (re0 - x) * (im1 - y) - (re1 - x) * (im0 - y);
        vi below0 = v_le(im0, y), below1 = v_le(im1, y);
        turns -= below0 & ~below1 & v_lt(zero, side);
        turns += ~below0 & below1 & v_lt(side, zero);
    }
    int64_t lane[FSPEC_LANES], sum = 0;
    memcpy(lane, &turns, sizeof turns);
    for (int i = 0; i < FSPEC_LANES; i++) sum += lane[i];
    return (int)sum;
}

/* A root from t by the parabola through p, p', p'' (Cauchy's method), for p without the n_known
 * roots; 0 if it fails. */
static int next_root(const fspec_panel *panel, cplx target, cplx t, const root *known, int n_known,
                     root *found)
{
    cplx before = t, curve_before = 0.0, third = 0.0;
    for (int step = 0; step < MAX_STEPS; step++) {
        jet p = series_at(panel, t);
        if (norm2(t - before) > 0.0)
            third = (p.curve - curve_before) / (t - before); /* about the third derivative */
        before = t;
        curve_before = p.curve;
        cplx f = p.value - target, move = 0.0;
        if (norm2(f) > ROUNDING * ROUNDING * norm2(target)) {
            cplx g = p.slope / f, curve = p.curve / f, h = g * g - curve;
            for (int i = 0; i < n_known; i++) {
                cplx away = 1.0 / (t - known[i].t + (t == known[i].t ? EPS : 0.0));
                g -= away;
                h -= away * away;
            }
            cplx root_term = square_root(2.0 * h - g * g);
            int along = creal(g) * creal(root_term) + cimag(g) * cimag(root_term) >= 0.0;
            move = 2.0 / (along ? g + root_term : g - root_term);
        }
        if (norm2(move) <= SMALL_STEP * SMALL_STEP) {
            cplx last = f / p.slope; /* without the deflation */
            if (!(norm2(last) < 1e-12))
                last = 0.0;
            cplx curve = p.curve - last * third;
            *found = (root){t - last, {target, p.slope - 0.5 * last * (p.curve + curve), curve}, 0};
            return 1;
        }
        t -= move;
        if (!(norm2(t) < FAR_AWAY * FAR_AWAY))
            return 0;
    }
    return 0;
}

/* All t in the ellipse with p(t) = target; returns how many, -1 if one was not found. */
static int roots_of(const fspec_panel *panel, cplx target, root *roots)
{
    static const cplx STARTS[] = {0.31 * I, -0.47 * I, 0.93, -1.07, 0.51 + 0.83 * I,
                                  0.61 - 0.89 * I, -0.43 + 0.87 * I, -0.57 - 0.79 * I};
    enum { N_STARTS = sizeof STARTS / sizeof *STARTS };
    int expected = count_of_roots(panel, target);
    if (expected <= 0)
        return 0;
    cplx start[2];
    int guesses = quadratic_roots(panel, target, start), found = 0;
    root known[FSPEC_MAX_TERMS];
    for (int attempt = 0, n_known = 0; attempt < guesses + N_STARTS; attempt++) {
        cplx t = attempt < guesses ? start[attempt] : STARTS[attempt - guesses];
        if (norm2(t) > 9.0)
            t *= 2.0 / modulus(t);
        if (n_known == (int)panel->terms - 1 ||
            !next_root(panel, target, t, known, n_known, &known[n_known]))
            continue;
        if (axis_of(known[n_known].t) < AXIS)
            roots[found++] = known[n_known];
        if (found == expected)
            return found;
        n_known++;
    }
    return -1;
}

/* Both signs of s; returns how many roots, -1 if one was not found. */
static int all_roots(const fspec_panel *panel, cplx s, root roots[2 * FSPEC_MAX_TERMS])
{
    int plus = roots_of(panel, s, roots);
    int minus = plus < 0 ? -1 : roots_of(panel, -s, roots + plus);
    for (int i = 0; i < plus; i++) roots[i].sign = 1;
    for (int i = 0; i < minus; i++) roots[plus + i].sign = -1;
    return minus < 0 ? -1 : plus + minus;
}

/* Least distance of the roots from the joints. */
static double clearance(const fspec_panel *panel, const root *roots, int n)
{
    double clear2 = 1.0;
    for (int i = 0; i < n; i++) {
        if (panel->joints & 1)
            clear2 = fmin(clear2, norm2(roots[i].t + 1.0));
        if (panel->joints & 2)
            clear2 = fmin(clear2, norm2(roots[i].t - 1.0));
    }
    return sqrt(clear2);
}

static double lane_sum(vd a)
{
    double lane[FSPEC_LANES], sum = 0.0;
    v_store(lane, a);
    for (int i = 0; i < FSPEC_LANES; i++) sum += lane[i];
    return sum;
}

static void add_nodes(node_sums *total, cplx zeta, const double *value, const double *mass,
                      size_t n)
{
    double zr = creal(zeta), zi2 = cimag(zeta) * cimag(zeta);
    size_t j = 0;
    vd w_re = v_set(0.0), w_im = w_re, d_re = w_re, d_im = w_re, square = w_re, cross = w_re;
    for (; j + FSPEC_LANES <= n; j += FSPEC_LANES) {
        vd d = v_load(value + j), w = v_load(mass + j), away = zr - d;
        vd scale = 1.0 / (away * away + zi2), re = away * scale;
        vd x = w * re, y = w * scale, dx = d * x, dy = d * y;
        w_re += x;
        w_im += y;
        d_re += dx;
        d_im += dy;
        square += dx * re;
        cross += dy * re;
    }
    total->w_re += lane_sum(w_re);
    total->w_im += lane_sum(w_im);
    total->d_re += lane_sum(d_re);
    total->d_im += lane_sum(d_im);
    total->square += lane_sum(square);
    total->cross += lane_sum(cross);
    for (; j < n; j++) {
        double away = zr - value[j], scale = 1.0 / (away * away + zi2), re = away * scale;
        double x = mass[j] * re, y = mass[j] * scale, dx = value[j] * x, dy = value[j] * y;
        total->w_re += x;
        total->w_im += y;
        total->d_re += dx;
        total->d_im += dy;
        total->square += dx * re;
        total->cross += dy * re;
    }
}

/* Least squared distance of a rule's nodes from the roots, in units of the spacing. */
static double gap2_of(const fspec_rule *rule, const root *roots, int n)
{
    double gap2 = INFINITY;
    for (int i = 0; i < n; i++) {
        double x = creal(roots[i].t), y2 = cimag(roots[i].t) * cimag(roots[i].t);
        if (y2 > 0.01)
            continue;
        for (size_t j = 0; j < rule->size; j++) {
            double away = rule->node[j] - x, own = (away * away + y2) / (rule->weight[j] *
                                                                        rule->weight[j]);
            gap2 = own < gap2 ? own : gap2;
        }
    }
    return gap2;
}

/* The first rule whose nodes keep far enough from the roots, or the one that keeps farthest. */
static size_t best_rule(const struct fspec_panels *panels, const root *roots, int n)
{
    size_t best = 0;
    double best_gap2 = -1.0;
    for (size_t r = 0; r < FSPEC_RULES && best_gap2 < GAP * GAP; r++) {
        double gap2 = gap2_of(&panels->rules[r], roots, n);
        if (gap2 > best_gap2) {
            best_gap2 = gap2;
            best = r;
        }
    }
    return best;
}

/* int dt/(t - t0) - sum w_j/(x_j - t0) and its derivative in t0. */
static void rule_error(const fspec_rule *rule, cplx t0, cplx *error, cplx *slope)
{
    double x = creal(t0), y = cimag(t0);
    double right = (1.0 - x) * (1.0 - x) + y * y, left = (1.0 + x) * (1.0 + x) + y * y;
    vd re = v_set(0.0), im = re, square = re, cross = re;
    for (size_t j = 0; j < rule->stride; j += FSPEC_LANES) {
        vd away = v_load(rule->node + j) - x, weight = v_load(rule->weight + j);
        vd scale = 1.0 / (away * away + y * y), own = away * scale;
        vd one = weight * own, other = weight * scale;
        re += one;
        im += other;
        square += one * own;
        cross += other * own;
    }
    double i0 = lane_sum(im);
    *error = 0.5 * log(right / left) - lane_sum(re) +
             I * (atan2(2.0 * y, (x - 1.0) * (x + 1.0) + y * y) - y * i0);
    *slope = 2.0 / ((t0 - 1.0) * (t0 + 1.0)) - (2.0 * lane_sum(square) - i0) -
             I * (2.0 * y * lane_sum(cross));
}

/* zeta in the closed upper half plane lies on the side of the real axis where d' takes it. */
static cplx on_its_side(cplx t, cplx d_slope, double noise)
{
    double y = cimag(t), lean = creal(d_slope) / modulus(d_slope);
    return creal(t) + I * copysign(fabs(y), y + noise * lean);
}

static void add_pole(pole_sums *total, const fspec_panel *panel, const fspec_rule *rule, cplx zeta,
                     cplx s, const root *at)
{
    cplx signed_s = at->sign * s, d_slope = 2.0 * signed_s * at->p.slope;
    double noise = 32.0 * EPS * (modulus(s) / modulus(at->p.slope) + 1.0);
    cplx t = on_its_side(at->t, d_slope, noise), z = panel->centre + panel->half * t;
    cplx exponent = -0.5 * z * z;
    double size = -panel->half * INVERSE_SQRT_2PI * exp(creal(exponent));
    cplx residue = size * (cos(cimag(exponent)) + I * sin(cimag(exponent))) * signed_s /
                   (2.0 * at->p.slope);
    cplx error, slope;
    rule_error(rule, t, &error, &slope);
    cplx log_slope = 0.5 / zeta - (panel->half * z + at->p.curve / at->p.slope) / d_slope;
    total->m += residue * error;
    total->dm += residue * (log_slope * error + slope / d_slope);
}

/* The sums over one cover; 0 if a root is closer than `clear` to a joint. */
static int sum_cover(const struct fspec_panels *panels, size_t cover, cplx zeta, cplx s,
                     double clear, node_sums *nodes, pole_sums *poles)
{
    double x = creal(s), y2 = cimag(s) * cimag(s);
    size_t from = panels->start[cover], end = panels->start[cover + 1];
    for (size_t i = from; i < end; i++) {
        double low = fabs(panels->middle[i]) - x;
        if (low * low + y2 > panels->reach2[i])
            continue;
        const fspec_panel *panel = &panels->panel[i];
        root roots[2 * FSPEC_MAX_TERMS];
        int n = all_roots(panel, s, roots);
        if (n == 0)
            continue;
        if (n < 0)
            poles->m = poles->dm = NAN;
        if (clearance(panel, roots, n) < clear)
            return 0;
        size_t best = best_rule(panels, roots, n);
        const fspec_rule *rule = &panels->rules[best], *first = &panels->rules[0];
        add_nodes(nodes, zeta, panels->d[0] + from * first->stride,
                  panels->weight[0] + from * first->stride, (i - from) * first->stride);
        add_nodes(nodes, zeta, panels->d[best] + i * rule->stride,
                  panels->weight[best] + i * rule->stride, rule->stride);
        from = i + 1;
        for (int k = 0; k < n; k++) add_pole(poles, panel, rule, zeta, s, &roots[k]);
    }
    size_t stride = panels->rules[0].stride;
    add_nodes(nodes, zeta, panels->d[0] + from * stride, panels->weight[0] + from * stride,
              (end - from) * stride);
    return 1;
}

static void by_panels(const struct fspec_panels *panels, cplx zeta, node_sums *nodes,
                      pole_sums *poles)
{
    cplx s = csqrt(zeta);
    for (size_t k = 0; k < CLEARS; k++)
        for (size_t c = 0; c < panels->n_covers; c++) {
            *nodes = (node_sums){0, 0, 0, 0, 0, 0};
            *poles = (pole_sums){0, 0};
            if (sum_cover(panels, c, zeta, s, CLEAR[k], nodes, poles))
                return;
        }
}

static cplx m_of(const node_sums *v, cplx zeta) { return v->d_re - I * (cimag(zeta) * v->d_im); }

static cplx e_of(const node_sums *v, cplx zeta)
{
    return zeta * (v->w_re - I * (cimag(zeta) * v->w_im));
}

static cplx dm_of(const node_sums *v, cplx zeta)
{
    return v->d_im - 2.0 * v->square + I * (2.0 * cimag(zeta) * v->cross);
}

static cplx times_power(cplx a, int exponent)
{
    return ldexp(creal(a), exponent) + I * ldexp(cimag(a), exponent);
}

static fspec_slopes_value FSPEC_NEAR(const fspec_slopes *slopes, double re, double im)
{
    double sign = signbit(im) ? -1.0 : 1.0, size = sqrt(re * re + im * im);
    double gap = re - slopes->top, focal = sqrt(gap * gap + im * im) + size;
    cplx zeta = re + I * fabs(im), m = 0, e = 0, dm = 0;
    node_sums nodes = {0, 0, 0, 0, 0, 0};
    if (zeta == 0.0) {
        m = -slopes->positive;
        dm = NAN;
    } else if (!slopes->panels || focal >= slopes->guard) {
        add_nodes(&nodes, zeta, slopes->value, slopes->mass, slopes->count);
    } else if (size < slopes->resolved) {
        m = e = dm = NAN + I * NAN;
    } else {
        int exponent = -2 * slopes->panels->exponent;
        cplx scaled = times_power(zeta, exponent);
        node_sums on_panels;
        pole_sums poles;
        by_panels(slopes->panels, scaled, &on_panels, &poles);
        m = m_of(&on_panels, scaled) + poles.m;
        e = e_of(&on_panels, scaled) + poles.m;
        dm = times_power(dm_of(&on_panels, scaled) + poles.dm, exponent);
        add_nodes(&nodes, zeta, slopes->atom_value, slopes->atom_mass, slopes->n_atoms);
    }
    m += m_of(&nodes, zeta);
    e += e_of(&nodes, zeta);
    dm += dm_of(&nodes, zeta);
    return (fspec_slopes_value){creal(m), sign * cimag(m), creal(e), sign * cimag(e),
                                creal(dm), sign * cimag(dm)};
}
