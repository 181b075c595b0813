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

static void free_panels(struct fspec_panels *panels)
{
    if (!panels)
        return;
    free(panels->start);
    free(panels->panel);
    free(panels->middle); /* the head of all arrays of doubles */
    free(panels);
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
    free_panels(slopes->panels);
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
    s->bottom = s->least = s->count ? s->value[0] : 0.0;
    s->top = s->largest = s->count ? s->value[s->count - 1] : 0.0;
    *slopes = s;
    return FSPEC_OK;
}

/* ---- smooth laws -------------------------------------------------------------------------- */
static void legendre_rule(size_t n, fspec_rule *rule)
{
    rule->size = n;
    rule->stride = n == FSPEC_RULE_SIZE ? n : FSPEC_RULE_PAD;
    for (size_t i = 0; i < FSPEC_RULE_PAD; i++) {
        rule->node[i] = i < n ? cos(PI * (i + 0.75) / (n + 0.5)) : rule->node[n - 1];
        rule->weight[i] = 0.0;
        for (int step = 0; i < n && step < 4; step++) {
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

/* phi'^2 and the Gaussian weights at the nodes of a rule. */
static void set_nodes(const double *series, const fspec_panel *panel, const fspec_rule *rule,
                      double *d, double *weight)
{
    double b1[FSPEC_RULE_PAD] = {0}, b2[FSPEC_RULE_PAD] = {0};
    for (size_t k = panel->terms; k-- > 1;) {
        for (size_t i = 0; i < FSPEC_RULE_PAD; i++) {
            double b = series[k] + 2.0 * rule->node[i] * b1[i] - b2[i];
            b2[i] = b1[i];
            b1[i] = b;
        }
    }
    double density = panel->half / sqrt(2.0 * PI);
    for (size_t i = 0; i < rule->stride; i++) {
        double slope = series[0] + rule->node[i] * b1[i] - b2[i];
        double z = panel->centre + panel->half * rule->node[i];
        d[i] = slope * slope;
        weight[i] = rule->weight[i] * density * exp(-0.5 * z * z);
    }
}

/* Powers of t of a Chebyshev series, by Clenshaw's recurrence for polynomials. */
static void set_powers(const double *series, size_t terms, double power[FSPEC_MAX_TERMS])
{
    double b1[FSPEC_MAX_TERMS + 1] = {0}, b2[FSPEC_MAX_TERMS + 1] = {0};
    for (size_t k = terms; k-- > 0;) {
        double factor = k > 0 ? 2.0 : 1.0; /* b_0 ends with t b_1, not 2 t b_1 */
        for (size_t i = terms - k; i-- > 0;) {
            double b = (i == 0 ? series[k] : factor * b1[i - 1]) - b2[i];
            b2[i] = b1[i];
            b1[i] = b;
        }
    }
    memcpy(power, b1, FSPEC_MAX_TERMS * sizeof *power);
}

/* The image of the ellipse, symmetric about the real axis, and how far it reaches. */
static void set_corners(fspec_panel *panel, const double corner[2][FSPEC_CORNERS / 2 + 1],
                        double *reach2)
{
    *reach2 = -1.0; /* constant: no root, or only roots */
    for (size_t i = 0; i <= FSPEC_CORNERS / 2; i++) {
        double x = corner[0][i], y = corner[1][i], re = 0.0, im = 0.0;
        for (size_t k = panel->terms; k-- > 0;) {
            double next = re * x - im * y + panel->power[k];
            im = re * y + im * x;
            re = next;
        }
        panel->corner_re[i] = panel->corner_re[FSPEC_CORNERS - i] = re;
        panel->corner_im[i] = im;
        panel->corner_im[FSPEC_CORNERS - i] = -im;
        double away = re - panel->power[0];
        if (panel->terms > 1)
            *reach2 = fmax(*reach2, 1.1 * (away * away + im * im));
    }
}

static void set_panel(struct fspec_panels *panels, const fspec_smooth_slopes *law, size_t i,
                      const double corner[2][FSPEC_CORNERS / 2 + 1])
{
    fspec_panel *panel = &panels->panel[i];
    double series[FSPEC_MAX_TERMS] = {0};
    panel->centre = law->centre[i];
    panel->half = law->half[i];
    panel->joints = law->joints[i];
    panel->terms = 1;
    for (size_t k = 0; k < law->n_terms; k++) {
        series[k] = ldexp(law->coefficients[i * law->n_terms + k], -panels->exponent);
        if (series[k] != 0.0)
            panel->terms = k + 1;
    }
    set_powers(series, panel->terms, panel->power);
    panel->guess[0] = series[0] - series[2];
    panel->guess[1] = series[1];
    panel->guess[2] = 2.0 * series[2];
    panels->middle[i] = panel->power[0];
    set_corners(panel, corner, &panels->reach2[i]);
    for (size_t r = 0; r < FSPEC_RULES; r++) {
        const fspec_rule *rule = &panels->rules[r];
        set_nodes(series, panel, rule, panels->d[r] + i * rule->stride,
                  panels->weight[r] + i * rule->stride);
    }
}

/* Room for the panels of a law, NULL when memory is out. */
static struct fspec_panels *new_panels(const fspec_smooth_slopes *law, size_t total)
{
    struct fspec_panels *panels = calloc(1, sizeof *panels);
    if (!panels)
        return NULL;
    size_t doubles = 2;
    for (size_t r = 0; r < FSPEC_RULES; r++) {
        legendre_rule(FSPEC_RULE_SIZE + r, &panels->rules[r]);
        doubles += 2 * panels->rules[r].stride;
    }
    panels->start = calloc(law->n_covers + 1, sizeof *panels->start);
    panels->panel = calloc(total + 1, sizeof *panels->panel);
    double *next = panels->middle = calloc(total + 1, doubles * sizeof *panels->middle);
    if (!panels->start || !panels->panel || !panels->middle) {
        free_panels(panels);
        return NULL;
    }
    panels->reach2 = next += total;
    next += total;
    for (size_t r = 0; r < FSPEC_RULES; r++) {
        panels->d[r] = next;
        panels->weight[r] = next += total * panels->rules[r].stride;
        next += total * panels->rules[r].stride;
    }
    return panels;
}

static struct fspec_panels *make_panels(const fspec_smooth_slopes *law)
{
    size_t total = 0;
    for (size_t c = 0; c < law->n_covers; c++) total += law->cover_panels[c];
    struct fspec_panels *panels = new_panels(law, total);
    if (!panels)
        return NULL;
    panels->n_covers = law->n_covers;
    for (size_t c = 0; c < law->n_covers; c++)
        panels->start[c + 1] = panels->start[c] + law->cover_panels[c];
    int exponent;
    frexp(law->top, &exponent);
    panels->exponent = exponent / 2;
    double corner[2][FSPEC_CORNERS / 2 + 1];
    for (size_t i = 0; i <= FSPEC_CORNERS / 2; i++) {
        double angle = 2.0 * PI * i / FSPEC_CORNERS;
        corner[0][i] = 0.5 * (FSPEC_RHO + 1.0 / FSPEC_RHO) * cos(angle);
        corner[1][i] = 0.5 * (FSPEC_RHO - 1.0 / FSPEC_RHO) * sin(angle);
    }
    corner[1][FSPEC_CORNERS / 2] = 0.0;
    for (size_t i = 0; i < total; i++) set_panel(panels, law, i, corner);
    return panels;
}

static int is_valid(const fspec_smooth_slopes *law)
{
    int ok = law->count > 0 && law->n_covers > 0 && law->n_terms > 0 &&
             law->n_terms <= FSPEC_MAX_TERMS && law->zero >= 0.0 && law->zero < 1.0 &&
             law->bottom >= 0.0 && law->bottom <= law->top && law->top < INFINITY &&
             law->least >= 0.0 && law->least <= law->bottom && law->largest >= law->top &&
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
    s->bottom = law->bottom;
    s->top = law->top;
    s->least = law->least;
    s->largest = law->largest;
    s->resolved = law->bottom > law->resolved ? 0.0 : law->resolved;
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

void fspec_slopes_summary(const fspec_slopes *slopes, double summary[7])
{
    summary[0] = slopes->mean;
    summary[1] = slopes->second;
    summary[2] = slopes->top;
    summary[3] = slopes->positive;
    summary[4] = slopes->zero;
    summary[5] = slopes->guard;
    summary[6] = (double)(slopes->count + (slopes->zero > 0.0));
}
