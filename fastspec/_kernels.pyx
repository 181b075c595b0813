# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Check, allocate, call without the GIL, hand back. The mathematics is in src_c."""

import numpy as np

from fastspec._cfastspec cimport *

LAMBDA = FSPEC_LAMBDA
LOG_LAMBDA = FSPEC_LOG_LAMBDA
TOP_DISTANCE = FSPEC_TOP_DISTANCE
BAD_POINT = FSPEC_BAD_POINT
LOG_S_EXPONENTIAL = <size_t>&fspec_log_s_exponential
LOG_S_BERNOULLI = <size_t>&fspec_log_s_bernoulli


def status_message(int status):
    """The sentence for a status code."""
    return fspec_status_message(status).decode()


cdef class Law:
    """A law of the C library. Made by the functions below; immutable, safe to share."""

    def __dealloc__(self):
        fspec_law_free(self.handle)

    def density_at(self, double x, int variable):
        """Density at one point."""
        cdef double value
        with nogil:
            fspec_law_density(self.handle, 1, &x, variable, &value)
        return value

    def density(self, const double[::1] x, int variable, double[::1] out):
        """Densities into `out`; returns the number of points that failed."""
        cdef size_t n = x.shape[0], failures = 0
        if out.shape[0] != x.shape[0]:
            raise ValueError("out must have the length of x")
        if n:
            with nogil:
                failures = fspec_law_density(self.handle, n, &x[0], variable, &out[0])
        return failures

    def solve(self, const double[::1] x, int variable):
        """(m, density, status, residual, error_bound) at real points."""
        cdef size_t n = x.shape[0]
        re, im, rho, res, err = (np.empty(n) for _ in range(5))
        st = np.zeros(n, dtype=np.intc)
        cdef double[::1] re_ = re, im_ = im, rho_ = rho, res_ = res, err_ = err
        cdef int[::1] st_ = st
        if n:
            with nogil:
                fspec_law_solve(self.handle, n, &x[0], variable, &re_[0], &im_[0], &rho_[0],
                                &st_[0], &res_[0], &err_[0])
        return re, im, rho, st, res, err

    def walk(self, const double[::1] x, int variable):
        """(m, density, status) at real points by the slow route from infinity."""
        cdef size_t n = x.shape[0]
        re, im, rho = np.empty(n), np.empty(n), np.empty(n)
        st = np.zeros(n, dtype=np.intc)
        cdef double[::1] re_ = re, im_ = im, rho_ = rho
        cdef int[::1] st_ = st
        if n:
            with nogil:
                fspec_law_walk(self.handle, n, &x[0], variable, &re_[0], &im_[0], &rho_[0],
                               &st_[0])
        return re, im, rho, st

    def cdf(self, const double[::1] x, int variable):
        """(cdf, ccdf, number of points that failed)."""
        cdef size_t n = x.shape[0], failures = 0
        below, above = np.empty(n), np.empty(n)
        cdef double[::1] below_ = below, above_ = above
        if n:
            with nogil:
                failures = fspec_law_cdf(self.handle, n, &x[0], variable, &below_[0], &above_[0])
        return below, above, failures

    def quantile(self, const double[::1] p, int variable):
        """(quantiles, number of points that failed)."""
        cdef size_t n = p.shape[0], failures = 0
        x = np.empty(n)
        cdef double[::1] x_ = x
        if n:
            with nogil:
                failures = fspec_law_quantile(self.handle, n, &p[0], variable, &x_[0])
        return x, failures

    def green(self, const double[::1] z_re, const double[::1] z_im):
        """(G, m, status, residual, error bound of m) in the complex plane, as real pairs."""
        cdef size_t n = z_re.shape[0]
        g_re, g_im, m_re, m_im, res, err = (np.empty(n) for _ in range(6))
        st = np.zeros(n, dtype=np.intc)
        cdef double[::1] g_re_ = g_re, g_im_ = g_im, m_re_ = m_re, m_im_ = m_im
        cdef double[::1] res_ = res, err_ = err
        cdef int[::1] st_ = st
        if n:
            with nogil:
                fspec_law_green(self.handle, n, &z_re[0], &z_im[0], &g_re_[0], &g_im_[0],
                                &m_re_[0], &m_im_[0], &st_[0], &res_[0], &err_[0])
        return g_re, g_im, m_re, m_im, st, res, err

    def intervals(self, int variable):
        """List of (low, high) of the continuous part, in increasing order."""
        cdef double low, high
        cdef int i
        out = []
        for i in range(fspec_law_interval_count(self.handle)):
            fspec_law_interval(self.handle, i, variable, &low, &high)
            out.append((low, high))
        return out

    def cells(self):
        """Rows (low, high, end, power) of a chain's table; see `fspec_law_cell`."""
        cdef size_t i, n = fspec_law_cell_count(self.handle)
        out = np.empty((n, 4))
        cdef double[:, ::1] out_ = out
        for i in range(n):
            fspec_law_cell(self.handle, i, &out_[i, 0], &out_[i, 1], &out_[i, 2], &out_[i, 3])
        return out

    def mass_error(self):
        """How far the masses found by solving are from 1."""
        return fspec_law_mass_error(self.handle)

    def unresolved(self):
        """Mass near 0 that is not resolved."""
        return fspec_law_unresolved(self.handle)

    def ends_status(self):
        """0, or why an outer end of the support is not where it should be."""
        return fspec_law_ends_status(self.handle)

    def has_thin_ends(self):
        """Whether an outer end lies beyond where the density is above rounding."""
        return bool(fspec_law_has_thin_ends(self.handle))

    def take_ends(self, list blocks):
        """Thin ends from the chain of all blocks, for which this one stands; see `ends_status`."""
        cdef Blocks whole = Blocks(blocks)
        with nogil:
            fspec_law_take_ends(self.handle, whole.count, whole.out)

    def add_error(self, double error):
        """Something more that is known to be wrong with log z."""
        fspec_law_add_error(self.handle, error)

    def states(self, size_t n):
        """m at n of the points that a chain was solved at."""
        m_re, m_im = np.empty(n), np.empty(n)
        cdef double[::1] re = m_re, im = m_im
        cdef size_t count = fspec_law_states(self.handle, n, &re[0], &im[0]) if n else 0
        return m_re[:count] + 1j * m_im[:count]

    def interval_m(self, int i):
        """m at the ends of interval i; NaN where that is no square-root edge."""
        cdef double low, high
        fspec_law_interval_m(self.handle, i, &low, &high)
        return low, high

    def support(self, int variable):
        """(low, high) of the hull of the continuous part, or None."""
        cdef double low, high
        cdef int found
        if variable == FSPEC_LAMBDA:
            found = fspec_law_support(self.handle, &low, &high)
        else:
            found = fspec_law_log_support(self.handle, &low, &high)
        return (low, high) if found else None

    def atoms(self):
        """List of (location, log location, mass)."""
        cdef double place, log_place, mass
        cdef int i
        out = []
        for i in range(fspec_law_atom_count(self.handle)):
            fspec_law_atom(self.handle, i, &place, &log_place, &mass)
            out.append((place, log_place, mass))
        return out

    def continuous_mass(self):
        """Mass of the continuous part."""
        return fspec_law_continuous_mass(self.handle)

    def moment(self, unsigned k):
        """E lambda^k."""
        return fspec_law_moment(self.handle, k)

    def log_moment(self, unsigned k):
        """log E lambda^k."""
        return fspec_law_log_moment(self.handle, k)

    def relative_variance(self):
        """Var(lambda)/E(lambda)^2."""
        return fspec_law_relative_variance(self.handle)

    def hard_exponent(self):
        """E where the density is ~ lambda^(1/E - 1) at 0; 0 without a hard end, inf with logs."""
        return fspec_law_hard_exponent(self.handle)


cdef Law wrap(int status, fspec_law *handle):
    if status != FSPEC_OK:
        raise ValueError(status_message(status))
    law = Law()
    law.handle = handle
    return law


def resnet_limit(double c, double skip, double depth):
    """The universal residual law."""
    cdef fspec_law *handle = NULL
    cdef int status = fspec_law_resnet_limit(c, skip, depth, &handle)
    return wrap(status, handle)


def smooth_limit(double variance):
    """The smooth universality class."""
    cdef fspec_law *handle = NULL
    cdef int status = fspec_law_smooth_limit(variance, &handle)
    return wrap(status, handle)


def bernoulli_limit(double variance):
    """The Bernoulli universality class."""
    cdef fspec_law *handle = NULL
    cdef int status = fspec_law_bernoulli_limit(variance, &handle)
    return wrap(status, handle)


def plain_chain(double depth, double p, double q, double weight_variance, bint orthogonal):
    """Equal plain layers with 0/1 slopes."""
    cdef fspec_law *handle = NULL
    cdef int ensemble = FSPEC_ORTHOGONAL if orthogonal else FSPEC_GAUSSIAN
    cdef int status
    with nogil:
        status = fspec_law_plain_chain(depth, p, q, weight_variance, ensemble, &handle)
    return wrap(status, handle)


cdef class Slopes:
    """The law of d = phi'(h)^2 of a layer. Made by the functions below; immutable."""

    def __dealloc__(self):
        fspec_slopes_free(self.handle)

    cdef double _summary(self, int i):
        cdef double values[7]
        fspec_slopes_summary(self.handle, values)
        return values[i]

    @property
    def mean(self):
        """E d."""
        return self._summary(0)

    @property
    def second(self):
        """E d^2."""
        return self._summary(1)

    @property
    def top(self):
        """sup of the support."""
        return self._summary(2)

    @property
    def positive(self):
        """P(d > 0)."""
        return self._summary(3)

    @property
    def zero(self):
        """P(d = 0)."""
        return self._summary(4)

    @property
    def count(self):
        """Number of values of d, 0 included, of a discrete law or of a smooth one's Gauss rule."""
        return int(self._summary(6))

    @property
    def guard(self):
        """The Gauss rule serves where |zeta - top| + |zeta| is at least this; 0: everywhere."""
        return self._summary(5)

    def m(self, zeta):
        """M(zeta) = E d/(zeta - d), M + P(d > 0) and dM/dzeta, from the side of Im zeta = +-0."""
        zeta = np.asarray(zeta, dtype=complex)
        cdef double[::1] re = np.ascontiguousarray(zeta.real).reshape(-1)
        cdef double[::1] im = np.ascontiguousarray(zeta.imag).reshape(-1)
        cdef size_t n = re.shape[0]
        out = np.empty((3, n), dtype=complex)
        cdef double[:, ::1] out_ = out.view(float)
        if n:
            with nogil:
                fspec_slopes_transform(self.handle, n, &re[0], &im[0], &out_[0, 0], &out_[1, 0],
                                       &out_[2, 0])
        return tuple(out.reshape(3, *zeta.shape))


cdef Slopes wrap_slopes(int status, fspec_slopes *handle, double accuracy, double spread,
                        double atom, double cluster):
    if status != FSPEC_OK:
        raise ValueError(status_message(status))
    slopes = Slopes()
    slopes.handle = handle
    slopes.accuracy, slopes.spread = accuracy, spread
    slopes.atom, slopes.cluster = atom, cluster
    slopes.critical = ()
    return slopes


cdef const double *start(const double[::1] array):
    return &array[0] if array.shape[0] else NULL


def discrete_slopes(const double[::1] values, const double[::1] probabilities):
    """Slopes with finitely many values."""
    cdef fspec_slopes *handle = NULL
    if values.shape[0] != probabilities.shape[0]:
        raise ValueError("values and probabilities must have one length")
    cdef int status = fspec_slopes_discrete(values.shape[0], start(values), start(probabilities),
                                            &handle)
    v, p = np.asarray(values), np.asarray(probabilities)
    cdef double atom = np.max(p, initial=0.0, where=v > 0.0), spread = 0.0
    if status == FSPEC_OK and atom > 0.0:
        spread = np.sqrt(0.5 * np.sum(np.outer(p, p) * (v[:, None] - v) ** 2)) / (p @ v)
    return wrap_slopes(status, handle, 1e-15, spread, atom, atom)


def smooth_slopes(const double[::1] value, const double[::1] mass, summary, double accuracy,
                  double spread, double cluster, const double[::1] atom_value, const double[::1] atom_mass,
                  const double[::1] critical, const size_t[::1] cover_panels,
                  const double[::1] centre, const double[::1] half,
                  const double[:, ::1] coefficients, const int[::1] joints):
    """Slopes of a smooth law; `summary` is P(d = 0), E d, E d^2, inf d > 0 and sup d on
    the panels and over all h, and the least |zeta| that the panels serve. The arrays are
    those of fspec_smooth_slopes, one row of `coefficients` per panel."""
    cdef fspec_smooth_slopes law
    cdef fspec_slopes *handle = NULL
    law.zero, law.mean, law.second = summary[:3]
    law.bottom, law.top, law.least, law.largest, law.resolved = summary[3:]
    law.count, law.value, law.mass = value.shape[0], start(value), start(mass)
    law.n_atoms = atom_value.shape[0]
    law.atom_value, law.atom_mass = start(atom_value), start(atom_mass)
    law.n_critical, law.critical = critical.shape[0], start(critical)
    law.n_covers, law.cover_panels = cover_panels.shape[0], &cover_panels[0]
    law.n_terms, law.coefficients = coefficients.shape[1], &coefficients[0, 0]
    law.centre, law.half, law.joints = &centre[0], &half[0], &joints[0]
    cdef int status
    with nogil:
        status = fspec_slopes_smooth(&law, &handle)
    slopes = wrap_slopes(status, handle, accuracy, spread, np.max(atom_mass, initial=0.0),
                         cluster)
    slopes.critical = tuple(critical)
    return slopes


cdef void python_log_s(double m_re, double m_im, double one_re, double *log_s, double *dlog_s,
                       void *data) noexcept with gil:
    """A Python S-transform for the C library: NaN where it is not defined, and after any other
    exception, which is kept."""
    function, derivative, failures = <object>data
    try:
        m = complex(m_re, m_im)
        value, slope = complex(function(m)), complex(derivative(m))
    except Exception as error:
        if not isinstance(error, (ArithmeticError, ValueError)):
            failures.append(error)
        value = slope = complex("nan")
    log_s[0], log_s[1] = value.real, value.imag
    dlog_s[0], dlog_s[1] = slope.real, slope.imag


cdef list fill_layers(list layers, fspec_layer *out):
    """One block's layers as C; returns what must outlive them."""
    cdef Slopes slopes
    cdef size_t j
    for j in range(len(layers)):
        slopes, variance, orthogonal, width_out, width_in = layers[j]
        out[j].slopes = slopes.handle
        out[j].weight_variance = variance
        out[j].ensemble = FSPEC_ORTHOGONAL if orthogonal else FSPEC_GAUSSIAN
        out[j].width_out, out[j].width_in = width_out, width_in
    return layers


cdef class Blocks:
    """Blocks of a chain as C, and what must outlive them (see `chain`)."""

    cdef object stores, keep, failures
    cdef fspec_block *out
    cdef size_t count

    def __init__(self, list blocks):
        cdef size_t i, layer = 0, total = sum(len(block[0]) for block in blocks)
        self.count = len(blocks)
        block_store = np.zeros(self.count * sizeof(fspec_block) // 8 + 1)
        layer_store = np.zeros((total + 1) * sizeof(fspec_layer) // 8 + 1)
        cdef double[::1] block_view = block_store, layer_view = layer_store
        cdef fspec_layer *rows = <fspec_layer *>&layer_view[0]
        self.out = <fspec_block *>&block_view[0]
        self.stores, self.keep, self.failures = (block_store, layer_store), [], []
        for i in range(self.count):
            layers, skip, repeat, given = blocks[i]
            self.out[i].n_layers, self.out[i].skip, self.out[i].repeat = len(layers), skip, repeat
            self.out[i].layers = rows + layer
            self.keep.append(fill_layers(layers, rows + layer))
            layer += len(layers)
            if given is not None:
                self.fill_given(given, &self.out[i])

    cdef fill_given(self, given, fspec_block *block):
        cdef double[::1] data
        function, derivative, block.log_mean, block.positive, of_m_only = given
        block.of_m_only = of_m_only
        self.keep.append(given)
        if isinstance(function, int):
            block.log_s = <fspec_log_s_fn><size_t>function
            if derivative is not None:
                data = derivative
                block.data = <void *>&data[0]
        else:
            triple = (function, derivative, self.failures)
            self.keep.append(triple)
            block.log_s, block.data = python_log_s, <void *>triple


cdef class Runs:
    """Runs of a chain as C: (sites, slope_nodes, nodes) each."""

    cdef object stores
    cdef fspec_shared *out
    cdef size_t count

    def __init__(self, runs):
        cdef size_t i
        cdef size_t[::1] sites
        self.count = len(runs)
        store = np.zeros(self.count * sizeof(fspec_shared) // 8 + 1)
        cdef double[::1] view = store
        self.out = <fspec_shared *>&view[0]
        self.stores = [store]
        for i in range(self.count):
            array = np.array(runs[i][0], dtype=np.uintp)
            sites = array
            self.stores.append(array)
            self.out[i].n_sites, self.out[i].sites = sites.shape[0], &sites[0]
            self.out[i].slope_nodes, self.out[i].nodes = runs[i][1:]


def sharing(list blocks, runs, m):
    """What sharing coordinates adds at every m: an array of (D, dU, dU', error of dU), and status
    codes (see fspec_sharing)."""
    cdef Blocks packed = Blocks(blocks)
    cdef Runs shared = Runs(runs)
    m = np.ascontiguousarray(m, dtype=complex)
    cdef double[::1] re = np.ascontiguousarray(m.real), im = np.ascontiguousarray(m.imag)
    cdef size_t n = re.shape[0]
    out, codes = np.zeros((n, FSPEC_SHARING_TERMS), dtype=complex), np.zeros(n, dtype=np.intc)
    if n == 0:
        return out, codes
    cdef double[:, ::1] out_ = out.view(float)
    cdef int[::1] codes_ = codes
    cdef int status
    with nogil:
        status = fspec_sharing(packed.count, packed.out, shared.count, shared.out, n, &re[0],
                               &im[0], &out_[0, 0], &codes_[0])
    if status != FSPEC_OK:
        raise ValueError(status_message(status))
    return out, codes


def shared_atoms(list blocks, runs):
    """(location, mass) of the atoms of a chain some of whose blocks share coordinates."""
    cdef Blocks packed = Blocks(blocks)
    cdef Runs shared = Runs(runs)
    cdef double location[64]
    cdef double mass[64]
    cdef size_t i, count = fspec_shared_atoms(packed.count, packed.out, shared.count, shared.out,
                                              64, location, mass)
    found = []
    for i in range(count):
        found.append((location[i], mass[i]))
    return found


def chain(list blocks, double error, runs=()):
    """Law of a chain of blocks, each (layers, skip, repeat, given); error is that of log z; runs
    are blocks that share coordinates, each (sites, slope_nodes, nodes).

    layers are tuples (Slopes, weight variance, orthogonal, width out, width in); given is None or
    (log_s, dlog_s, log_mean, positive, of_m_only): Python callables, or the address of one C
    function (fspec_log_s_fn) as log_s and its array of data, or None, as dlog_s.
    """
    cdef Blocks packed = Blocks(blocks)
    cdef Runs shared = Runs(runs)
    cdef fspec_law *handle = NULL
    cdef int status
    with nogil:
        if shared.count:
            status = fspec_law_shared_chain(packed.count, packed.out, shared.count, shared.out,
                                            error, &handle)
        else:
            status = fspec_law_chain(packed.count, packed.out, error, &handle)
    if packed.failures:
        fspec_law_free(handle)
        raise packed.failures[0]
    law = wrap(status, handle)
    law.keep = packed.keep
    return law
