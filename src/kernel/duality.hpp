// The bound that multipliers prove: the part of the linear programs of signs on which
// soundness rests. It uses nothing of what the simplex method did but its multipliers.
// The specification is src/ennopt/engine/duality.py.
//
// With lambda any numbers, one for each equation h = W y + b, p = W' lambda from the layer
// above (the outputs' weights for the last one) and g the same for the inputs,
//
//   sum lambda b + sum_inputs max g x + sum_neurons max over its corners of p y - lambda h
//
// is above the objective at every point whose neurons keep to their corners. A half-space
// a x >= s of the feasible set is one equation more, h = a x - s, whose h lies between zero
// and an upper bound and feeds nothing: p = 0. Without the outputs' weights the sum is above
// zero at every point: if it is negative, there is none.
#pragma once

struct Multipliers {
  const double* lambda;    // of the neurons, then of the half-spaces
  double *p, *g;           // what follows from lambda
  double *p_size, *g_size;  // the same sums on absolute values
};

// Largest p y - lambda h of a neuron over the corners that are allowed.
inline double largest_corner(double p, double lambda, double low, double high,
                             std::uint8_t allowed) {
  auto larger = [](double a, double b) { return a > b ? a : b; };
  const double up = (p - lambda) * high, down = -lambda * low;
  if (low >= 0.0) return larger(up, (p - lambda) * low);
  if (high <= 0.0) return larger(down, -lambda * high);
  double best = 0.0;
  if (allowed & kU) best = larger(best, up);
  if (allowed & kL) best = larger(best, down);
  return best;
}

// The bound, rounding included: sums of at most n + d terms of at most n terms each, a
// few roundings per term, measured by the same sums on absolute values; `far` is what an
// underflow may be multiplied by. Infinite if anything is not a number. `share` is that of
// the objective: one, or zero to prove that there is no point.
inline double proved_by(const Model& model, const Ranges& ranges,
                        const std::uint8_t* allowed, const Multipliers& m,
                        double share = 1.0) {
  auto larger = [](double a, double b) { return a > b ? a : b; };
  const int d = model.inputs, n = model.neurons;
  const double *low = ranges.low, *high = ranges.high;
  double sum = 0.0, total = 0.0, far = 1.0;
  for (int q = 0; q < d; ++q) m.g[q] = m.g_size[q] = 0.0;
  for (int i = 0; i < n; ++i) m.p[i] = m.p_size[i] = 0.0;
  for (const Stack& stack : model.stacks) {
    for (int s = int(stack.layers.size()) - 1; s >= 0; --s) {
      const Layer& layer = stack.layers[s];
      const bool output = s + 1 == int(stack.layers.size());
      double* into = s ? m.p + stack.layers[s - 1].first : m.g;
      double* sizes = s ? m.p_size + stack.layers[s - 1].first : m.g_size;
      for (int r = 0; r < layer.rows; ++r) {
        const int i = layer.first + r;
        const double a = output ? share : m.lambda[i];
        if (!output) {
          const double reach = larger(std::fabs(low[i]), std::fabs(high[i]));
          sum += largest_corner(m.p[i], m.lambda[i], low[i], high[i], allowed[i]);
          total += (m.p_size[i] + std::fabs(a)) * reach;
          far = larger(far, reach);
        }
        sum += a * layer.bias[r];
        total += std::fabs(a * layer.bias[r]);
        if (a == 0.0) continue;
        const double* weights = layer.weights.data() + std::size_t(r) * layer.cols;
        for (int c = 0; c < layer.cols; ++c) {
          into[c] += a * weights[c];
          sizes[c] += std::fabs(a * weights[c]);
        }
      }
    }
  }
  for (int k = 0; k < ranges.count; ++k) {
    const double a = m.lambda[n + k], side = model.set.sides[ranges.rows[k]];
    if (a == 0.0) continue;
    sum += larger(0.0, -a * high[n + k]) - a * side;
    total += std::fabs(a) * (high[n + k] + std::fabs(side));
    far = larger(far, high[n + k]);
    const double* slopes = model.set.slopes.data() + std::size_t(ranges.rows[k]) * d;
    for (int q = 0; q < d; ++q) {
      m.g[q] += a * slopes[q];
      m.g_size[q] += std::fabs(a * slopes[q]);
    }
  }
  for (int q = 0; q < d; ++q) {
    sum += larger(m.g[q] * ranges.lower[q], m.g[q] * ranges.upper[q]);
    total += m.g_size[q] * model.reach[q];
    far = larger(far, model.reach[q]);
  }
  const double count = 4.0 * (n + d + ranges.count) + 64.0;
  const double rounding = count * (0x1p-52 * total + 0x1p-1060 * count * far);
  const double proved = sum + rounding + share * model.output_error;
  return proved == proved ? proved : kInfinity;
}
