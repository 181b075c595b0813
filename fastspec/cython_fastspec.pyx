"""The laws for other Cython code, without Python overhead and without linking.

Cython modules `cimport` these functions; they are called through the import capsule, so that
only the header's folder (`fastspec.get_include()`) is needed to compile:

    from fastspec.cython_fastspec cimport fspec_law, handle, pdf

    def height(law, double lam):
        cdef const fspec_law *h = handle(law)   # borrowed: keep `law` alive
        with nogil:
            value = pdf(h, lam)
        return value

`pdf`, `cdf`, `icdf` take one point; `density` an array and returns the number of points that
failed (they are NaN). All are free of the GIL and of global state.
"""

from fastspec._cfastspec cimport *
from fastspec._kernels cimport Law


cdef const fspec_law *handle(object law) except NULL:
    """The C handle of a fastspec law, borrowed from it."""
    core = getattr(law, "_core", law)
    if not isinstance(core, Law):
        raise TypeError(f"law must be a fastspec law, got {type(law).__name__}")
    return (<Law>core).handle


cdef double pdf(const fspec_law *law, double lam) noexcept nogil:
    cdef double value
    fspec_law_density(law, 1, &lam, FSPEC_LAMBDA, &value)
    return value


cdef double cdf(const fspec_law *law, double lam) noexcept nogil:
    cdef double value
    fspec_law_cdf(law, 1, &lam, FSPEC_LAMBDA, &value, NULL)
    return value


cdef double icdf(const fspec_law *law, double p) noexcept nogil:
    cdef double value
    fspec_law_quantile(law, 1, &p, FSPEC_LAMBDA, &value)
    return value


cdef size_t density(const fspec_law *law, size_t n, const double *lam,
                    double *out) noexcept nogil:
    return fspec_law_density(law, n, lam, FSPEC_LAMBDA, out)
