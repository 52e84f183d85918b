// One double per lane, one node per lane. Included once per instruction set, inside
// an anonymous namespace, so that no symbol of a wide build is ever shared.
#pragma once

#if defined(__AVX512F__)
constexpr int kLanes = 8;
#elif defined(__AVX2__)
constexpr int kLanes = 4;
#else
constexpr int kLanes = 2;
#endif

typedef double Vec __attribute__((vector_size(kLanes * 8)));
typedef unsigned char Bytes __attribute__((vector_size(kLanes)));
typedef long long Mask __attribute__((vector_size(kLanes * 8)));

inline Vec splat(double x) { return x - Vec{}; }

#if defined(__AVX512F__)
inline Vec vmax(Vec a, Vec b) { return (Vec)_mm512_max_pd((__m512d)a, (__m512d)b); }
inline Vec vmin(Vec a, Vec b) { return (Vec)_mm512_min_pd((__m512d)a, (__m512d)b); }
inline Vec vabs(Vec a) { return (Vec)_mm512_abs_pd((__m512d)a); }
// Two Newton steps from 14 bits: within a few units in the last place. The reciprocal of
// b must be finite.
inline Vec ratio(Vec a, Vec b) {
  __m512d x = _mm512_rcp14_pd((__m512d)b);
  const __m512d two = _mm512_set1_pd(2.0);
  x = _mm512_mul_pd(x, _mm512_fnmadd_pd((__m512d)b, x, two));
  x = _mm512_mul_pd(x, _mm512_fnmadd_pd((__m512d)b, x, two));
  return a * (Vec)x;
}
inline bool any(Mask m) { return _mm512_movepi64_mask((__m512i)m) != 0; }
#else
#if defined(__AVX2__)
inline Vec vmax(Vec a, Vec b) { return (Vec)_mm256_max_pd((__m256d)a, (__m256d)b); }
inline Vec vmin(Vec a, Vec b) { return (Vec)_mm256_min_pd((__m256d)a, (__m256d)b); }
inline bool any(Mask m) { return _mm256_movemask_pd((__m256d)m) != 0; }
#elif defined(__SSE2__)
inline Vec vmax(Vec a, Vec b) { return (Vec)_mm_max_pd((__m128d)a, (__m128d)b); }
inline Vec vmin(Vec a, Vec b) { return (Vec)_mm_min_pd((__m128d)a, (__m128d)b); }
inline bool any(Mask m) { return _mm_movemask_pd((__m128d)m) != 0; }
#else
inline Vec vmax(Vec a, Vec b) { return a > b ? a : b; }
inline Vec vmin(Vec a, Vec b) { return a < b ? a : b; }
inline bool any(Mask m) { return (m[0] | m[1]) != 0; }
#endif
inline Vec vabs(Vec a) {
  const Mask sign = (Mask)splat(-0.0);
  return (Vec)((Mask)a & ~sign);
}
inline Vec ratio(Vec a, Vec b) { return a / b; }
#endif

inline Vec pick(Mask m, Vec a, Vec b) { return m ? a : b; }
inline Vec keep(Mask m, Vec a) { return (Vec)((Mask)a & m); }
inline Mask none() { return Mask{}; }
inline Mask all() { return ~Mask{}; }
inline Vec clip01(Vec a) { return vmin(vmax(a, Vec{}), splat(1.0)); }
