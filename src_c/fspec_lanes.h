/* Lane vectors: FSPEC_LANES doubles worked on together, and the elementary functions on them.
 *
 * The including file sets FSPEC_LANES (1, 2, 4 or 8) to the width of one machine vector, so that
 * each operator is one instruction. One lane needs nothing but C11; more need the vector
 * extension that gcc and clang share.
 *
 * Complex numbers are pairs (re, im). All of this package's complex unknowns lie in the closed
 * lower half plane (z in the upper one), so every argument is taken in [-pi, 0]: the sign of an
 * imaginary part that is rounding noise can never choose a branch.
 */
#ifndef FSPEC_LANES_H
#define FSPEC_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define FSPEC_LN2 0.693147180559945309417232121458176568
#define FSPEC_PI 3.14159265358979323846264338327950288

#if FSPEC_LANES == 1
typedef double vd;
typedef int64_t vi;
typedef uint64_t vu;
#else
typedef double vd __attribute__((vector_size(8 * FSPEC_LANES)));
typedef int64_t vi __attribute__((vector_size(8 * FSPEC_LANES)));
typedef uint64_t vu __attribute__((vector_size(8 * FSPEC_LANES)));
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#endif

typedef struct {
    vd re, im;
} vc;

static inline vd v_load(const double *p)
{
    vd r;
    memcpy(&r, p, sizeof r);
    return r;
}

static inline void v_store(double *p, vd a) { memcpy(p, &a, sizeof a); }

static inline vi v_bits(vd a)
{
    vi r;
    memcpy(&r, &a, sizeof r);
    return r;
}

static inline vd v_from_bits(vi a)
{
    vd r;
    memcpy(&r, &a, sizeof r);
    return r;
}

static inline vd v_set(double a)
{
#if FSPEC_LANES == 1
    return a;
#else
    vd r = {0};
    return r + a;
#endif
}

/* Masks: all bits set where the comparison holds. */
#if FSPEC_LANES == 1
static inline vi v_lt(vd a, vd b) { return -(vi)(a < b); }
static inline vi v_le(vd a, vd b) { return -(vi)(a <= b); }
static inline vi v_eq(vd a, vd b) { return -(vi)(a == b); }
#else
static inline vi v_lt(vd a, vd b) { return (vi)(a < b); }
static inline vi v_le(vd a, vd b) { return (vi)(a <= b); }
static inline vi v_eq(vd a, vd b) { return (vi)(a == b); }
#endif

static inline vd v_select(vi mask, vd yes, vd no)
{
    return v_from_bits((mask & v_bits(yes)) | (~mask & v_bits(no)));
}

static inline int v_any(vi mask)
{
#if FSPEC_LANES == 1
    return mask != 0;
#else
    int64_t any = 0;
    for (int i = 0; i < FSPEC_LANES; i++) any |= mask[i];
    return any != 0;
#endif
}

static inline vd v_abs(vd a) { return v_from_bits(v_bits(a) & INT64_MAX); }
static inline vd v_min(vd a, vd b) { return v_select(v_lt(a, b), a, b); }
static inline vd v_max(vd a, vd b) { return v_select(v_lt(a, b), b, a); }

static inline vd v_sqrt(vd a)
{
#if FSPEC_LANES == 8 && defined(__x86_64__)
    return _mm512_sqrt_pd(a);
#elif FSPEC_LANES == 4 && defined(__x86_64__)
    return _mm256_sqrt_pd(a);
#elif FSPEC_LANES == 2 && defined(__x86_64__)
    return _mm_sqrt_pd(a);
#elif FSPEC_LANES == 1
    return sqrt(a);
#else
    vd r;
    for (int i = 0; i < FSPEC_LANES; i++) r[i] = sqrt(a[i]);
    return r;
#endif
}

/* A logarithm kept as k ln 2 + f, |f| <= ln(2)/2: sums of logs that nearly cancel keep their
 * digits because the integers k cancel exactly. */
typedef struct {
    vd k, f;
} vlog;

/* a = 2^k m, m in [sqrt(1/2), sqrt 2), for positive normal a. */
static inline vd v_split(vd a, vd *k)
{
    /* Adding 2^10 exponent steps keeps the shifted field positive; 0x433 is the exponent of
     * 2^52, whose mantissa then holds the field as an integer. */
    const uint64_t sqrt_half = 0x3fe6a09e667f3bcd, bias = (uint64_t)1 << 62;
    vu bits = (vu)v_bits(a);
    vu field = (bits - sqrt_half + bias) >> 52;
    *k = v_from_bits((vi)(field | 0x4330000000000000)) - (4503599627370496.0 + 1024.0);
    return v_from_bits((vi)(bits - ((field - 1024) << 52)));
}

/* 2 atanh(s), |s| <= 3 - 2 sqrt 2 (coefficients.py). */
static inline vd v_two_atanh(vd s)
{
    vd z = s * s;
    vd p = z * 0.1462395660821188 + 0.1533111258796017;
    p = p * z + 0.1818290749767122;
    p = p * z + 0.22222210881932927;
    p = p * z + 0.28571428627528794;
    p = p * z + 0.3999999999989607;
    p = p * z + 0.666666666666667;
    return 2.0 * s + s * z * p;
}

static inline vlog v_log(vd a)
{
    vlog r;
    vd m = v_split(a, &r.k);
    r.f = v_two_atanh((m - 1.0) / (m + 1.0));
    return r;
}

/* log(1 + excess), a = 1 + excess; both are given because either may be the accurate one:
 * near a = 1 the result has the relative accuracy of excess, elsewhere that of a. */
static inline vlog v_log1p(vd a, vd excess)
{
    vlog r;
    vd m = v_split(a, &r.k);
    vi near_one = v_eq(r.k, v_set(0.0));
    vd num = v_select(near_one, excess, m - 1.0);
    vd den = v_select(near_one, excess + 2.0, m + 1.0);
    r.f = v_two_atanh(num / den);
    return r;
}

/* The angle of x + iy in [0, pi], y taken as |y|. */
static inline vd v_angle(vd y, vd x)
{
    vd ay = v_abs(y), ax = v_abs(x);
    vi steep = v_lt(ax, ay);
    vd small = v_select(steep, ax, ay), large = v_select(steep, ay, ax);
    /* above tan(pi/8): atan(s/l) = pi/4 + atan((s - l)/(s + l)) */
    vi upper = v_lt(large * 0.41421356237309503, small);
    vd num = v_select(upper, small - large, small);
    vd den = v_select(upper, small + large, large);
    vd t = num / v_select(v_eq(den, v_set(0.0)), v_set(1.0), den);
    vd z = t * t;
    vd p = z * -0.01917627151752634 + 0.0392311556198723;
    p = p * z + -0.050854323376990765;
    p = p * z + 0.05858145587628202;
    p = p * z + -0.06664511064599371;
    p = p * z + 0.07692183163650894;
    p = p * z + -0.09090904576954117;
    p = p * z + 0.11111111015227572;
    p = p * z + -0.14285714284666184;
    p = p * z + 0.19999999999995519;
    p = p * z + -0.3333333333333333;
    vd a = t + t * z * p;
    a = v_select(upper, a + FSPEC_PI / 4, a);
    a = v_select(steep, FSPEC_PI / 2 - a, a);
    return v_select(v_lt(x, v_set(0.0)), FSPEC_PI - a, a);
}

/* exp(a) to about 1e-9, for starting guesses; a in [-708, 708]. */
static inline vd v_exp_rough(vd a)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52: rounds to an integer */
    vd kd = a * (1.0 / FSPEC_LN2) + magic;
    vu k = (vu)v_bits(kd) << 52;
    vd r = a - (kd - magic) * FSPEC_LN2;
    vd p = r * (1.0 / 5040) + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    return v_from_bits((vi)((vu)v_bits(p) + k));
}

static inline vd vc_norm2(vc a) { return a.re * a.re + a.im * a.im; }

static inline vc vc_mul(vc a, vc b)
{
    return (vc){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

static inline vc vc_scale(vc a, vd s) { return (vc){a.re * s, a.im * s}; }
static inline vc vc_add(vc a, vc b) { return (vc){a.re + b.re, a.im + b.im}; }
static inline vc vc_sub(vc a, vc b) { return (vc){a.re - b.re, a.im - b.im}; }

static inline vc vc_inv(vc a)
{
    vd s = 1.0 / vc_norm2(a);
    return (vc){a.re * s, -(a.im * s)};
}

static inline vc vc_select(vi mask, vc yes, vc no)
{
    return (vc){v_select(mask, yes.re, no.re), v_select(mask, yes.im, no.im)};
}

#endif
