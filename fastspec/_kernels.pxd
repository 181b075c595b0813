from fastspec._cfastspec cimport fspec_law, fspec_slopes


cdef class Law:
    cdef fspec_law *handle
    cdef object keep


cdef class Slopes:
    cdef fspec_slopes *handle
    cdef readonly double accuracy, spread, atom, cluster
    cdef readonly tuple critical
    cdef double _summary(self, int i)
