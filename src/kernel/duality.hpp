// The bound that multipliers prove: the part of the linear programs of signs on which
// soundness rests. It uses nothing of what the simplex method did but its multipliers.
// The specification is src/ennopt/engine/duality.py.
//
// With lambda any numbers, one for each equation h = W y + b, p = W' lambda from the layer
// above (the outputs' weights for the last one) and g the same for the inputs,
//
//   sum lambda b + sum_inputs max g x + sum_neurons max over its corners of p y - lambda h
//
// is above the objective at every point whose neurons keep to their corners. A row of the
// feasible set, a x + G f >= s with the outputs f, is one equation more, h = a x + G f - s,
// whose h lies between zero and an upper bound and feeds nothing: p = 0. Its multiplier adds
// to the weights of the outputs and to g. A row may be on outputs y of neurons, too: then its
// multiplier adds to their p. An extra input, a risk of the objective, counts
// there with weight one and in rows with weight minus one. Without the objective the sum is
// above zero at every point: if it is negative, there is none.
#pragma once

struct Multipliers {
  const double* lambda;             // of the neurons, then of the rows
  double *p, *g, *c;                // what follows from lambda; c of the outputs
  double *p_size, *g_size, *c_size;  // the same sums on absolute values
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
  const int d = model.inputs, n = model.neurons, e = ranges.extras;
  const double *low = ranges.low, *high = ranges.high;
  double sum = 0.0, total = 0.0, far = 1.0;
  for (int q = 0; q < d + e; ++q) m.g[q] = m.g_size[q] = q < d ? 0.0 : share;
  for (int i = 0; i < n; ++i) m.p[i] = m.p_size[i] = 0.0;
  for (int o = 0; o < model.outputs; ++o) {
    m.c[o] = share * model.goal[o];
    m.c_size[o] = std::fabs(m.c[o]);
  }
  auto add = [](double a, const double* from, int count, double* into, double* sizes) {
    for (int i = 0; i < count; ++i) {
      into[i] += a * from[i];
      sizes[i] += std::fabs(a * from[i]);
    }
  };
  // What rows add to the weights of the outputs comes first.
  for (int k = 0; k < ranges.count; ++k) {
    const Row& row = ranges.rows[k];
    const double a = m.lambda[n + k], most = high[n + k];
    if (a == 0.0) continue;
    sum += larger(0.0, -a * most) - a * row.side;
    total += std::fabs(a) * (most + std::fabs(row.side));
    far = larger(far, most);
    if (row.slopes) add(a, row.slopes, d, m.g, m.g_size);
    if (row.shares) add(a, row.shares, model.outputs, m.c, m.c_size);
    if (row.before) add(a, row.before, row.width, m.p + row.first, m.p_size + row.first);
    if (row.neuron >= 0) {
      m.p[row.neuron] -= a;
      m.p_size[row.neuron] += std::fabs(a);
    }
    if (row.extra < 0) continue;
    m.g[d + row.extra] -= a;
    m.g_size[d + row.extra] += std::fabs(a);
  }
  int first = 0;  // output of a stack
  for (const Stack& stack : model.stacks) {
    for (int s = int(stack.layers.size()) - 1; s >= 0; --s) {
      const Layer& layer = stack.layers[s];
      const bool output = s + 1 == int(stack.layers.size());
      double* into = s ? m.p + stack.layers[s - 1].first : m.g;
      double* sizes = s ? m.p_size + stack.layers[s - 1].first : m.g_size;
      for (int r = 0; r < layer.rows; ++r) {
        const int i = layer.first + r;
        const double a = output ? m.c[first + r] : m.lambda[i];
        const double size = output ? m.c_size[first + r] : std::fabs(a);
        if (!output) {
          const double reach = larger(std::fabs(low[i]), std::fabs(high[i]));
          sum += largest_corner(m.p[i], m.lambda[i], low[i], high[i], allowed[i]);
          total += (m.p_size[i] + size) * reach;
          far = larger(far, reach);
        } else {
          far = larger(far, layer.size[r]);
        }
        sum += a * layer.bias[r];
        total += size * std::fabs(layer.bias[r]);
        if (size == 0.0) continue;
        const double* weights = layer.weights.data() + std::size_t(r) * layer.cols;
        for (int c = 0; c < layer.cols; ++c) {
          into[c] += a * weights[c];
          sizes[c] += size * std::fabs(weights[c]);
        }
      }
    }
    first += stack.output().rows;
  }
  for (int q = 0; q < d + e; ++q) {
    const double from = ranges.lower[q], to = ranges.upper[q];
    const double reach = q < d ? model.reach[q] : larger(std::fabs(from), std::fabs(to));
    sum += larger(m.g[q] * from, m.g[q] * to);
    total += m.g_size[q] * reach;
    far = larger(far, reach);
  }
  const double count = 4.0 * (n + d + e + model.outputs + ranges.count) + 64.0;
  const double rounding = count * (0x1p-52 * total + 0x1p-1060 * count * far);
  const double proved = sum + rounding + share * model.output_error;
  return proved == proved ? proved : kInfinity;
}
