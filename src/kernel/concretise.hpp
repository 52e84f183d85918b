// Largest values of linear functions on a node: a box in coordinates |z_p| <= 1 and
// the cut a.z + s >= 0 (points that can still beat the cutoff).
#pragma once

struct Cut {
  const Vec* a;        // slopes times radius
  const Vec* inverse;  // -1 / a, 0 where that is not finite
  Vec s;               // value at the centre minus cutoff, rounding included
  Vec size;            // sum |a| + |s|: what a multiplier's rounding is measured by
  bool used;           // false: no lane has a cut
};

// One multiplier lambda >= 0 for max of g.z: any gives the upper bound
// sum |g + lambda a| + lambda s; the best one is 0 or a breakpoint -g_q / a_q.
// Returns the bound without the function's constant; g has stride `step`.
[[gnu::noinline]] Vec support(const Vec* g, int step, int inputs, const Cut& cut, double unit,
                   Vec& multiplier) {
  Vec best = Vec{}, corner = cut.s;
  multiplier = Vec{};
  for (int p = 0; p < inputs; ++p) {
    best += vabs(g[p * step]);
    corner += pick(g[p * step] >= 0.0, cut.a[p], -cut.a[p]);
  }
  if (!cut.used || !any(corner < 0.0)) return best;
  for (int q = 0; q < inputs; ++q) {
    const Vec lambda = g[q * step] * cut.inverse[q];
    const Mask use =
        (lambda > 0.0) & (corner < 0.0) & (lambda * cut.size < kLargest);
    if (!any(use)) continue;
    Vec value = lambda * cut.s + unit * lambda * cut.size;
    for (int p = 0; p < inputs; ++p) value += vabs(g[p * step] + lambda * cut.a[p]);
    const Mask better = use & (value < best);
    best = pick(better, value, best);
    multiplier = pick(better, lambda, multiplier);
  }
  return best;
}

// The point of the node where g.z is largest, given the best multiplier: corners, and
// the input at the breakpoint set so that the cut is tight.
inline void argument(const Vec* g, int inputs, const Cut& cut, Vec multiplier, Vec* z) {
  Vec total = cut.s;
  for (int p = 0; p < inputs; ++p) {
    z[p] = pick(g[p] + multiplier * cut.a[p] >= 0.0, splat(1.0), splat(-1.0));
    total += cut.a[p] * z[p];
  }
  const Mask bound = multiplier > 0.0;
  if (!any(bound)) return;
  for (int q = 0; q < inputs; ++q) {
    const Vec lambda = g[q] * cut.inverse[q];
    const Mask here = bound & (lambda == multiplier) & (cut.a[q] != 0.0);
    if (!any(here)) continue;
    const Vec rest = total - cut.a[q] * z[q];
    const Vec tight = vmin(vmax(rest * cut.inverse[q], splat(-1.0)), splat(1.0));
    total = pick(here, rest + cut.a[q] * tight, total);
    z[q] = pick(here, tight, z[q]);
  }
}

// Shrink the box to where the cut can be met: with U the cut's largest value, an input
// with |a_j| * width_j > U - cutoff keeps only (U - cutoff) / |a_j| at its better end.
// Returns the lanes whose box became empty: nothing there beats the cutoff.
inline Mask clip(const Vec* slopes, Vec constant, double cutoff, const double* reach,
                 double unit, int inputs, Vec* lower, Vec* upper, Vec& largest) {
  Vec top = constant, size = vabs(constant) + (cutoff < 0 ? -cutoff : cutoff);
  for (int p = 0; p < inputs; ++p) {
    top += pick(slopes[p] > 0.0, slopes[p] * upper[p], slopes[p] * lower[p]);
    size += vabs(slopes[p]) * reach[p];
  }
  top += unit * size;
  largest = top;
  const Vec slack = top - cutoff;
  const Mask empty = slack < 0.0;
  for (int p = 0; p < inputs; ++p) {
    const Vec steep = vabs(slopes[p]);
    const Mask cuts = (steep * (upper[p] - lower[p]) > slack) & ~empty;
    if (!any(cuts)) continue;
    const Vec width = slack / steep * (1.0 + 1e-14) + 1e-15 * reach[p];
    const Mask rising = slopes[p] > 0.0;
    lower[p] = pick(cuts & rising, vmax(lower[p], upper[p] - width), lower[p]);
    upper[p] = pick(cuts & ~rising, vmin(upper[p], lower[p] + width), upper[p]);
  }
  return empty;
}
