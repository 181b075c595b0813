/* Laws given by log S: evaluation for the chain, the atom they bring, and the closed forms. */
#include <math.h>

#include "fspec_chain.h"

void fspec_log_s_exponential(double m_re, double m_im, double one_re, double log_s[2],
                             double dlog_s[2], void *data)
{
    const double *p = data;
    (void)one_re;
    log_s[0] = -p[0] - p[1] * m_re;
    log_s[1] = -p[1] * m_im;
    dlog_s[0] = -p[1];
    dlog_s[1] = 0.0;
}

void fspec_log_s_bernoulli(double m_re, double m_im, double one_re, double log_s[2],
                           double dlog_s[2], void *data)
{
    const double variance = *(const double *)data;
    double complex inverse = 1.0 / (one_re + I * m_im);
    double complex value = -variance * ((m_re + I * m_im) * inverse);
    double complex slope = -variance * inverse * inverse;
    log_s[0] = creal(value);
    log_s[1] = cimag(value);
    dlog_s[0] = creal(slope);
    dlog_s[1] = cimag(slope);
}

/* S is real: S(conj m) = conj S(m). On the real axis it is the limit from below that counts, and
 * what that leaves of the imaginary part where S > 0 is dropped. */
void fspec_given_value(const fspec_chain_block *b, double m_re, double m_im, double one_re,
                       double value[4])
{
    const double below = 1e-300;
    double log_s[2], dlog_s[2], sign = m_im > 0.0 ? -1.0 : 1.0;
    b->log_s(m_re, m_im == 0.0 ? -below : -fabs(m_im), one_re, log_s, dlog_s, b->data);
    value[0] = -log_s[0] - b->log_mean;
    value[1] = -sign * log_s[1];
    value[2] = -dlog_s[0];
    value[3] = -sign * dlog_s[1];
    if (m_im == 0.0 && fabs(value[1]) < 1e-200) value[1] = 0.0;
    if (m_im == 0.0 && fabs(value[3]) < 1e-200) value[3] = 0.0;
}

/* Means over the circle |m| = radius of -log S and of -m^2 d log S/dm, by the trapezoid rule on its
 * lower half: exact but for rounding where log S is analytic in 1/m outside. */
static double far_means(const fspec_chain_block *b, double radius, fspec_given_far *far)
{
    enum { POINTS = 32 };
    double value[4], low = INFINITY, high = -INFINITY, turn = 0.0;
    far->log_location = far->excess = 0.0;
    for (int j = 0; j < POINTS; j++) {
        double angle = FSPEC_PI * (j + 0.5) / POINTS;
        double complex m = radius * (cos(angle) - I * sin(angle));
        fspec_given_value(b, creal(m), cimag(m), 1.0 + creal(m), value);
        far->log_location += (value[0] + b->log_mean) / POINTS;
        far->excess += creal(m * m * (value[2] + I * value[3])) / POINTS;
        low = fmin(low, value[0]);
        high = fmax(high, value[0]);
        turn = fmax(turn, fabs(value[1]));
    }
    far->excess = 1.0 - far->excess;
    return high - low + turn;
}

/* log S = -log x + (1 - w)/m + O(m^-2) at infinity is an atom of mass w at x (w = 0: a density like
 * an inverse root there), since m ~ w x/(z - x). */
int fspec_given_atom(const fspec_chain_block *b, fspec_given_far *far)
{
    const double agreed = FSPEC_GIVEN_ACCURACY;
    fspec_given_far next;
    double spread = far_means(b, 10.0, far);
    for (double radius = 100.0; radius < 1e8; radius *= 10.0) {
        double spread_next = far_means(b, radius, &next);
        int settles = spread_next < 0.2 * spread || spread_next < agreed;
        if (settles && fabs(next.log_location - far->log_location) <
                           agreed * fmax(1.0, fabs(far->log_location)) &&
            fabs(next.excess - far->excess) < agreed * fmax(1.0, fabs(far->excess)))
            return 1;
        *far = next;
        spread = spread_next;
    }
    return 0;
}
