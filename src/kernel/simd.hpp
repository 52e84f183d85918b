// One number per lane, one node per lane: doubles, or twice as many floats. Included once
// per instruction set, inside an anonymous namespace, so that no symbol of a wide build is
// ever shared.
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


// The same for floats: the nodes of two vectors of doubles side by side.
typedef float Single __attribute__((vector_size(kLanes * 8)));
typedef int SingleMask __attribute__((vector_size(kLanes * 8)));
typedef float HalfSingle __attribute__((vector_size(kLanes * 4)));
typedef int HalfMask __attribute__((vector_size(kLanes * 4)));

template <class V>
struct Lanes;
template <>
struct Lanes<Vec> {
  using Real = double;
  using Flags = Mask;
};
template <>
struct Lanes<Single> {
  using Real = float;
  using Flags = SingleMask;
};
template <class V>
using RealOf = typename Lanes<V>::Real;
template <class V>
using FlagsOf = typename Lanes<V>::Flags;

template <class V>
constexpr bool kIsSingle = std::is_same_v<V, Single>;

template <class V>
inline V fill(RealOf<V> x) { return x - V{}; }
inline Vec splat(double x) { return fill<Vec>(x); }

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
template <class M>
inline bool any(M m) {
  if constexpr (sizeof(m[0]) == 8) return _mm512_movepi64_mask((__m512i)m) != 0;
  else return _mm512_movepi32_mask((__m512i)m) != 0;
}
inline Single vmax(Single a, Single b) { return (Single)_mm512_max_ps((__m512)a, (__m512)b); }
inline Single vmin(Single a, Single b) { return (Single)_mm512_min_ps((__m512)a, (__m512)b); }
inline Single vabs(Single a) { return (Single)_mm512_abs_ps((__m512)a); }
inline Single ratio(Single a, Single b) {  // one step is enough
  __m512 x = _mm512_rcp14_ps((__m512)b);
  x = _mm512_mul_ps(x, _mm512_fnmadd_ps((__m512)b, x, _mm512_set1_ps(2.0f)));
  return a * (Single)x;
}
#else
#if defined(__AVX2__)
inline Vec vmax(Vec a, Vec b) { return (Vec)_mm256_max_pd((__m256d)a, (__m256d)b); }
inline Vec vmin(Vec a, Vec b) { return (Vec)_mm256_min_pd((__m256d)a, (__m256d)b); }
template <class M>
inline bool any(M m) {
  if constexpr (sizeof(m[0]) == 8) return _mm256_movemask_pd((__m256d)m) != 0;
  else return _mm256_movemask_ps((__m256)m) != 0;
}
inline Single vmax(Single a, Single b) { return (Single)_mm256_max_ps((__m256)a, (__m256)b); }
inline Single vmin(Single a, Single b) { return (Single)_mm256_min_ps((__m256)a, (__m256)b); }
#elif defined(__SSE2__)
inline Vec vmax(Vec a, Vec b) { return (Vec)_mm_max_pd((__m128d)a, (__m128d)b); }
inline Vec vmin(Vec a, Vec b) { return (Vec)_mm_min_pd((__m128d)a, (__m128d)b); }
template <class M>
inline bool any(M m) {
  if constexpr (sizeof(m[0]) == 8) return _mm_movemask_pd((__m128d)m) != 0;
  else return _mm_movemask_ps((__m128)m) != 0;
}
inline Single vmax(Single a, Single b) { return (Single)_mm_max_ps((__m128)a, (__m128)b); }
inline Single vmin(Single a, Single b) { return (Single)_mm_min_ps((__m128)a, (__m128)b); }
#else
inline Vec vmax(Vec a, Vec b) { return a > b ? a : b; }
inline Vec vmin(Vec a, Vec b) { return a < b ? a : b; }
template <class M>
inline bool any(M m) {
  return (((Mask)m)[0] | ((Mask)m)[1]) != 0;
}
inline Single vmax(Single a, Single b) { return a > b ? a : b; }
inline Single vmin(Single a, Single b) { return a < b ? a : b; }
#endif
inline Vec vabs(Vec a) {
  const Mask sign = (Mask)splat(-0.0);
  return (Vec)((Mask)a & ~sign);
}
inline Single vabs(Single a) {
  const SingleMask sign = (SingleMask)fill<Single>(-0.0f);
  return (Single)((SingleMask)a & ~sign);
}
inline Vec ratio(Vec a, Vec b) { return a / b; }
inline Single ratio(Single a, Single b) { return a / b; }
#endif

template <class V>
inline V pick(FlagsOf<V> m, V a, V b) { return m ? a : b; }
template <class V>
inline V keep(FlagsOf<V> m, V a) { return (V)((FlagsOf<V>)a & m); }
inline Mask none() { return Mask{}; }
inline Mask all() { return ~Mask{}; }
template <class V>
inline V clip01(V a) { return vmin(vmax(a, V{}), fill<V>(1)); }

// Two vectors of doubles as one of floats, to the nearest, and back.
inline Single join(Vec a, Vec b) {
  const HalfSingle parts[2] = {__builtin_convertvector(a, HalfSingle),
                               __builtin_convertvector(b, HalfSingle)};
  Single both;
  std::memcpy(&both, parts, sizeof both);
  return both;
}
inline SingleMask join(Mask a, Mask b) {
  const HalfMask parts[2] = {__builtin_convertvector(a, HalfMask),
                             __builtin_convertvector(b, HalfMask)};
  SingleMask both;
  std::memcpy(&both, parts, sizeof both);
  return both;
}
inline Vec part_of(Single a, int half) {
  HalfSingle parts[2];
  std::memcpy(parts, &a, sizeof a);
  return __builtin_convertvector(parts[half], Vec);
}
