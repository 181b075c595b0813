/* What a table answers at one point. */
#include <math.h>

#include "fspec_table.h"

long fspec_table_find(const fspec_table *t, double l)
{
    if (t->n_cells == 0) return -1;
    if (l < t->cells[0].low) return t->tail_low > -INFINITY ? 0 : -1;
    size_t i = 0, high = t->n_cells;
    if (l >= t->bins_low) {
        double bin = (l - t->bins_low) * t->bins_scale;
        i = (size_t)t->bins[bin < FSPEC_CELL_BINS ? (int)bin : FSPEC_CELL_BINS - 1];
        while (i > 0 && l <= t->cells[i - 1].high) i--; /* the bins' ends are rounded */
        while (i < t->n_cells && l > t->cells[i].high) i++;
    } else {
        while (i < high) {
            size_t mid = (i + high) / 2;
            if (l > t->cells[mid].high) i = mid + 1;
            else high = mid;
        }
    }
    return i < t->n_cells && l >= t->cells[i].low ? (long)i : -1;
}

double fspec_table_y(const fspec_table *t, double l)
{
    long i = fspec_table_find(t, l);
    if (i < 0) return 0.0;
    const fspec_cell *c = &t->cells[i];
    if (l < c->low)
        return exp(fspec_cell_polynomial(c->log_y, -1.0) + t->tail_slope * (l - c->low));
    double x = c->slope * l + c->offset;
    return fspec_cell_weight(c, fabs(l - c->end)) * exp(fspec_cell_polynomial(c->log_y, x));
}

/* Mass between l and the cell's own end (low end, or the high one if from_high). */
static double inner_mass(const fspec_cell *c, double l)
{
    double x = c->slope * l + c->offset;
    return fspec_cell_mass_unit(c, x, fabs(l - c->end)) * fspec_cell_polynomial(c->mass_of, x);
}

void fspec_table_tails(const fspec_table *t, double l, double *below, double *above)
{
    long i = fspec_table_find(t, l);
    if (i < 0) {
        size_t k = 0;
        while (k < t->n_cells && t->cells[k].high < l) k++;
        *below = k < t->n_cells ? t->cells[k].below : t->continuous_mass;
        *above = k < t->n_cells ? t->cells[k].above + t->cells[k].mass : 0.0;
        return;
    }
    const fspec_cell *c = &t->cells[i];
    if (l < c->low && t->unresolved > 0.0) {
        *below = *above = NAN;
        return;
    }
    if (l < c->low) {
        *below = c->below * exp(t->tail_slope * (l - c->low));
        *above = t->continuous_mass - *below;
        return;
    }
    double part = inner_mass(c, l), rest = fmax(0.0, c->mass - part);
    *below = c->below + (c->from_high ? rest : part);
    *above = c->above + (c->from_high ? part : rest);
}

/* Bracketed Newton for inner_mass(l) = part. */
static double invert_cell(const fspec_table *t, const fspec_cell *c, double part)
{
    double low = c->low, high = c->high, l = 0.5 * (low + high);
    for (int i = 0; i < 80; i++) {
        double miss = inner_mass(c, l) - part;
        if (c->from_high) miss = -miss;
        if (miss > 0) high = l;
        else low = l;
        double next = l - miss * FSPEC_PI / fspec_table_y(t, l);
        if (!(next > low && next < high)) next = 0.5 * (low + high);
        if (fabs(next - l) <= 1e-16 * fmax(1.0, fabs(l))) return next;
        l = next;
    }
    return l;
}

double fspec_table_quantile(const fspec_table *t, double below, double above)
{
    if (t->n_cells == 0) return NAN;
    size_t low = 0, high = t->n_cells - 1;
    int from_below = below <= above;
    while (low < high) {
        size_t mid = (low + high) / 2;
        const fspec_cell *c = &t->cells[mid];
        if (from_below ? below <= c->below + c->mass : above >= c->above) high = mid;
        else low = mid + 1;
    }
    const fspec_cell *c = &t->cells[low];
    if (below < c->below && t->tail_low > -INFINITY && low == 0 && t->unresolved > 0.0) return NAN;
    if (below < c->below && t->tail_low > -INFINITY && low == 0)
        return c->low + log(below / c->below) / t->tail_slope;
    double part = from_below ? below - c->below : c->mass - (above - c->above);
    part = fmin(fmax(part, 0.0), c->mass);
    if (part == 0.0) return c->low;
    if (c->from_high) part = from_below ? c->mass - part : fmax(0.0, above - c->above);
    return invert_cell(t, c, part);
}
