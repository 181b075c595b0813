#include "fastspec.h"

const char *fspec_status_message(int status)
{
    switch (status) {
    case FSPEC_OK: return "solved";
    case FSPEC_NOT_CONVERGED: return "the iteration did not converge";
    case FSPEC_WRONG_BRANCH: return "the iteration left the lower half plane";
    case FSPEC_BAD_POINT: return "the point is NaN";
    case FSPEC_SINGULAR: return "the function is infinite at this point";
    case FSPEC_BAD_ARGUMENT: return "an argument is out of range";
    case FSPEC_NO_MEMORY: return "out of memory";
    default: return "unknown status code";
    }
}
