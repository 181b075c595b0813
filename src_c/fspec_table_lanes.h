/* Densities from a chain's table on lanes. Grids are usually sorted: a block of lanes in one cell
 * takes that cell's coefficients as they are, otherwise each lane gathers its own. */
#include "fspec_newton.h"
#include "fspec_table.h"

/* e^a, |a| < 708, to 2 ulp. */
FSPEC_INLINE vd v_exp(vd a)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52: rounds to an integer */
    vd kd = a * (1.0 / FSPEC_LN2) + magic;
    vu k = (vu)v_bits(kd) << 52;
    vd whole = kd - magic;
    vd r = (a - whole * 0.69314718036912381649) - whole * 1.90821492927058770002e-10;
    vd p = r * (1.0 / 479001600) + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r * r + r;
    p = p + 1.0;
    return v_from_bits((vi)((vu)v_bits(p) + k));
}

/* Row offset[j] of an array of doubles. */
FSPEC_INLINE vd v_gather(const double *base, vi offset)
{
#if FSPEC_LANES == 8 && defined(__x86_64__)
    return _mm512_i64gather_pd((__m512i)offset, base, 8);
#elif FSPEC_LANES == 4 && defined(__x86_64__)
    return _mm256_i64gather_pd(base, (__m256i)offset, 8);
#elif FSPEC_LANES == 1
    return base[offset];
#else
    vd r;
    for (int j = 0; j < FSPEC_LANES; j++) r[j] = base[offset[j]];
    return r;
#endif
}

typedef struct {
    vd c[FSPEC_CELL_TERMS], slope, offset, end, half_k;
} fspec_lane_cell;

FSPEC_INLINE fspec_lane_cell fspec_lane_cell_of(const fspec_cell *cell)
{
    fspec_lane_cell r;
    for (int k = 0; k < FSPEC_CELL_TERMS; k++) r.c[k] = v_set(cell->log_y[k]);
    r.slope = v_set(cell->slope);
    r.offset = v_set(cell->offset);
    r.end = v_set(cell->end);
    r.half_k = v_set(cell->half_k);
    return r;
}

FSPEC_INLINE fspec_lane_cell fspec_lane_cells(const fspec_cell *cells, vi index)
{
    const vi row = index * (int64_t)(sizeof(fspec_cell) / sizeof(double));
    fspec_lane_cell r;
    for (int k = 0; k < FSPEC_CELL_TERMS; k++) r.c[k] = v_gather(cells->log_y + k, row);
    r.slope = v_gather(&cells->slope, row);
    r.offset = v_gather(&cells->offset, row);
    r.end = v_gather(&cells->end, row);
    r.half_k = v_gather(&cells->half_k, row);
    return r;
}

/* exp(P(x)); powers in pairs (Estrin), which keeps the chain of operations short. */
FSPEC_INLINE vd fspec_lane_smooth(const fspec_lane_cell *cell, vd l)
{
    vd x = cell->slope * l + cell->offset, p[FSPEC_CELL_TERMS / 2];
    for (int k = 0; k < FSPEC_CELL_TERMS / 2; k++) p[k] = cell->c[2 * k + 1] * x + cell->c[2 * k];
    vd power = x * x;
    for (int count = FSPEC_CELL_TERMS / 4; count >= 1; count /= 2) {
        for (int k = 0; k < count; k++) p[k] = p[2 * k + 1] * power + p[2 * k];
        power = power * power;
    }
    return v_exp(p[0]);
}

/* delta^(k/2) */
FSPEC_INLINE vd fspec_lane_end(const fspec_lane_cell *cell, vd l)
{
    vd root = v_sqrt(v_abs(l - cell->end)), zero = v_set(0.0), one = v_set(1.0);
    return v_select(v_lt(zero, cell->half_k), root,
                    v_select(v_lt(cell->half_k, zero), one / root, one));
}

/* log lambda, normalised; lanes that are not positive normal numbers are left to the caller. */
FSPEC_INLINE vd fspec_lane_table_l(const fspec_law *law, vd x, int variable, vi *usual)
{
    vd low = v_set(2.2250738585072014e-308), high = v_set(1.7976931348623157e308);
    if (variable != FSPEC_LAMBDA) {
        *usual = v_le(v_abs(x), high);
        return v_select(*usual, x, v_set(0.0)) - law->log_mean;
    }
    *usual = v_le(low, x) & v_le(x, high);
    vlog log_x = v_log(v_select(*usual, x, v_set(1.0)));
    return log_x.k * FSPEC_LN2 + (log_x.f - law->log_mean);
}

/* The cell of every lane; lanes at ends and in the extrapolated tail are not inside. */
static fspec_lane_cell fspec_lane_find(const fspec_table *t, vd l, vi usual, vi *inside,
                                       const fspec_cell **here)
{
    double ls[FSPEC_LANES], in[FSPEC_LANES];
    int64_t index[FSPEC_LANES];
    v_store(ls, l);
    v_store(in, v_select(usual, v_set(1.0), v_set(0.0)));
    for (size_t j = 0; j < FSPEC_LANES; j++) {
        long k = in[j] != 0.0 ? fspec_table_find(t, ls[j]) : -1;
        index[j] = k < 0 ? 0 : k;
        const fspec_cell *c = &t->cells[index[j]];
        in[j] = k >= 0 && ls[j] > c->low && ls[j] < c->high;
        if (k >= 0) *here = c;
    }
    *inside = v_lt(v_set(0.0), v_load(in));
    vi rows;
    memcpy(&rows, index, sizeof rows);
    return fspec_lane_cells(t->cells, rows);
}

/* One block; `here` is the cell of the block before. */
FSPEC_INLINE vd fspec_lane_density(const fspec_law *law, vd x, int variable,
                                   const fspec_cell **here, vi *inside)
{
    vi usual;
    vd l = fspec_lane_table_l(law, x, variable, &usual), y;
    *inside = usual & v_lt(v_set((*here)->low), l) & v_lt(l, v_set((*here)->high));
    if (!v_any(~*inside)) {
        fspec_lane_cell cell = fspec_lane_cell_of(*here);
        y = fspec_lane_smooth(&cell, l);
        if ((*here)->half_k != 0.0) y = y * fspec_lane_end(&cell, l);
    } else {
        fspec_lane_cell cell = fspec_lane_find(law->table, l, usual, inside, here);
        y = fspec_lane_smooth(&cell, l) * fspec_lane_end(&cell, l);
    }
    y = y * (1.0 / FSPEC_PI);
    return variable == FSPEC_LAMBDA ? y / x : y;
}

static size_t fspec_level_table(const fspec_law *law, size_t n, const double *x, int variable,
                                double *density)
{
    const fspec_cell *here = law->table->cells;
    size_t failures = 0;
    for (size_t i = 0; i < n; i += FSPEC_LANES) {
        double part[FSPEC_LANES];
        size_t count = n - i < FSPEC_LANES ? n - i : FSPEC_LANES;
        const double *at = x + i;
        if (count < FSPEC_LANES) {
            for (size_t j = 0; j < FSPEC_LANES; j++) part[j] = at[j < count ? j : 0];
            at = part;
        }
        vi inside;
        vd rho = fspec_lane_density(law, v_load(at), variable, &here, &inside);
        if (count == FSPEC_LANES && !v_any(~inside)) {
            v_store(density + i, rho);
            continue;
        }
        double out[FSPEC_LANES], in[FSPEC_LANES];
        v_store(out, rho);
        v_store(in, v_select(inside, v_set(1.0), v_set(0.0)));
        for (size_t j = 0; j < count; j++) {
            density[i + j] = in[j] != 0.0 ? out[j] : fspec_chain_point(law, x[i + j], variable);
            failures += density[i + j] != density[i + j] && x[i + j] == x[i + j];
        }
    }
    return failures;
}
