from fastspec._cfastspec cimport fspec_law


cdef class Law:
    cdef fspec_law *handle
