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
 */
#include <complex.h>
#include <math.h>

#include "fspec_panels.h"
#include "fspec_slopes.h"

typedef double complex cplx;

static const double EPS = 2.220446049250313e-16;
static const double INVERSE_SQRT_2PI = 0.39894228040143267794;
/* A cover is good where no root is closer to a joint, in t. */
static const double CLEAR_OF_JOINTS = 0.08;

/* Where the search for a root gives up. */
static const double FAR_AWAY = 100.0;

enum { MAX_STEPS = 20 };

typedef struct {
    cplx m, e, dm;
} sums;

typedef struct {
    cplx value, slope, curve;
} jet;

/* p, p', p'' at t by Clenshaw's recurrence and its derivatives. */
static jet series_at(const fspec_panel *panel, cplx t)
{
    cplx b1 = 0, b2 = 0, c1 = 0, c2 = 0, a1 = 0, a2 = 0;
    for (size_t k = panel->terms; k-- > 1;) {
        cplx a = 4.0 * c1 + 2.0 * t * a1 - a2;
        cplx c = 2.0 * b1 + 2.0 * t * c1 - c2;
        cplx b = panel->series[k] + 2.0 * t * b1 - b2;
        a2 = a1, a1 = a;
        c2 = c1, c1 = c;
        b2 = b1, b1 = b;
    }
    return (jet){panel->series[0] + t * b1 - b2, b1 + t * c1 - c2, 2.0 * c1 + t * a1 - a2};
}

/* Major semi-axis of the ellipse with foci +-1 through t. */
static double axis_of(cplx t)
{
    return 0.5 * (cabs(t - 1.0) + cabs(t + 1.0));
}

/* Zeros of c0 + c1 t + c2 (2 t^2 - 1) - target; returns how many. */
static int quadratic_roots(const fspec_panel *panel, cplx target, cplx roots[2])
{
    double c1 = panel->series[1], c2 = panel->terms > 2 ? panel->series[2] : 0.0;
    cplx c = panel->series[0] - c2 - target;
    cplx root = csqrt(c1 * c1 - 8.0 * c2 * c);
    cplx sum = -0.5 * (c1 + (c1 * creal(root) >= 0.0 ? root : -root));
    if (sum == 0.0) { /* c1 = 0, c = 0 */
        roots[0] = roots[1] = 0.0;
        return c2 != 0.0 ? 2 : 0;
    }
    roots[0] = c / sum;
    if (c2 == 0.0)
        return 1;
    roots[1] = sum / (2.0 * c2);
    return 2;
}

/* Number of roots in one of the ellipses, by Rouche's theorem with the quadratic part: a guess is
 * at least |own axis - axis| from the boundary. -1 where the theorem does not tell. */
static int count_of_roots(const fspec_panel *panel, const cplx *guess, int guesses, double *axis)
{
    double leading = guesses == 2 ? 2.0 * fabs(panel->series[2]) : fabs(panel->series[1]);
    for (size_t e = 0; e < FSPEC_ELLIPSES; e++) {
        int inside = 0;
        double least = leading;
        *axis = cosh(FSPEC_LOG_RHO[e]);
        for (int i = 0; i < guesses; i++) {
            double own = axis_of(guess[i]);
            least *= fabs(own - *axis);
            inside += own < *axis;
        }
        if (least > panel->remainder[e])
            return inside;
    }
    *axis = cosh(FSPEC_LOG_RHO[0]);
    return -1;
}

/* Laguerre's method from t, for the polynomial without the n_known roots; 0 if it fails. */
static int next_root(const fspec_panel *panel, cplx target, cplx t, const cplx *known, int n_known,
                     cplx *root)
{
    double degree = (double)panel->terms - 1.0 - n_known;
    int step = 0;
    for (; step < MAX_STEPS; step++) {
        jet p = series_at(panel, t);
        cplx f = p.value - target;
        if (cabs(f) <= EPS * cabs(target))
            break;
        cplx g = p.slope / f, h = g * g - p.curve / f;
        for (int i = 0; i < n_known; i++) {
            cplx away = 1.0 / (t - known[i] + (t == known[i] ? EPS : 0.0));
            g -= away;
            h -= away * away;
        }
        cplx root_term = csqrt((degree - 1.0) * (degree * h - g * g));
        cplx plus = g + root_term, minus = g - root_term;
        cplx move = degree / (cabs(plus) >= cabs(minus) ? plus : minus);
        t -= move;
        if (!(axis_of(t) < FAR_AWAY))
            return 0;
        if (cabs(move) <= 1e-10 * (1.0 + cabs(t)))
            break;
    }
    jet p = series_at(panel, t); /* the last step without the deflation */
    cplx move = (p.value - target) / p.slope;
    *root = cabs(move) < 1e-6 ? t - move : t;
    return step < MAX_STEPS;
}

/* All t in the ellipse with p(t) = target; returns how many. */
static int roots_of(const fspec_panel *panel, cplx target, cplx roots[FSPEC_MAX_TERMS])
{
    if (panel->terms < 2 || cabs(panel->series[0] - target) > panel->reach)
        return 0;
    static const cplx STARTS[] = {0.31 * I, -0.47 * I, 0.93, -1.07, 0.51 + 0.83 * I,
                                  0.61 - 0.89 * I, -0.43 + 0.87 * I, -0.57 - 0.79 * I};
    enum { N_STARTS = sizeof STARTS / sizeof *STARTS };
    cplx start[2], known[FSPEC_MAX_TERMS];
    int guesses = quadratic_roots(panel, target, start);
    double axis;
    int expected = count_of_roots(panel, start, guesses, &axis);
    int degree = (int)panel->terms - 1, n_known = 0, found = 0, outside = 0;
    for (int attempt = 0; attempt < guesses + N_STARTS; attempt++) {
        if (found == expected || n_known == degree || (expected < 0 && outside >= 2))
            break;
        cplx t = attempt < guesses ? start[attempt] : STARTS[attempt - guesses];
        if (axis_of(t) > 3.0)
            t *= 2.0 / cabs(t);
        if (!next_root(panel, target, t, known, n_known, &known[n_known]))
            continue;
        if (axis_of(known[n_known]) < axis)
            roots[found++] = known[n_known];
        else
            outside++;
        n_known++;
    }
    return found;
}

/* int dt/(t - t0) - sum w_j/(x_j - t0) and its derivative in t0. */
static void rule_error(const fspec_rule *rule, cplx t0, cplx *error, cplx *slope)
{
    double x = creal(t0), y = cimag(t0);
    double right = (1.0 - x) * (1.0 - x) + y * y, left = (1.0 + x) * (1.0 + x) + y * y;
    *error = 0.5 * log(right / left) + I * (atan2(-y, 1.0 - x) - atan2(-y, -1.0 - x));
    *slope = 2.0 / ((t0 - 1.0) * (t0 + 1.0));
    for (size_t j = 0; j < rule->size; j++) {
        double away = rule->node[j] - x, scale = 1.0 / (away * away + y * y);
        cplx inverse = away * scale + I * (y * scale);
        *error -= rule->weight[j] * inverse;
        *slope -= rule->weight[j] * (inverse * inverse);
    }
}

/* The rule whose nodes keep farthest from the roots, in units of the spacing. */
static size_t best_rule(const struct fspec_panels *panels, const cplx *roots, int n)
{
    size_t best = 0;
    double best_gap = -1.0;
    for (size_t r = 0; r < FSPEC_RULES; r++) {
        const fspec_rule *rule = &panels->rules[r];
        double gap = INFINITY;
        for (int i = 0; i < n; i++)
            for (size_t j = 0; j < rule->size; j++)
                gap = fmin(gap, hypot(rule->node[j] - creal(roots[i]), cimag(roots[i])) /
                                    rule->weight[j]);
        if (gap > best_gap) {
            best_gap = gap;
            best = r;
        }
        if (gap > 0.4)
            break;
    }
    return best;
}

static void add_nodes(sums *total, cplx zeta, const double *value, const double *mass, size_t n)
{
    double zr = creal(zeta), zi = cimag(zeta);
    double m_re = 0, m_im = 0, e_re = 0, e_im = 0, dm_re = 0, dm_im = 0;
    for (size_t j = 0; j < n; j++) {
        double away = zr - value[j], scale = 1.0 / (away * away + zi * zi);
        double re = away * scale, im = -zi * scale; /* 1/(zeta - d) */
        double w = mass[j], wd = w * value[j];
        e_re += w * re;
        e_im += w * im;
        m_re += wd * re;
        m_im += wd * im;
        dm_re -= wd * (re * re - im * im);
        dm_im -= wd * (2.0 * re * im);
    }
    total->m += m_re + I * m_im;
    total->e += zeta * (e_re + I * e_im);
    total->dm += dm_re + I * dm_im;
}

/* zeta in the closed upper half plane lies on the side of the real axis where d' takes it. */
static cplx on_its_side(cplx t, cplx d_slope, double noise)
{
    double y = cimag(t), lean = creal(d_slope) / cabs(d_slope);
    return creal(t) + I * copysign(fabs(y), y + noise * lean);
}

static void add_pole(sums *total, const fspec_panel *panel, const fspec_rule *rule, cplx zeta,
                     cplx s, cplx t)
{
    jet p = series_at(panel, t);
    cplx d_slope = 2.0 * s * p.slope;
    t = on_its_side(t, d_slope, 32.0 * EPS * (cabs(s) / cabs(p.slope) + 1.0));
    cplx z = panel->centre + panel->half * t;
    cplx residue = -panel->half * INVERSE_SQRT_2PI * cexp(-0.5 * z * z) * s / (2.0 * p.slope);
    cplx error, slope;
    rule_error(rule, t, &error, &slope);
    cplx log_slope = 0.5 / zeta - (panel->half * z + p.curve / p.slope) / d_slope;
    total->m += residue * error;
    total->e += residue * error;
    total->dm += residue * (log_slope * error + slope / d_slope);
}

/* Adds a panel; returns how near a joint its roots come, in t. */
static double add_panel(sums *total, const struct fspec_panels *panels, const fspec_panel *panel,
                        cplx zeta, cplx s)
{
    cplx roots[2 * FSPEC_MAX_TERMS];
    int plus = roots_of(panel, s, roots), n = plus + roots_of(panel, -s, roots + plus);
    if (n == 0) {
        add_nodes(total, zeta, panel->d, panel->weight, FSPEC_RULE_SIZE);
        return 1.0;
    }
    const fspec_rule *rule = &panels->rules[best_rule(panels, roots, n)];
    double d[FSPEC_RULE_PAD], weight[FSPEC_RULE_PAD], clear = 1.0;
    fspec_panel_nodes(panel, rule, d, weight);
    add_nodes(total, zeta, d, weight, rule->size);
    for (int i = 0; i < n; i++) {
        add_pole(total, panel, rule, zeta, i < plus ? s : -s, roots[i]);
        if (panel->joints & 1)
            clear = fmin(clear, cabs(roots[i] + 1.0));
        if (panel->joints & 2)
            clear = fmin(clear, cabs(roots[i] - 1.0));
    }
    return clear;
}

static sums by_panels(const struct fspec_panels *panels, cplx zeta)
{
    cplx s = csqrt(zeta);
    sums best = {0, 0, 0};
    double best_clear = -1.0;
    for (size_t c = 0; c < panels->n_covers && best_clear < CLEAR_OF_JOINTS; c++) {
        sums total = {0, 0, 0};
        double clear = 1.0;
        for (size_t i = panels->start[c]; i < panels->start[c + 1]; i++)
            clear = fmin(clear, add_panel(&total, panels, &panels->panel[i], zeta, s));
        if (clear > best_clear) {
            best_clear = clear;
            best = total;
        }
    }
    return best;
}

fspec_slopes_value fspec_slopes_near(const fspec_slopes *slopes, double re, double im)
{
    int below = signbit(im) != 0;
    cplx zeta = re + I * fabs(im);
    sums v = {0, 0, 0};
    if (zeta == 0.0) {
        v = (sums){-slopes->positive, 0, NAN};
    } else if (!slopes->panels || cabs(zeta - slopes->top) + cabs(zeta) >= slopes->guard) {
        add_nodes(&v, zeta, slopes->value, slopes->mass, slopes->count);
    } else {
        int exponent = -2 * slopes->panels->exponent;
        v = by_panels(slopes->panels, ldexp(re, exponent) + I * ldexp(fabs(im), exponent));
        v.dm = ldexp(creal(v.dm), exponent) + I * ldexp(cimag(v.dm), exponent);
        add_nodes(&v, zeta, slopes->atom_value, slopes->atom_mass, slopes->n_atoms);
    }
    double sign = below ? -1.0 : 1.0;
    return (fspec_slopes_value){creal(v.m), sign * cimag(v.m), creal(v.e), sign * cimag(v.e),
                                creal(v.dm), sign * cimag(v.dm)};
}
