// First-layer lines anchored at a vertex, or where some inputs are undecided (deep rule 2).
//
// With z in [-1, 1]^d, wr = w * rad, hc = h(centre), range [Lb, Ub] over the box, a
// vertex sigma and a set U of undecided inputs: Hc = hc + sum_{p not in U} wr_p sigma_p,
// R = sum_U |wr_p|, H- = Hc - R, H+ = Hc + R. Where wr_p sigma_p > 0 an input agrees.
//   H- >= 0:   slope 1 on disagreeing and on U, b = H-/(H- - Lb) on agreeing, V0 = H-
//   H+ <= 0:   a = Ub/(Ub - H+) on disagreeing, 0 on the others,              V0 = 0
//   otherwise: 1 on disagreeing, u = H+/(2R) on U, 0 on agreeing,             V0 = 0
// ReLU(h(z)) <= V0 + u (R + sum_U wr_p z_p) + sum_dis a wr_p (z_p - sigma_p)
//                  + sum_agr b wr_p (z_p - sigma_p),
// an inequality of the single-neuron hull, exact at sigma when U is empty. A negative
// coefficient takes the slope [Hc > 0] below ReLU. Any vertex and any U will do.
#pragma once

constexpr int kLinePasses = 2;                        // for rows; each at another point
constexpr double kLeanStart = 0.7, kLeanStep = 0.8;  // how far the point leans to slopes
constexpr double kUndecided = 0.5;                    // |z| of inputs in U, at most
constexpr double kLeastSlope = 1e-290;                // what slopes are divided by, at least
constexpr float kLeastSlopeSingle = 1e-30f;

template <class V>
struct FirstLayerOf {
  int inputs;
  const V* slopes;  // wr, [neuron][input]
  const V* centre;  // hc; the rest is relative to max(hc, 0) for floats
  const V* total;   // sum_p |wr_p|
  const V* lower;   // Lb < 0 of unstable lanes, else -1
  const V* upper;   // Ub > 0 of unstable lanes, else 1
  const int* list;    // neurons unstable in some lane
  int count;
};
using FirstLayer = FirstLayerOf<Vec>;

// Move (g, c) towards (gnew, cnew) as far as it lowers c + sum |g|: a convex mix of
// valid forms is valid. Returns the new maximum of the form on the box.
template <class V>
[[gnu::noinline]] V mix(V* g, V& c, const V* gnew, V cnew, int inputs, int step, V value) {
  using Real = RealOf<V>;
  constexpr Real kShares[] = {Real(0.15), Real(0.3), Real(0.45), Real(0.6), Real(0.8), 1};
  constexpr Real kTie = kIsSingle<V> ? 1e-6 : 1e-11;
  V share = V{};
  const V tie = kTie * vabs(value);  // rounding must not decide
  V sums[6];
  for (int e = 0; e < 6; ++e) sums[e] = c + kShares[e] * (cnew - c);
  for (int p = 0; p < inputs; ++p) {
    const V from = g[p * step], way = gnew[p * step] - from;
    for (int e = 0; e < 6; ++e) sums[e] += vabs(from + kShares[e] * way);
  }
  for (int e = 0; e < 6; ++e) {
    const FlagsOf<V> better = sums[e] < value - tie;
    value = pick(better, sums[e], value);
    share = pick(better, fill<V>(kShares[e]), share);
  }
  for (int p = 0; p < inputs; ++p) {
    const V from = g[p * step];
    g[p * step] = from + share * (gnew[p * step] - from);
  }
  c += share * (cnew - c);
  return value;
}

// At the vertex of `signs`, U empty. `coefficients` [i][t] are those of the listed
// neurons' outputs, zero in lanes where a neuron is stable. Adds the lines to (gnew,
// cnew), which hold the stable part.
template <int T>
[[gnu::noinline]] void vertex_lines(const FirstLayer& f, const Vec* coefficients, const Vec* signs,
                         Vec* anchor, Vec* first, Vec* second, Vec* gnew, Vec* cnew) {
  along<T>(signs, f.slopes, f.inputs, f.list, f.count, f.centre, anchor);
  for (int i = 0; i < f.count; ++i) {
    const int n = f.list[i];
    const Vec hc = f.centre[n], half = 0.5 * f.total[n], lb = f.lower[n], ub = f.upper[n];
    for (int t = 0; t < T; ++t) {
      const Vec top = anchor[i * T + t], coefficient = coefficients[i * T + t];
      const Vec plus = vmax(coefficient, Vec{}), minus = vmin(coefficient, Vec{});
      const Mask on = top > 0.0;
      const Vec q = ratio(pick(on, top, ub), pick(on, top - lb, ub - top));
      const Vec a = pick(on, splat(1.0), q), b = keep(on, q);
      const Vec moved = 0.5 * (top - hc);
      const Vec value = keep(on, top) + a * (half - moved) - b * (half + moved);
      const Vec below = keep(on, minus);
      first[i * T + t] = plus * (0.5 * (a + b)) + below;
      second[i * T + t] = plus * (0.5 * (a - b));
      cnew[t] += plus * value + below * hc;
    }
  }
  spread_signed<T>(first, second, signs, f.slopes, f.inputs, f.list, f.count, gnew);
}

// The same where inputs with open[p][t] = 1 are undecided (their sign is 0).
template <int T, class V>
[[gnu::noinline]] void mixed_lines(const FirstLayerOf<V>& f, const V* coefficients, const V* signs,
                        const V* open, V* anchor, V* range, V* first, V* second,
                        V* third, V* gnew, V* cnew, V* gopen) {
  along_both<T>(signs, open, f.slopes, f.inputs, f.list, f.count, f.centre, anchor, range);
  for (int i = 0; i < f.count; ++i) {
    const int n = f.list[i];
    const V hc = f.centre[n], half = 0.5 * f.total[n], lb = f.lower[n], ub = f.upper[n];
    for (int t = 0; t < T; ++t) {
      const V top = anchor[i * T + t], wide = range[i * T + t];
      const V coefficient = coefficients[i * T + t];
      const V plus = vmax(coefficient, V{}), minus = vmin(coefficient, V{});
      const V low = top - wide, high = top + wide;
      const FlagsOf<V> over = low >= 0.0, under = (high <= 0.0) & ~over;
      // One division serves the three cases: b, a or u.
      const V num = pick(over, low, pick(under, ub, high));
      const V den = pick(over, low - lb, pick(under, ub - high, 2.0 * wide));
      const V q = ratio(num, kIsSingle<V> ? vmax(den, fill<V>(kLeastSlopeSingle)) : den);
      const V a = pick(under, q, fill<V>(1)), b = keep(over, q);
      const V u = pick(over, fill<V>(1), keep(~under, q));
      const V moved = 0.5 * (top - hc), rest = half - 0.5 * wide;
      V value = keep(over, low) + u * wide + a * (rest - moved) - b * (rest + moved);
      V at_centre = keep(top > 0.0, hc);
      if constexpr (kIsSingle<V>) {
        value -= vmax(hc, V{});
        at_centre -= vmax(hc, V{});
      }
      const V below = keep(top > 0.0, minus);
      first[i * T + t] = plus * (0.5 * (a + b)) + below;
      second[i * T + t] = plus * (0.5 * (a - b));
      third[i * T + t] = plus * u + below;
      cnew[t] += plus * value + minus * at_centre;
    }
  }
  for (int x = 0; x < f.inputs * T; ++x) gopen[x] = gnew[x];
  spread_signed<T>(first, second, signs, f.slopes, f.inputs, f.list, f.count, gnew);
  spread<T>(third, f.slopes, f.inputs, f.list, f.count, gopen);
  for (int x = 0; x < f.inputs * T; ++x)
    gnew[x] = pick(open[x] > 0.0, gopen[x], gnew[x]);
}
