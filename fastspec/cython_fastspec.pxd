"""fastspec for Cython: `from fastspec.cython_fastspec cimport handle, pdf` (see the .pyx)."""

from fastspec._cfastspec cimport fspec_law

cdef const fspec_law *handle(object law) except NULL
cdef double pdf(const fspec_law *law, double lam) noexcept nogil
cdef double cdf(const fspec_law *law, double lam) noexcept nogil
cdef double icdf(const fspec_law *law, double p) noexcept nogil
cdef size_t density(const fspec_law *law, size_t n, const double *lam,
                    double *out) noexcept nogil
