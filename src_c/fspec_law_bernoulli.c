/* Constants of the Bernoulli universality class: top edge e v at t = 1, atom (1 - v)_+ at e^v.
 * Pennington, Schoenholz & Ganguli 2018. */
#include <math.h>

#include "fspec_law.h"

int fspec_law_bernoulli_limit(double variance, fspec_law **out)
{
    if (!(variance >= 1e-12 && variance <= 1e6)) return FSPEC_BAD_ARGUMENT;
    fspec_law *law = fspec_law_new(FSPEC_EQ_BERNOULLI);
    if (!law) return FSPEC_NO_MEMORY;
    law->t_edge = law->e_edge = law->alpha = 1.0;
    law->mobius = 1;
    law->kappa = variance;
    law->gap_max = 1e150;
    law->kappa_gap = variance - 1.0;
    law->c_kappa = 1.0 - variance;
    fspec_law_set_edge(&law->top, 1 + logl((long double)variance));
    if (variance < 1.0) {
        law->continuous_mass = variance;
        fspec_law_add_atom(law, variance, 1.0 - variance);
    }
    *out = law;
    return FSPEC_OK;
}
