/* Ends of a chain's law beyond where its density is above rounding (fspec_ends.h). */
#include <math.h>

#include "fspec_ends.h"
#include "fspec_law.h"
#include "fspec_table.h"

static int high_is_thin(const fspec_table *t)
{
    return t->n_cells && t->support.pieces[0].high > t->cells[t->n_cells - 1].high;
}

static int low_is_thin(const fspec_table *t)
{
    double low = t->n_cells ? t->support.pieces[t->support.n_pieces - 1].low : -INFINITY;
    return low > -INFINITY && low < t->cells[0].low;
}

int fspec_law_has_thin_ends(const fspec_law *law)
{
    return law->table && (high_is_thin(law->table) || low_is_thin(law->table));
}

int fspec_law_ends_status(const fspec_law *law)
{
    return law->table ? law->table->ends_status : FSPEC_OK;
}

int fspec_law_take_ends(fspec_law *law, size_t n_blocks, const fspec_block *blocks)
{
    fspec_chain *whole;
    fspec_table *t = law->table;
    int status = t->ends_status = fspec_chain_new(n_blocks, blocks, 0.0, &whole);
    if (status != FSPEC_OK) return status;
    double shift = whole->log_mean - law->log_mean, end;
    if (high_is_thin(t) && (status = fspec_chain_high_end(whole, &end)) == FSPEC_OK)
        t->support.pieces[0].high = end + shift;
    if (status == FSPEC_OK && low_is_thin(t) &&
        (status = fspec_chain_low_end(whole, t->cells[0].low - shift, &end)) == FSPEC_OK)
        t->support.pieces[t->support.n_pieces - 1].low = end + shift;
    t->ends_status = status;
    fspec_chain_free(whole);
    return status;
}
