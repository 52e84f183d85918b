// Largest values of linear functions on a node: a box in coordinates |z_p| <= 1 and
// half-spaces a.z + s >= 0, the cut (points that can still beat the cutoff) first, then
// those of the feasible set.
#pragma once

template <class V>
struct HalfSpaceOf {
  const V* a;        // slopes times radius
  const V* inverse;  // -1 / a, 0 where that is not finite
  V s;               // value at the centre, rounding included
  V size;            // sum |a| + |s|: what a multiplier's rounding is measured by
};

using HalfSpace = HalfSpaceOf<Vec>;

constexpr int kCycles = 2;        // over the multipliers of several half-spaces
constexpr float kLargestSingle = 1e30f;  // as kLargest of floats
constexpr double kTied = 1e-12;   // a form is zero at a breakpoint up to this share

template <class V>
struct HalfSpacesOf {
  const HalfSpaceOf<V>* at = nullptr;
  int count = 0;
  RealOf<V> unit = 0;       // relative rounding of a sum over the inputs
  V *moved = nullptr, *tie = nullptr, *way = nullptr;  // scratch, one per input

  // Slopes of a sum of half-spaces at input p; multipliers have stride `step`.
  V slope(const V* multipliers, int step, int p) const {
    V sum = V{};
    for (int k = 0; k < count; ++k) sum += multipliers[k * step] * at[k].a[p];
    return sum;
  }
  // Up to which such a slope counts as zero: as large as what rounding leaves of it.
  V tie_width(const V* multipliers, int step, int p) const {
    V sum = V{};
    for (int k = 0; k < count; ++k) sum += vabs(multipliers[k * step] * at[k].a[p]);
    return kTied * sum;
  }
  V constant(const V* multipliers, int step) const {
    V sum = V{};
    for (int k = 0; k < count; ++k) sum += multipliers[k * step] * at[k].s;
    return sum;
  }
  // The rounding of the constant, and of slopes times inputs.
  V margin(const V* multipliers, int step) const {
    V sum = V{};
    for (int k = 0; k < count; ++k) sum += unit * multipliers[k * step] * at[k].size;
    return sum;
  }
  FlagsOf<V> used(const V* multipliers, int step) const {
    FlagsOf<V> some = {};
    for (int k = 0; k < count; ++k) some |= multipliers[k * step] > 0;
    return some;
  }
};

using HalfSpaces = HalfSpacesOf<Vec>;

// One multiplier lambda >= 0 for max of g.z: any gives the upper bound
// sum |g + lambda a| + lambda s; the best one is 0 or a breakpoint -g_q / a_q.
// Returns the bound without the function's constant; g has stride `step`.
template <class V>
[[gnu::noinline]] V support_one(const V* g, int step, int inputs, const HalfSpaceOf<V>& cut,
                                RealOf<V> unit, V& multiplier) {
  constexpr RealOf<V> largest = kIsSingle<V> ? kLargestSingle : kLargest;
  V best = V{}, corner = cut.s;
  multiplier = V{};
  for (int p = 0; p < inputs; ++p) {
    best += vabs(g[p * step]);
    corner += pick(g[p * step] >= 0, cut.a[p], -cut.a[p]);
  }
  if (!any(corner < 0)) return best;
  for (int q = 0; q < inputs; ++q) {
    const V lambda = g[q * step] * cut.inverse[q];
    const FlagsOf<V> use = (lambda > 0) & (corner < 0) & (lambda * cut.size < largest);
    if (!any(use)) continue;
    V value = lambda * cut.s + unit * lambda * cut.size;
    for (int p = 0; p < inputs; ++p) value += vabs(g[p * step] + lambda * cut.a[p]);
    const FlagsOf<V> better = use & (value < best);
    best = pick(better, value, best);
    multiplier = pick(better, lambda, multiplier);
  }
  return best;
}

// The t in [low, high] with the least sum |r + t v| + t slope: convex and piecewise
// linear, so a breakpoint -r_q / v_q or an end. Returns what it gains over t = 0.
[[gnu::noinline]] Vec line_search(const Vec* r, const Vec* v, Vec slope, Vec low, Vec high, int inputs,
                       Vec& best_t) {
  Vec now = Vec{}, least = splat(kInfinity), ahead = slope, behind = slope;
  best_t = Vec{};
  for (int p = 0; p < inputs; ++p) {
    now += vabs(r[p]);
    const Vec along = pick(r[p] > 0.0, v[p], -v[p]), size = vabs(v[p]);
    ahead += pick(r[p] == 0.0, size, along);
    behind += pick(r[p] == 0.0, -size, along);
  }
  // Convex: no way down from here, no gain.
  if (!any(((ahead < 0.0) & (high > 0.0)) | ((behind > 0.0) & (low < 0.0)))) return Vec{};
  for (int q = 0; q < inputs + 2; ++q) {
    Vec t = q == inputs ? low : high;
    if (q < inputs) t = vmin(vmax(keep(v[q] != 0.0, -r[q] / v[q]), low), high);
    t = keep(vabs(t) < kLargest, t);
    Vec value = t * slope;
    for (int p = 0; p < inputs; ++p) value += vabs(r[p] + t * v[p]);
    const Mask better = value < least;
    least = pick(better, value, least);
    best_t = pick(better, t, best_t);
  }
  return now - least;
}

// Improve the multiplier of half-space k in the lanes of `missed`; r is g plus the
// multiples so far.
[[gnu::noinline]] void row_step(const HalfSpaces& halves, Vec* multipliers, int step, int k, Mask missed,
                     Vec* r, int inputs) {
  const HalfSpace& half = halves.at[k];
  Vec& lambda = multipliers[k * step];
  const Vec price = half.s + halves.unit * half.size;
  const Vec most = kLargest / vmax(half.size, splat(1.0));
  Vec t;
  const Vec gain = line_search(r, half.a, price, -lambda, most - lambda, inputs, t);
  const Mask use = missed & (gain > 0.0);
  lambda = pick(use, vmax(lambda + t, Vec{}), lambda);
}

// Move the multipliers of k and j together so that an input tied by k stays tied: a
// pivot of the dual simplex method without a matrix.
[[gnu::noinline]] void edge_step(const HalfSpaces& halves, Vec* multipliers, int step, int k, int j,
                      Mask missed, const Vec* r, int inputs) {
  const HalfSpace &one = halves.at[k], &two = halves.at[j];
  Vec &lam_k = multipliers[k * step], &lam_j = multipliers[j * step];
  Vec steepest = splat(-1.0), a_k = Vec{}, a_j = Vec{};
  for (int p = 0; p < inputs; ++p) {
    const Vec steep = vabs(one.a[p]);
    const Mask tied = (vabs(r[p]) <= halves.tie[p]) & (steep > 0.0) & (steep > steepest);
    steepest = pick(tied, steep, steepest);
    a_k = pick(tied, one.a[p], a_k);
    a_j = pick(tied, two.a[p], a_j);
  }
  Mask use = missed & (steepest > 0.0) & (lam_k > 0.0);
  if (!any(use)) return;
  const Vec share = keep(a_k != 0.0, a_j / a_k);
  for (int p = 0; p < inputs; ++p) halves.way[p] = two.a[p] - share * one.a[p];
  const Vec slope = (two.s + halves.unit * two.size) - share * (one.s + halves.unit * one.size);
  // Both multipliers stay nonnegative: lam_j + t >= 0 and lam_k - t share >= 0.
  const Vec limit = keep(share != 0.0, lam_k / share);
  const Vec most = kLargest / vmax(two.size, splat(1.0));
  const Vec low = vmin(pick(share < 0.0, vmax(-lam_j, limit), -lam_j), Vec{});
  const Vec high = vmax(pick(share > 0.0, limit, most), Vec{});
  Vec t;
  use &= line_search(r, halves.way, slope, low, high, inputs, t) > 0.0;
  lam_j = pick(use, vmax(lam_j + t, Vec{}), lam_j);
  lam_k = pick(use, vmax(lam_k - t * share, Vec{}), lam_k);
}

// A half-space at the corner of the box where g.z is largest.
inline Vec at_corner(const Vec* g, int step, int inputs, const HalfSpace& half) {
  Vec corner = half.s;
  for (int p = 0; p < inputs; ++p)
    corner += pick(g[p * step] >= 0.0, half.a[p], -half.a[p]);
  return corner;
}

// Several half-spaces: multipliers one by one, and along edges.
[[gnu::noinline]] Vec support_many(const Vec* g, int step, int inputs,
                                   const HalfSpaces& halves, Vec* multipliers, int apart) {
  Vec best = Vec{};
  for (int p = 0; p < inputs; ++p) best += vabs(g[p * step]);
  Vec least = splat(kInfinity);  // of the half-spaces at the corner where g.z is largest
  for (int k = 0; k < halves.count; ++k) {
    least = vmin(least, at_corner(g, step, inputs, halves.at[k]));
    multipliers[k * apart] = Vec{};
  }
  const Mask missed = least < 0.0;
  if (!any(missed)) return best;
  auto refresh = [&] {
    for (int p = 0; p < inputs; ++p) {
      halves.moved[p] = g[p * step] + halves.slope(multipliers, apart, p);
      halves.tie[p] = halves.tie_width(multipliers, apart, p);
    }
  };
  refresh();
  for (int cycle = 0; cycle < kCycles; ++cycle)
    for (int k = 0; k < halves.count; ++k) {
      row_step(halves, multipliers, apart, k, missed, halves.moved, inputs);
      refresh();
      for (int j = 0; j < halves.count; ++j) {
        if (j == k) continue;
        edge_step(halves, multipliers, apart, k, j, missed, halves.moved, inputs);
        refresh();
      }
    }
  Vec value = halves.constant(multipliers, apart) + halves.margin(multipliers, apart);
  for (int p = 0; p < inputs; ++p) value += vabs(halves.moved[p]);
  const Mask better = value < best;
  for (int k = 0; k < halves.count; ++k)
    multipliers[k * apart] = pick(better, multipliers[k * apart], Vec{});
  return pick(better, value, best);
}

// An upper bound of g.z on the node; multipliers[k * apart] of the half-spaces, of which
// there is at most one for floats.
template <class V>
inline V support(const V* g, int step, int inputs, const HalfSpacesOf<V>& halves,
                 V* multipliers, int apart) {
  if (halves.count == 1)
    return support_one(g, step, inputs, halves.at[0], halves.unit, multipliers[0]);
  if constexpr (!kIsSingle<V>)
    if (halves.count > 1) return support_many(g, step, inputs, halves, multipliers, apart);
  V best = V{};
  for (int p = 0; p < inputs; ++p) best += vabs(g[p * step]);
  return best;
}

// The point of the node where g.z is largest, given the best multipliers: corners, and
// inputs at a breakpoint set so that half-spaces with a multiplier are tight.
inline void argument(const Vec* g, int inputs, const HalfSpaces& halves,
                     const Vec* multipliers, Vec* z) {
  for (int p = 0; p < inputs; ++p)
    z[p] = pick(g[p] + halves.slope(multipliers, 1, p) >= 0.0, splat(1.0), splat(-1.0));
  for (int k = 0; k < halves.count; ++k) {
    const HalfSpace& half = halves.at[k];
    const Mask binding = multipliers[k] > 0.0;
    if (!any(binding)) continue;
    Vec total = half.s;
    for (int p = 0; p < inputs; ++p) total += half.a[p] * z[p];
    for (int q = 0; q < inputs; ++q) {
      Mask tied = g[q] * half.inverse[q] == multipliers[k];
      if (halves.count > 1)
        tied = vabs(g[q] + halves.slope(multipliers, 1, q)) <=
               halves.tie_width(multipliers, 1, q);
      const Mask here = binding & tied & (half.a[q] != 0.0);
      if (!any(here)) continue;
      const Vec rest = total - half.a[q] * z[q];
      const Vec tight = vmin(vmax(rest * half.inverse[q], splat(-1.0)), splat(1.0));
      total = pick(here, rest + half.a[q] * tight, total);
      z[q] = pick(here, tight, z[q]);
    }
  }
}

// Lanes whose half-spaces have no point in common, proved: each is maximized over the
// box and the others, which `rest` has room for.
inline Mask empty(const HalfSpaces& halves, int inputs, HalfSpace* rest, Vec* multipliers) {
  Mask found = none();
  HalfSpaces others = halves;
  others.at = rest;
  others.count = halves.count - 1;
  for (int k = 0; k < halves.count; ++k) {
    for (int j = 0, at = 0; j < halves.count; ++j)
      if (j != k) rest[at++] = halves.at[j];
    const HalfSpace& half = halves.at[k];
    const Vec most = support(half.a, 1, inputs, others, multipliers, 1);
    found |= most + half.s + halves.unit * half.size < 0.0;
  }
  return found;
}

// Shrink the box to where slopes.x + constant >= level can be met: with U the largest
// value, an input with |a_j| * width_j > U - level keeps only (U - level) / |a_j| at its
// better end. Returns the lanes whose box became empty: nothing there reaches the level.
inline Mask clip(const Vec* slopes, Vec constant, double level, const double* reach,
                 double unit, int inputs, Vec* lower, Vec* upper, Vec& largest) {
  Vec top = constant, size = vabs(constant) + (level < 0 ? -level : level);
  for (int p = 0; p < inputs; ++p) {
    top += pick(slopes[p] > 0.0, slopes[p] * upper[p], slopes[p] * lower[p]);
    size += vabs(slopes[p]) * reach[p];
  }
  top += unit * size;
  largest = top;
  const Vec slack = top - level;
  const Mask none_left = slack < 0.0;
  for (int p = 0; p < inputs; ++p) {
    const Vec steep = vabs(slopes[p]);
    const Mask cuts = (steep * (upper[p] - lower[p]) > slack) & ~none_left;
    if (!any(cuts)) continue;
    const Vec width = slack / steep * (1.0 + 1e-14) + 1e-15 * reach[p];
    const Mask rising = slopes[p] > 0.0;
    lower[p] = pick(cuts & rising, vmax(lower[p], upper[p] - width), lower[p]);
    upper[p] = pick(cuts & ~rising, vmin(upper[p], lower[p] + width), upper[p]);
  }
  return none_left;
}
