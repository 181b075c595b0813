# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Check, allocate, call without the GIL, hand back. The mathematics is in src_c."""

import numpy as np

from fastspec._cfastspec cimport *

LAMBDA = FSPEC_LAMBDA
LOG_LAMBDA = FSPEC_LOG_LAMBDA
TOP_DISTANCE = FSPEC_TOP_DISTANCE


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

    def support(self, int variable):
        """(low, high) of the continuous part, or None."""
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
