/* Slope laws: construction. The transform near the support is in fspec_slopes_near.c. */
#include "fspec_slopes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fspec_panels.h"

static const double PI = 3.14159265358979323846;
/* Relative error of the Gauss rule on the guard ellipse. */
static const double LOG_GUARD_ERROR = 41.4; /* -log 1e-18 */

/* A copy of n numbers; NULL with *failed set when memory is out. */
static double *copied(size_t n, const double *from, int *failed)
{
    double *to = malloc((n ? n : 1) * sizeof *to);
    if (!to)
        *failed = 1;
    else if (n)
        memcpy(to, from, n * sizeof *to);
    return to;
}

void fspec_slopes_free(fspec_slopes *slopes)
{
    if (!slopes)
        return;
    free(slopes->value);
    free(slopes->mass);
    free(slopes->atom_value);
    free(slopes->atom_mass);
    free(slopes->critical);
    if (slopes->panels) {
        free(slopes->panels->start);
        free(slopes->panels->panel);
        free(slopes->panels);
    }
    free(slopes);
}

/* ---- discrete laws ------------------------------------------------------------------------ */
static void insert_atom(fspec_slopes *s, double value, double mass)
{
    size_t i = s->count;
    while (i > 0 && s->value[i - 1] >= value)
        i--;
    if (i < s->count && s->value[i] == value) {
        s->mass[i] += mass;
        return;
    }
    memmove(s->value + i + 1, s->value + i, (s->count - i) * sizeof *s->value);
    memmove(s->mass + i + 1, s->mass + i, (s->count - i) * sizeof *s->mass);
    s->value[i] = value;
    s->mass[i] = mass;
    s->count++;
}

int fspec_slopes_discrete(size_t n, const double *values, const double *probabilities,
                          fspec_slopes **slopes)
{
    double total = 0.0;
    for (size_t i = 0; i < n; i++) {
        if (!(values[i] >= 0.0 && values[i] < INFINITY && probabilities[i] > 0.0))
            return FSPEC_BAD_ARGUMENT;
        total += probabilities[i];
    }
    if (!(fabs(total - 1.0) <= 1e-9))
        return FSPEC_BAD_ARGUMENT;
    fspec_slopes *s = calloc(1, sizeof *s);
    if (!s)
        return FSPEC_NO_MEMORY;
    int failed = 0;
    s->value = copied(n, values, &failed);
    s->mass = copied(n, probabilities, &failed);
    if (!failed) {
        for (size_t i = 0; i < n; i++) {
            if (values[i] == 0.0)
                s->zero += probabilities[i];
            else
                insert_atom(s, values[i], probabilities[i]);
        }
        s->atom_value = copied(s->count, s->value, &failed);
        s->atom_mass = copied(s->count, s->mass, &failed);
        s->critical = copied(0, NULL, &failed);
    }
    if (failed) {
        fspec_slopes_free(s);
        return FSPEC_NO_MEMORY;
    }
    s->n_atoms = s->count;
    for (size_t i = 0; i < s->count; i++) {
        s->positive += s->mass[i];
        s->mean += s->mass[i] * s->value[i];
        s->second += s->mass[i] * s->value[i] * s->value[i];
    }
    s->top = s->count ? s->value[s->count - 1] : 0.0;
    *slopes = s;
    return FSPEC_OK;
}

/* ---- smooth laws -------------------------------------------------------------------------- */
static void legendre_rule(size_t n, fspec_rule *rule)
{
    rule->size = n;
    for (size_t i = 0; i < FSPEC_RULE_PAD; i++) {
        rule->node[i] = i < n ? cos(PI * (i + 0.75) / (n + 0.5)) : rule->node[n - 1];
        rule->weight[i] = 0.0;
        for (int step = 0; i < n && step < 6; step++) {
            double x = rule->node[i], p = x, before = 1.0;
            for (size_t k = 2; k <= n; k++) {
                double next = ((2.0 * k - 1.0) * x * p - (k - 1.0) * before) / k;
                before = p;
                p = next;
            }
            double slope = n * (before - x * p) / ((1.0 - x) * (1.0 + x));
            rule->node[i] = x - p / slope;
            rule->weight[i] = 2.0 / ((1.0 - x) * (1.0 + x) * slope * slope);
        }
    }
}

void fspec_panel_nodes(const fspec_panel *panel, const fspec_rule *rule,
                       double d[FSPEC_RULE_PAD], double weight[FSPEC_RULE_PAD])
{
    double b1[FSPEC_RULE_PAD] = {0}, b2[FSPEC_RULE_PAD] = {0};
    for (size_t k = panel->terms; k-- > 1;) {
        for (size_t i = 0; i < FSPEC_RULE_PAD; i++) {
            double b = panel->series[k] + 2.0 * rule->node[i] * b1[i] - b2[i];
            b2[i] = b1[i];
            b1[i] = b;
        }
    }
    for (size_t i = 0; i < FSPEC_RULE_PAD; i++) {
        double slope = panel->series[0] + rule->node[i] * b1[i] - b2[i];
        double z = panel->centre + panel->half * rule->node[i];
        d[i] = slope * slope;
        weight[i] = panel->half * rule->weight[i] * exp(-0.5 * z * z) / sqrt(2.0 * PI);
    }
}

static void set_panel(fspec_panel *panel, const fspec_smooth_slopes *law, size_t i,
                      const struct fspec_panels *panels)
{
    panel->centre = law->centre[i];
    panel->half = law->half[i];
    panel->joints = law->joints[i];
    panel->terms = 1;
    for (size_t k = 0; k < law->n_terms; k++) {
        panel->series[k] = ldexp(law->coefficients[i * law->n_terms + k], -panels->exponent);
        if (panel->series[k] != 0.0)
            panel->terms = k + 1;
    }
    for (size_t k = 1; k < panel->terms; k++) /* |T_k| <= cosh(k log rho) on the ellipse */
        panel->reach += fabs(panel->series[k]) * cosh(k * FSPEC_LOG_RHO[0]);
    for (size_t e = 0; e < FSPEC_ELLIPSES; e++)
        for (size_t k = 3; k < panel->terms; k++)
            panel->remainder[e] += fabs(panel->series[k]) * cosh(k * FSPEC_LOG_RHO[e]);
    fspec_panel_nodes(panel, &panels->rules[0], panel->d, panel->weight);
}

static struct fspec_panels *make_panels(const fspec_smooth_slopes *law)
{
    struct fspec_panels *panels = calloc(1, sizeof *panels);
    if (!panels)
        return NULL;
    panels->n_covers = law->n_covers;
    panels->start = calloc(law->n_covers + 1, sizeof *panels->start);
    for (size_t c = 0; panels->start && c < law->n_covers; c++)
        panels->start[c + 1] = panels->start[c] + law->cover_panels[c];
    size_t total = panels->start ? panels->start[law->n_covers] : 0;
    panels->panel = calloc(total ? total : 1, sizeof *panels->panel);
    if (!panels->start || !panels->panel) {
        free(panels->start);
        free(panels->panel);
        free(panels);
        return NULL;
    }
    int exponent;
    frexp(law->top, &exponent);
    panels->exponent = exponent / 2;
    for (size_t r = 0; r < FSPEC_RULES; r++)
        legendre_rule(FSPEC_RULE_SIZE + r, &panels->rules[r]);
    for (size_t i = 0; i < total; i++)
        set_panel(&panels->panel[i], law, i, panels);
    return panels;
}

static int is_valid(const fspec_smooth_slopes *law)
{
    int ok = law->count > 0 && law->n_covers > 0 && law->n_terms > 0 &&
             law->n_terms <= FSPEC_MAX_TERMS && law->zero >= 0.0 && law->zero < 1.0 &&
             law->bottom >= 0.0 && law->bottom <= law->top && law->top < INFINITY &&
             law->mean > 0.0 && law->mean <= law->top;
    for (size_t i = 0; ok && i < law->count; i++)
        ok = law->mass[i] >= 0.0 && law->value[i] > 0.0 &&
             (i == 0 || law->value[i] >= law->value[i - 1]);
    return ok;
}

int fspec_slopes_smooth(const fspec_smooth_slopes *law, fspec_slopes **slopes)
{
    if (!is_valid(law))
        return FSPEC_BAD_ARGUMENT;
    fspec_slopes *s = calloc(1, sizeof *s);
    if (!s)
        return FSPEC_NO_MEMORY;
    int failed = 0;
    s->count = law->count;
    s->value = copied(law->count, law->value, &failed);
    s->mass = copied(law->count, law->mass, &failed);
    s->n_atoms = law->n_atoms;
    s->atom_value = copied(law->n_atoms, law->atom_value, &failed);
    s->atom_mass = copied(law->n_atoms, law->atom_mass, &failed);
    s->n_critical = law->n_critical;
    s->critical = copied(law->n_critical, law->critical, &failed);
    s->panels = make_panels(law);
    if (failed || !s->panels) {
        fspec_slopes_free(s);
        return FSPEC_NO_MEMORY;
    }
    s->zero = law->zero;
    for (size_t i = 0; i < s->count; i++)
        s->positive += s->mass[i];
    s->mean = law->mean;
    s->second = law->second;
    s->top = law->top;
    /* Outside the ellipse with foci bottom and top where rho^-2K = the error. As |zeta - bottom|
     * >= |zeta| - bottom, the focal sum about 0 and top that keeps it is larger by bottom. */
    double rho = exp(LOG_GUARD_ERROR / (2.0 * s->count));
    s->guard = law->bottom + 0.5 * (law->top - law->bottom) * (rho + 1.0 / rho);
    *slopes = s;
    return FSPEC_OK;
}

/* ---- queries ------------------------------------------------------------------------------ */
void fspec_slopes_transform(const fspec_slopes *slopes, size_t n, const double *zeta_re,
                            const double *zeta_im, double *m, double *excess, double *dm)
{
    for (size_t i = 0; i < n; i++) {
        fspec_slopes_value v = fspec_slopes_near(slopes, zeta_re[i], zeta_im[i]);
        m[2 * i] = v.m_re;
        m[2 * i + 1] = v.m_im;
        excess[2 * i] = v.e_re;
        excess[2 * i + 1] = v.e_im;
        dm[2 * i] = v.dm_re;
        dm[2 * i + 1] = v.dm_im;
    }
}

void fspec_slopes_summary(const fspec_slopes *slopes, double summary[6])
{
    summary[0] = slopes->mean;
    summary[1] = slopes->second;
    summary[2] = slopes->top;
    summary[3] = slopes->positive;
    summary[4] = slopes->zero;
    summary[5] = slopes->guard;
}
