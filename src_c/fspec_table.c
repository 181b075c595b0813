/* Building the table of a chain: walk, then fit every piece. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fspec_ends.h"
#include "fspec_table.h"

enum { TERMS = FSPEC_CELL_TERMS, MAX_DEPTH = 48, MAX_CELLS = 600 };

static const double mass_complete = 1e-10;

/* Nodes and matrices of the fit, made once per table. */
typedef struct {
    double node[TERMS];               /* Chebyshev points */
    double to_powers[TERMS][TERMS];   /* Chebyshev coefficients -> powers of x */
    double to_cheb[TERMS][TERMS];     /* values -> Chebyshev coefficients */
    double gauss[TERMS], weight[TERMS]; /* Gauss-Legendre on [0, 1] */
} fit_rule;

typedef struct {
    fspec_table *table;
    const fspec_piece *piece;
    fit_rule rule;
    fspec_walker walker;
    fspec_state *nodes;
    double complex l[TERMS];
    fspec_chain_result result[TERMS];
} builder;

/* ---- rules --------------------------------------------------------------------------------- */

static void gauss_legendre(double *x, double *w)
{
    for (int i = 0; i < TERMS; i++) {
        double t = cos(FSPEC_PI * (i + 0.75) / (TERMS + 0.5)), slope = 1.0;
        for (int it = 0; it < 20; it++) {
            double p0 = 1.0, p1 = t;
            for (int k = 2; k <= TERMS; k++) {
                double p2 = ((2 * k - 1) * t * p1 - (k - 1) * p0) / k;
                p0 = p1;
                p1 = p2;
            }
            slope = TERMS * (t * p1 - p0) / (t * t - 1.0);
            double step = p1 / slope;
            t -= step;
            if (fabs(step) < 1e-16) break;
        }
        x[i] = 0.5 * (1.0 - t);
        w[i] = 1.0 / ((1.0 - t * t) * slope * slope);
    }
}

static void make_rule(fit_rule *r)
{
    memset(r->to_powers, 0, sizeof r->to_powers); /* column k: T_k in powers */
    r->to_powers[0][0] = r->to_powers[1][1] = 1.0;
    for (int k = 2; k < TERMS; k++)
        for (int i = 0; i < TERMS; i++)
            r->to_powers[i][k] = (i ? 2.0 * r->to_powers[i - 1][k - 1] : 0.0) -
                                 r->to_powers[i][k - 2];
    for (int j = 0; j < TERMS; j++) r->node[j] = cos(FSPEC_PI * (j + 0.5) / TERMS);
    for (int k = 0; k < TERMS; k++)
        for (int j = 0; j < TERMS; j++)
            r->to_cheb[k][j] = (k ? 2.0 : 1.0) / TERMS * cos(FSPEC_PI * k * (j + 0.5) / TERMS);
    gauss_legendre(r->gauss, r->weight);
}

static void apply(const double matrix[TERMS][TERMS], const double *in, double *out)
{
    for (int i = 0; i < TERMS; i++) {
        out[i] = 0.0;
        for (int j = 0; j < TERMS; j++) out[i] += matrix[i][j] * in[j];
    }
}

/* ---- starting states ------------------------------------------------------------------------ */

static int is_edge(const fspec_support *s, size_t i)
{
    return cimag(fspec_support_state(s, i)[0]) == 0.0;
}

/* From the state at a square-root edge: m - m_e = -i sqrt(2 delta/|K''|), K'' from the next
 * state inside. */
static void guess_from_edge(const fspec_support *s, size_t edge, size_t inside, double l,
                            fspec_state *x)
{
    size_t size = s->chain->size;
    const fspec_state *e = fspec_support_state(s, edge), *in = fspec_support_state(s, inside);
    double share = fabs(l - s->l[edge]) / fabs(s->l[inside] - s->l[edge]);
    double complex dm = (in[0] - e[0]) * sqrt(share);
    if (share < 0.1) dm = -I * fabs(cimag(dm)); /* the leading order, exact at the edge */
    for (size_t i = 0; i < size; i++) x[i] = e[i] + dm * (i < 2 ? 1.0 : e[size + i]);
    fspec_chain_reconcile(s->chain, x);
}

/* Prediction from state i in log x. */
static void guess_from_state(const fspec_support *s, size_t i, double l, fspec_state *x)
{
    const fspec_state *a = fspec_support_state(s, i);
    double complex dm = fspec_chain_log_step(a, s->slopes[i], l - s->l[i]);
    fspec_chain_predict(s->chain, a, a + s->chain->size, dm, x);
}

/* The state of the piece nearest to l (its states descend). */
static size_t nearest_state(const fspec_support *s, const fspec_piece *p, double l)
{
    size_t low = p->first, high = p->first + p->count - 1;
    while (high - low > 1) {
        size_t mid = (low + high) / 2;
        if (s->l[mid] >= l) low = mid;
        else high = mid;
    }
    return s->l[low] - l < l - s->l[high] ? low : high;
}

static size_t guess_in_piece(const fspec_support *s, const fspec_piece *p, double l,
                             fspec_state *x)
{
    size_t first = p->first, last = p->first + p->count - 1, near = nearest_state(s, p, l);
    if (is_edge(s, first) && (near == first || (near == first + 1 && l > s->l[near]))) {
        guess_from_edge(s, first, first + 1, l, x);
        return first + 1;
    }
    if (is_edge(s, last) && (near == last || (near == last - 1 && l < s->l[near]))) {
        guess_from_edge(s, last, last - 1, l, x);
        return last - 1;
    }
    guess_from_state(s, near, l, x);
    return near;
}

static const fspec_piece *piece_at(const fspec_table *t, double l)
{
    const fspec_piece *p = t->support.pieces;
    for (size_t i = 0; i + 1 < t->support.n_pieces && l < p->low; i++) p++;
    return p;
}

void fspec_table_guess(const fspec_table *t, double l, fspec_state *x)
{
    guess_in_piece(&t->support, piece_at(t, l), l, x);
}

static void place_at_state(const fspec_support *s, size_t i, fspec_walker *w)
{
    size_t size = s->chain->size;
    const fspec_state *state = fspec_support_state(s, i);
    memcpy(w->x, state, size * sizeof *state);
    memcpy(w->rates, state + size, size * sizeof *state);
    w->l = s->l[i];
    w->slope = s->slopes[i];
}

void fspec_table_place(const fspec_table *t, double l, fspec_walker *w)
{
    const fspec_piece *p = piece_at(t, l);
    size_t i = nearest_state(&t->support, p, l);
    if (is_edge(&t->support, i)) i += i == p->first ? 1 : (size_t)-1;
    place_at_state(&t->support, i, w);
}

/* ---- fitting -------------------------------------------------------------------------------- */

/* Solves the nodes of a cell; those that Newton's method misses are walked to. */
static int solve_nodes(builder *b)
{
    const fspec_support *s = &b->table->support;
    const fspec_chain *c = s->chain;
    size_t from[TERMS];
    for (int j = 0; j < TERMS; j++)
        from[j] = guess_in_piece(s, b->piece, creal(b->l[j]), b->nodes + j * c->size);
    fspec_chain_newton(c, TERMS, b->l, FSPEC_FREE_M, b->nodes, NULL, b->result);
    for (int j = 0; j < TERMS; j++) {
        fspec_state *x = b->nodes + (size_t)j * c->size;
        if (b->result[j].status == FSPEC_OK && fspec_chain_check(c, x) && cimag(x[0]) < 0)
            continue;
        place_at_state(s, from[j], &b->walker);
        int status = fspec_walker_to_l(&b->walker, b->l[j]);
        if (status != FSPEC_OK) return status;
        memcpy(x, b->walker.x, c->size * sizeof *x);
        b->result[j].slope = b->walker.slope;
        b->result[j].step = 0.0;
        if (!(cimag(x[0]) < 0)) return FSPEC_WRONG_BRANCH;
    }
    return FSPEC_OK;
}

static double to_l(const fspec_cell *cell, double x) { return (x - cell->offset) / cell->slope; }

static void fit_mass(const builder *b, fspec_cell *cell)
{
    double values[TERMS], cheb[TERMS];
    double width = cell->high - cell->low;
    for (int j = 0; j < TERMS; j++) {
        double sum = 0.0, x = b->rule.node[j];
        for (int g = 0; g < TERMS; g++) {
            double v = b->rule.gauss[g];
            if (cell->half_k == 0.0) /* R = (width/2) int_0^1 y(-1 + (1+x) v) dv */
                sum += b->rule.weight[g] *
                       exp(fspec_cell_polynomial(cell->log_y, (1.0 + x) * v - 1.0));
            else /* delta = delta_j v^2: R = 2 int_0^1 v^(k+1) e^P dv */
                sum += b->rule.weight[g] * 2.0 * (cell->half_k > 0 ? v * v : 1.0) *
                       exp(fspec_cell_polynomial(cell->log_y, (1.0 + x) * v * v - 1.0));
        }
        values[j] = sum / FSPEC_PI * (cell->half_k == 0.0 ? 0.5 * width : 1.0);
    }
    apply(b->rule.to_cheb, values, cheb);
    apply(b->rule.to_powers, cheb, cell->mass_of);
    cell->mass = fspec_cell_mass_unit(cell, 1.0, width) * fspec_cell_polynomial(cell->mass_of, 1.0);
}

static void place_cell(fspec_cell *cell, const fspec_piece *p, double low, double high)
{
    memset(cell, 0, sizeof *cell);
    cell->low = low;
    cell->high = high;
    cell->end = low;
    cell->slope = 2.0 / (high - low);
    if (high == p->high && p->high_end != FSPEC_END_TAIL) {
        cell->half_k = p->high_end == FSPEC_END_ROOT ? 0.5 : -0.5;
        cell->end = high;
        cell->from_high = 1.0;
        cell->slope = -cell->slope;
    } else if (low == p->low && high != p->high) {
        cell->half_k = p->low_end == FSPEC_END_ROOT ? 0.5 : -0.5;
    }
    cell->offset = -1.0 - cell->slope * cell->end;
}

/* Fits the cell; *tail is the size of its last coefficients beyond what rounding explains. */
static int fit_cell(builder *b, fspec_cell *cell, double *tail, double *range)
{
    double values[TERMS], cheb[TERMS], noise = 0.0, low = INFINITY, high = -INFINITY;
    for (int j = 0; j < TERMS; j++) b->l[j] = to_l(cell, b->rule.node[j]);
    int status = solve_nodes(b);
    if (status != FSPEC_OK) return status;
    for (int j = 0; j < TERMS; j++) {
        double l = creal(b->l[j]), delta = fabs(l - cell->end);
        const fspec_state *x = b->nodes + (size_t)j * b->table->chain->size;
        double y = -cimag(x[0]);
        values[j] = log(y / fspec_cell_weight(cell, delta));
        low = fmin(low, values[j]);
        high = fmax(high, values[j]);
        /* l is known to 2e-16 |l|, the equation to about as much */
        double slip = fabs(cimag(1.0 / b->result[j].slope)) / y + 0.5 * fabs(cell->half_k) / delta;
        noise = fmax(noise, 4e-16 * fmax(1.0, fabs(l)) * slip);
        noise = fmax(noise, b->result[j].step * fmin(cabs(x[0]), cabs(x[1])) / y);
    }
    /* by way of the Chebyshev coefficients, which decay: from values to powers directly, rounding
     * is amplified a thousandfold */
    apply(b->rule.to_cheb, values, cheb);
    apply(b->rule.to_powers, cheb, cell->log_y);
    double last = fabs(cheb[TERMS - 1]) + fabs(cheb[TERMS - 2]) + fabs(cheb[TERMS - 3]);
    *tail = last;
    *range = high - low;
    if (last < fmax(1e-13, 2.0 * noise)) *tail = 0.0;
    return FSPEC_OK;
}

static int add_cell(fspec_table *t, const fspec_cell *cell)
{
    if (t->n_cells == t->room) {
        size_t room = t->room ? 2 * t->room : 32;
        fspec_cell *cells = realloc(t->cells, room * sizeof *cells);
        if (!cells) return FSPEC_NO_MEMORY;
        t->cells = cells;
        t->room = room;
    }
    t->cells[t->n_cells++] = *cell;
    return FSPEC_OK;
}

/* Where to split: near an end the cell shrinks towards it; a long tail splits near its top, one
 * like 1/l^2 over decades of l half way in log |l|. */
static double split_point(const fspec_cell *cell, const fspec_piece *p)
{
    double width = cell->high - cell->low;
    if (cell->half_k != 0.0)
        return cell->from_high ? cell->high - 0.3 * width : cell->low + 0.3 * width;
    int tail = p->low_end == FSPEC_END_TAIL && width > 4.0;
    double near = 1.0 + p->high - cell->high, far = 1.0 + p->high - cell->low;
    if (tail && far > 1e3 * near) return 1.0 + p->high - sqrt(near * far);
    return cell->high - (tail ? 0.25 : 0.5) * width;
}

/* Cells of [low, high], the upper ones first. A cell is taken when its polynomial is resolved, or
 * when halving no longer helps: what is left then is rounding. */
static int fit_range(builder *b, double low, double high, int depth, double parent)
{
    fspec_cell cell;
    double tail, range;
    place_cell(&cell, b->piece, low, high);
    int status = fit_cell(b, &cell, &tail, &range);
    if (status != FSPEC_OK) return status;
    int stuck = depth > 8 && tail < 1e-8 && tail > 0.5 * parent;
    /* beside a nearly critical point taken for a critical one */
    int blurred = b->table->chain->slack > 0.0 && cell.half_k < 0.0 && tail < 1e-4;
    if ((tail == 0.0 && range < 5.0) || stuck || blurred || depth == MAX_DEPTH) {
        b->table->error = fmax(b->table->error, tail);
        if (b->table->n_cells >= MAX_CELLS) return FSPEC_NOT_CONVERGED;
        fit_mass(b, &cell);
        return add_cell(b->table, &cell);
    }
    double mid = split_point(&cell, b->piece);
    /* not rounding, and not smooth: the walk has missed a gap here */
    if (!(mid > low && mid < high) || (depth > 24 && tail > 1e-6)) return FSPEC_WRONG_BRANCH;
    status = fit_range(b, mid, high, depth + 1, tail == 0.0 ? INFINITY : tail);
    return status != FSPEC_OK ? status
                              : fit_range(b, low, mid, depth + 1, tail == 0.0 ? INFINITY : tail);
}

/* d log y/dl at a state */
static double tail_power(const fspec_support *s, size_t i)
{
    return cimag(1.0 / s->slopes[i]) / cimag(fspec_support_state(s, i)[0]);
}

static int fit_piece(builder *b)
{
    const fspec_support *s = &b->table->support;
    const fspec_piece *p = b->piece;
    double low = p->low;
    if (p->low_end == FSPEC_END_TAIL) {
        size_t last = p->first + p->count - 1;
        low = s->l[last];
        b->table->tail_low = low;
        b->table->tail_slope = tail_power(s, last);
        b->table->tail_is_power =
            fabs(tail_power(s, last - 1) / b->table->tail_slope - 1.0) < 1e-6;
    }
    double mid = low < p->high - 8.0 ? p->high - 2.0 : 0.5 * (low + p->high);
    int status = fit_range(b, mid, p->high, 0, INFINITY);
    return status != FSPEC_OK ? status : fit_range(b, low, mid, 0, INFINITY);
}

/* ---- putting together ------------------------------------------------------------------------ */

static double atom_mass(const fspec_chain *c)
{
    double sum = 0.0;
    for (size_t i = 0; i < c->n_atoms; i++) sum += fmax(0.0, c->atoms[i].mass);
    return sum;
}

static double cell_mass(const fspec_table *t)
{
    double sum = 0.0;
    for (size_t i = 0; i < t->n_cells; i++) sum += t->cells[i].mass;
    if (t->tail_low > -INFINITY && t->n_cells) /* below the lowest cell */
        sum += exp(fspec_cell_polynomial(t->cells[t->n_cells - 1].log_y, -1.0)) /
               (FSPEC_PI * t->tail_slope);
    return sum;
}

static void finish(fspec_table *t)
{
    for (size_t i = 0; 2 * i + 1 < t->n_cells; i++) {
        fspec_cell swap = t->cells[i];
        t->cells[i] = t->cells[t->n_cells - 1 - i];
        t->cells[t->n_cells - 1 - i] = swap;
    }
    double below = 0.0, above = 0.0;
    if (t->tail_low > -INFINITY && t->n_cells)
        below = exp(fspec_cell_polynomial(t->cells[0].log_y, -1.0)) / (FSPEC_PI * t->tail_slope);
    for (size_t i = 0; i < t->n_cells; i++) {
        t->cells[i].below = below;
        below += t->cells[i].mass;
    }
    t->continuous_mass = below;
    for (size_t i = t->n_cells; i-- > 0;) {
        t->cells[i].above = above;
        above += t->cells[i].mass;
    }
    if (t->n_cells == 0) return;
    double high = t->cells[t->n_cells - 1].high;
    t->bins_low = fmax(t->cells[0].low, high - 40.0);
    t->bins_scale = FSPEC_CELL_BINS / (high - t->bins_low);
    int cell = 0;
    for (int k = 0; k < FSPEC_CELL_BINS; k++) {
        double l = t->bins_low + k / t->bins_scale;
        while (cell + 1 < (int)t->n_cells && t->cells[cell].high <= l) cell++;
        t->bins[k] = cell;
    }
    t->hard_exponent = t->tail_low > -INFINITY ? 1.0 / t->tail_slope : 0.0;
}

/* A tail that goes on below the smallest slopes in reach: its mass is what is missing, provided
 * that this is about 1 + m there (which for a slowly varying tail is the mass below). */
static void add_unresolved(fspec_table *t, double atoms)
{
    const fspec_support *s = &t->support;
    const fspec_piece *p = &s->pieces[s->n_pieces - 1];
    double e = creal(fspec_support_state(s, p->first + p->count - 1)[1]), found = 0.0;
    for (size_t i = 0; i < t->n_cells; i++) found += t->cells[i].mass;
    double missing = 1.0 - atoms - found;
    if (!(missing > 0.0 && fabs(e / missing - 1.0) < 0.3)) return;
    t->unresolved = missing;
    t->tail_is_power = 0;
    t->tail_slope =
        exp(fspec_cell_polynomial(t->cells[t->n_cells - 1].log_y, -1.0)) / (FSPEC_PI * missing);
}

/* Where the support ends although the density beyond the cells is below rounding. */
static void set_ends(fspec_table *t)
{
    t->ends_status = fspec_support_find_ends(&t->support);
    size_t n = t->support.n_pieces;
    if (n > 0 && t->support.pieces[n - 1].low > -INFINITY) t->tail_low = -INFINITY;
}

static int solve_pieces(builder *b)
{
    fspec_table *t = b->table;
    double atoms = atom_mass(t->chain);
    fspec_walker walk;
    int status = fspec_walker_init(&walk, t->chain), found = 1;
    while (status == FSPEC_OK && found) {
        t->mass_error = fabs(1.0 - atoms - cell_mass(t));
        if (t->mass_error < mass_complete) break;
        status = fspec_support_next(&t->support, &walk, &found);
        if (status != FSPEC_OK || !found) break;
        b->piece = &t->support.pieces[t->support.n_pieces - 1];
        status = fit_piece(b);
    }
    if (status == FSPEC_OK && t->support.unresolved && t->n_cells) add_unresolved(t, atoms);
    t->mass_error = fabs(1.0 - atoms - cell_mass(t));
    fspec_walker_free(&walk);
    return status;
}

static int has_soft_top(const fspec_support *s)
{
    return s->n_pieces > 0 && s->pieces[0].high_end == FSPEC_END_TAIL;
}

/* Walks and fits with steps of relative size `reach`, afresh. */
static void attempt(builder *b, double reach, int blurred)
{
    fspec_table *t = b->table;
    fspec_support_free(&t->support);
    fspec_support_init(&t->support, t->chain, reach);
    t->support.blurred = blurred;
    t->n_cells = 0;
    t->error = t->unresolved = 0.0;
    t->tail_low = -INFINITY;
    t->status = solve_pieces(b);
    if (t->mass_error < mass_complete) t->status = FSPEC_OK;
    else if (t->status == FSPEC_OK) t->status = FSPEC_NOT_CONVERGED;
}

/* A walk that steps over a narrow gap or piece shows in the mass: then shorter steps. */
static void attempts(builder *b)
{
    fspec_table *t = b->table;
    double best = 0.3, missing = INFINITY, reach;
    for (reach = 0.3; reach > 0.02; reach *= 0.3) {
        attempt(b, reach, 0);
        if (t->status != FSPEC_OK && has_soft_top(&t->support)) attempt(b, reach, 1);
        if (t->status == FSPEC_OK) return;
        if (t->mass_error < missing) {
            missing = t->mass_error;
            best = reach;
        }
    }
    /* Patterns of slopes that hardly occur may have pieces of the support to themselves, which no
     * walk sees: what it does see, complete but for them, is the law with mass_error. */
    if (t->chain->n_runs && missing < t->mass_error) attempt(b, best, 0);
    /* an atom so light, or so nearly one, that its surroundings are lost in rounding: what
     * taking it for an inverse-root point leaves out stays in mass_error */
    if (!(t->mass_error < FSPEC_NEARLY_CRITICAL) && !(t->chain->n_runs && missing < 1e-3)) {
        t->chain->slack = FSPEC_NEARLY_CRITICAL;
        attempt(b, 0.3, 0);
    }
}

int fspec_table_new(fspec_chain *chain, fspec_table **out)
{
    fspec_table *t = calloc(1, sizeof *t);
    builder *b = calloc(1, sizeof *b);
    int status = t && b ? FSPEC_OK : FSPEC_NO_MEMORY;
    if (status == FSPEC_OK) {
        t->chain = chain;
        b->table = t;
        make_rule(&b->rule);
        b->nodes = calloc(TERMS * chain->size, sizeof *b->nodes);
        status = b->nodes ? fspec_walker_init(&b->walker, chain) : FSPEC_NO_MEMORY;
    }
    if (status == FSPEC_OK) {
        attempts(b);
        if (t->status == FSPEC_OK) set_ends(t);
        finish(t);
    }
    if (b) {
        free(b->nodes);
        fspec_walker_free(&b->walker);
    }
    free(b);
    if (status != FSPEC_OK) {
        free(t);
        t = NULL;
    }
    *out = t;
    return status;
}

void fspec_table_free(fspec_table *t)
{
    if (!t) return;
    fspec_support_free(&t->support);
    fspec_chain_free(t->chain);
    free(t->cells);
    free(t);
}
