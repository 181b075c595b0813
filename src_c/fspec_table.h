/* A solved chain as piecewise polynomials: solved once, then cheap.
 *
 * On each cell of l = log(lambda/mean) the density y/pi of log lambda, y = -Im m, is
 *
 *     y = delta^(k/2) exp(P(x)),    delta = distance to the piece's end, k = 1 (root), -1
 *                                   (inverse root), 0 (no end in this cell),
 *
 * and the mass from the cell's end (its low end for k = 0) is delta^(1 + k/2) R(x), or
 * (1 + x) R(x); x in [-1, 1] is linear in l.
 */
#ifndef FSPEC_TABLE_H
#define FSPEC_TABLE_H

#include <math.h>

#include "fspec_walk.h"

enum { FSPEC_CELL_TERMS = 16, FSPEC_CELL_BINS = 512 };

typedef struct {
    double log_y[FSPEC_CELL_TERMS], mass_of[FSPEC_CELL_TERMS]; /* P and R in powers of x */
    double slope, offset; /* x = slope l + offset */
    double end, half_k;   /* the end of the piece that k belongs to */
    double low, high;
    double mass, below, above; /* continuous mass in this cell, below it and above it */
    double from_high;     /* 1 if R is the mass up to the high end (all doubles: lanes gather) */
} fspec_cell;

/* Polynomial in powers of x. */
static inline double fspec_cell_polynomial(const double *c, double x)
{
    double sum = c[FSPEC_CELL_TERMS - 1];
    for (int k = FSPEC_CELL_TERMS - 2; k >= 0; k--) sum = sum * x + c[k];
    return sum;
}

/* delta^(k/2) */
static inline double fspec_cell_weight(const fspec_cell *cell, double delta)
{
    if (cell->half_k == 0.0) return 1.0;
    return cell->half_k > 0.0 ? sqrt(delta) : 1.0 / sqrt(delta);
}

/* The mass that belongs to R = 1: delta^(1 + k/2), or 1 + x. */
static inline double fspec_cell_mass_unit(const fspec_cell *cell, double x, double delta)
{
    if (cell->half_k == 0.0) return 1.0 + x;
    return cell->half_k > 0.0 ? delta * sqrt(delta) : sqrt(delta);
}

typedef struct fspec_table {
    fspec_chain *chain;
    fspec_support support;
    size_t n_cells, room;
    fspec_cell *cells; /* ascending */
    double tail_low, tail_slope; /* below the lowest cell of a tail y ~ e^(slope l) ... */
    int tail_is_power;           /* ... to rounding; else points there are solved one by one */
    double bins_low, bins_scale; /* index: first cell that may hold l */
    int bins[FSPEC_CELL_BINS];
    double continuous_mass, mass_error; /* |1 - all masses| */
    double unresolved; /* mass below the lowest cell that is known only as what is missing */
    double error;       /* what the polynomials leave, relative */
    double hard_exponent;
    int status, ends_status;
} fspec_table;

int fspec_table_new(fspec_chain *chain, fspec_table **out);
void fspec_table_free(fspec_table *table);

/* Cell holding l, or -1 (gap, outside). l in a tail below all cells gives 0. */
long fspec_table_find(const fspec_table *table, double l);
/* y there */
double fspec_table_y(const fspec_table *table, double l);
/* continuous mass at and below l, and above it */
void fspec_table_tails(const fspec_table *table, double l, double *below, double *above);
/* l with continuous mass `below` below it (and `above` above, whichever is smaller counts) */
double fspec_table_quantile(const fspec_table *table, double below, double above);
/* A state to start Newton's method at l from (in a piece). */
void fspec_table_guess(const fspec_table *table, double l, fspec_state *x);
/* Puts the walker at the solved state nearest to l. */
void fspec_table_place(const fspec_table *table, double l, fspec_walker *walker);

#endif
