"""The C library as Cython sees it; the only `cdef extern` of the package."""

cdef extern from "fastspec.h" nogil:
    int FSPEC_OK
    int FSPEC_GAUSSIAN
    int FSPEC_ORTHOGONAL
    int FSPEC_LAMBDA
    int FSPEC_LOG_LAMBDA
    int FSPEC_TOP_DISTANCE

    ctypedef struct fspec_law:
        pass

    const char *fspec_status_message(int status)

    int fspec_law_resnet_limit(double c, double skip, double depth, fspec_law **law)
    int fspec_law_smooth_limit(double variance, fspec_law **law)
    int fspec_law_bernoulli_limit(double variance, fspec_law **law)
    int fspec_law_plain_chain(double depth, double p, double q, double weight_variance,
                              int ensemble, fspec_law **law)
    void fspec_law_free(fspec_law *law)

    int fspec_law_log_support(const fspec_law *law, double *low, double *high)
    int fspec_law_support(const fspec_law *law, double *low, double *high)
    int fspec_law_atom_count(const fspec_law *law)
    void fspec_law_atom(const fspec_law *law, int i, double *location, double *log_location,
                        double *mass)
    double fspec_law_continuous_mass(const fspec_law *law)
    double fspec_law_moment(const fspec_law *law, unsigned k)
    double fspec_law_log_moment(const fspec_law *law, unsigned k)
    double fspec_law_relative_variance(const fspec_law *law)
    double fspec_law_hard_exponent(const fspec_law *law)

    size_t fspec_law_density(const fspec_law *law, size_t n, const double *x, int variable,
                             double *density)
    size_t fspec_law_solve(const fspec_law *law, size_t n, const double *x, int variable,
                           double *m_re, double *m_im, double *density, int *status,
                           double *residual, double *error_bound)
    size_t fspec_law_cdf(const fspec_law *law, size_t n, const double *x, int variable,
                         double *cdf, double *ccdf)
    size_t fspec_law_quantile(const fspec_law *law, size_t n, const double *p, int variable,
                              double *x)
    size_t fspec_law_green(const fspec_law *law, size_t n, const double *z_re,
                           const double *z_im, double *g_re, double *g_im, double *m_re,
                           double *m_im, int *status, double *residual, double *error_bound)
