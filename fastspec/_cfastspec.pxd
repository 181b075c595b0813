"""The C library as Cython sees it; the only `cdef extern` of the package."""

cdef extern from "fastspec.h" nogil:
    int FSPEC_OK
    int FSPEC_GAUSSIAN
    int FSPEC_ORTHOGONAL
    int FSPEC_BAD_POINT
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

    int fspec_law_interval_count(const fspec_law *law)
    void fspec_law_interval(const fspec_law *law, int i, int variable, double *low, double *high)
    size_t fspec_law_cell_count(const fspec_law *law)
    void fspec_law_cell(const fspec_law *law, size_t i, double *low, double *high, double *end,
                        double *power)
    double fspec_law_mass_error(const fspec_law *law)
    double fspec_law_unresolved(const fspec_law *law)
    int fspec_law_ends_status(const fspec_law *law)
    int fspec_law_has_thin_ends(const fspec_law *law)

    size_t fspec_law_density(const fspec_law *law, size_t n, const double *x, int variable,
                             double *density)
    size_t fspec_law_solve(const fspec_law *law, size_t n, const double *x, int variable,
                           double *m_re, double *m_im, double *density, int *status,
                           double *residual, double *error_bound)
    size_t fspec_law_walk(const fspec_law *law, size_t n, const double *x, int variable,
                          double *m_re, double *m_im, double *density, int *status)
    size_t fspec_law_cdf(const fspec_law *law, size_t n, const double *x, int variable,
                         double *cdf, double *ccdf)
    size_t fspec_law_quantile(const fspec_law *law, size_t n, const double *p, int variable,
                              double *x)
    size_t fspec_law_green(const fspec_law *law, size_t n, const double *z_re,
                           const double *z_im, double *g_re, double *g_im, double *m_re,
                           double *m_im, int *status, double *residual, double *error_bound)

    ctypedef struct fspec_slopes:
        pass

    ctypedef struct fspec_smooth_slopes:
        size_t count
        const double *value
        const double *mass
        double zero, mean, second, bottom, top, least, largest, resolved
        size_t n_atoms
        const double *atom_value
        const double *atom_mass
        size_t n_critical
        const double *critical
        size_t n_covers
        const size_t *cover_panels
        size_t n_terms
        const double *centre
        const double *half
        const double *coefficients
        const int *joints

    int fspec_slopes_discrete(size_t n, const double *values, const double *probabilities,
                              fspec_slopes **slopes)
    int fspec_slopes_smooth(const fspec_smooth_slopes *law, fspec_slopes **slopes)
    void fspec_slopes_free(fspec_slopes *slopes)
    void fspec_slopes_transform(const fspec_slopes *slopes, size_t n, const double *zeta_re,
                                const double *zeta_im, double *m, double *excess, double *dm)
    void fspec_slopes_summary(const fspec_slopes *slopes, double *summary)

    ctypedef struct fspec_layer:
        const fspec_slopes *slopes
        double weight_variance
        int ensemble
        double width_out, width_in

    ctypedef void (*fspec_log_s_fn)(double m_re, double m_im, double one_re, double *log_s,
                                    double *dlog_s, void *data) noexcept nogil
    void fspec_log_s_exponential(double m_re, double m_im, double one_re, double *log_s,
                                 double *dlog_s, void *data) noexcept
    void fspec_log_s_bernoulli(double m_re, double m_im, double one_re, double *log_s,
                               double *dlog_s, void *data) noexcept

    ctypedef struct fspec_block:
        size_t n_layers
        const fspec_layer *layers
        double skip, repeat
        fspec_log_s_fn log_s
        void *data
        double log_mean, positive
        int of_m_only

    int fspec_law_chain(size_t n_blocks, const fspec_block *blocks, double error,
                        fspec_law **law)
    ctypedef struct fspec_shared:
        size_t n_sites
        const size_t *sites
        size_t slope_nodes, nodes

    enum:
        FSPEC_SHARING_TERMS
    int fspec_law_shared_chain(size_t n_blocks, const fspec_block *blocks, size_t n_runs,
                               const fspec_shared *runs, double error, fspec_law **law)
    int fspec_sharing(size_t n_blocks, const fspec_block *blocks, size_t n_runs,
                      const fspec_shared *runs, size_t n, const double *m_re,
                      const double *m_im, double *out, int *status)
    size_t fspec_shared_atoms(size_t n_blocks, const fspec_block *blocks, size_t n_runs,
                              const fspec_shared *runs, size_t n, double *location,
                              double *mass)
    void fspec_law_add_error(fspec_law *law, double error)
    void fspec_law_interval_m(const fspec_law *law, int i, double *low, double *high)
    size_t fspec_law_states(const fspec_law *law, size_t n, double *m_re, double *m_im)
    int fspec_law_take_ends(fspec_law *law, size_t n_blocks, const fspec_block *blocks)
