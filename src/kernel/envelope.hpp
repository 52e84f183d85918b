// Lines above and below an activation on an interval. The specification, and why they
// hold whatever rounding does, is src/ennopt/activations/envelope.py.
#pragma once

constexpr double kSlopeError = 0x1p-43;
constexpr int kBisections = 12;

struct Line {
  double slope, shift;
};

struct Lines {
  Line low, high;
};

// A curve at a point.
struct Known {
  double x, value, slope, error;
  static Known of(const Curve& curve, double x) {
    const double value = curve.value(x);
    return {x, value, curve.slope(x), curve.error(x, value)};
  }
  // F(x) - slope * x for F = sign * curve, with the error of F.
  double raised(double sign, double m) const { return sign * value + error - m * x; }
};

inline double clamped(double x, double low, double high) {
  return std::fmin(std::fmax(x, low), high);
}

// The intercept that a slope needs on a concave piece of F, from the tangents at its ends
// and at those of two other points that are in it.
inline double over(double sign, double slope, const Known& start, const Known& end,
                   const Known& touch, const Known& middle) {
  double needed = kInfinity;
  for (const Known* known : {&start, &end, &touch, &middle}) {
    const double p = known->x, rest = sign * known->slope - slope;
    if (!(start.x <= p && p <= end.x)) continue;
    double more = std::fmax(rest * (end.x - p), rest * (start.x - p));
    more += kSlopeError * (end.x - start.x);
    const double raised = known->raised(sign, slope);
    const double size = std::fabs(raised) + 2.0 * std::fabs(slope * p) + more;
    needed = std::fmin(needed, raised + more + 8.0 * kUnit * size);
  }
  return needed;
}

// Slope of the line from F at a point that touches a concave piece, and where it does.
inline double tangent(const Curve& curve, double sign, const Known& from, double start,
                      double end, Known& touch) {
  const double x = from.x;
  double near = x <= start ? start : end, far = x <= start ? end : start;
  for (int i = 0; i < kBisections; ++i) {
    const double middle = 0.5 * (near + far);
    // The tangent there passes below F at x: the line touches further away.
    if (sign * (curve.value(middle) - from.value) <= sign * curve.slope(middle) * (middle - x))
      near = middle;
    else
      far = middle;
  }
  touch = Known::of(curve, far);
  if (!(std::fabs(far - x) > 1e-6)) return sign * touch.slope;
  return sign * (touch.value - from.value) / (far - x);
}

// A line above F on an interval that holds a bend inside.
inline Line around_bends(const Curve& curve, double sign, const Known& left,
                         const Known& middle, const Known& right) {
  const Known first = Known::of(curve, clamped(curve.first_bend(), left.x, right.x));
  const Known second = Known::of(curve, clamped(curve.second_bend(), left.x, right.x));
  const Known* pieces[2][2] = {{&first, &second}, {&first, &second}};  // F is concave
  int count = 1;
  if (sign > 0.0) {
    count = 0;
    if (left.x < first.x) pieces[count][0] = &left, pieces[count++][1] = &first;
    if (second.x < right.x) pieces[count][0] = &second, pieces[count++][1] = &right;
  }
  Line best{0.0, kInfinity};
  double least = kInfinity;
  auto attempt = [&](double slope, const Known& touch) {
    double shift = std::fmax(std::fmax(left.raised(sign, slope), first.raised(sign, slope)),
                             std::fmax(second.raised(sign, slope), right.raised(sign, slope)));
    for (int i = 0; i < count; ++i)
      shift = std::fmax(shift, over(sign, slope, *pieces[i][0], *pieces[i][1], touch, middle));
    if (shift + slope * middle.x < least) {
      least = shift + slope * middle.x;
      best = {slope, shift};
    }
  };
  attempt(sign * middle.slope, middle);
  for (const Known* from : {&left, &right}) {
    const auto& piece = pieces[from == &left ? count - 1 : 0];
    const double start = piece[0]->x, end = piece[1]->x;
    if (start <= from->x && from->x <= end) continue;
    Known touch;
    const double slope = tangent(curve, sign, *from, start, end, touch);
    attempt(slope, touch);
  }
  return best;
}

// A line above F = sign * curve.
inline Line above(const Curve& curve, double sign, const Known& left, const Known& middle,
                  const Known& right) {
  const double lower = left.x, upper = right.x;
  const double first = curve.first_bend(), second = curve.second_bend();
  const bool inside = lower >= first && upper <= second;
  const bool outside = upper <= first || lower >= second;
  const bool concave = sign < 0.0 ? inside : outside, convex = sign < 0.0 ? outside : inside;
  Line line;
  if (concave) {
    line.slope = sign * middle.slope;
    line.shift = middle.raised(sign, line.slope) + kSlopeError * (upper - lower);
  } else if (convex) {
    const double width = upper > lower ? upper - lower : 1.0;
    const double chord = sign * (right.value - left.value) / width;
    // Of a tiny interval the quotient is mostly rounding.
    const double a = sign * left.slope, b = sign * right.slope;
    line.slope = clamped(chord, std::fmin(a, b), std::fmax(a, b));
    line.shift = std::fmax(left.raised(sign, line.slope), right.raised(sign, line.slope));
  } else {
    line = around_bends(curve, sign, left, middle, right);
  }
  const double reach = std::fmax(std::fabs(lower), std::fabs(upper));
  line.shift += 8.0 * kUnit * (std::fabs(line.shift) + 2.0 * std::fabs(line.slope) * reach);
  line.shift += kTiny;
  return line;
}

inline Lines lines_of(const Curve& curve, double lower, double upper) {
  if (curve.kind == Activation::relu) {
    const bool unstable = lower < 0.0 && upper > 0.0;
    const double on = lower >= 0.0 ? 1.0 : 0.0;
    const double high = unstable ? upper / (upper - lower) : on;
    const double low = unstable ? (upper > -lower ? 1.0 : 0.0) : on;
    return {{low, 0.0}, {high, unstable ? -lower * high : 0.0}};
  }
  const Known left = Known::of(curve, lower), right = Known::of(curve, upper);
  const Known middle = Known::of(curve, clamped(0.5 * (lower + upper), lower, upper));
  const Line low = above(curve, -1.0, left, middle, right);
  return {{-low.slope, -low.shift}, above(curve, 1.0, left, middle, right)};
}
