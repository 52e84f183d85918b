// A basis of the linear program of a node of signs (program.hpp), its point and multipliers,
// and the passes through the network that make them: values forward, multipliers backward,
// and how a row depends on what is not determined yet. Lines above neurons are part of them.
#pragma once

// The number of equations is limited; what that leaves undone only costs strength.
constexpr int kMostEquations = 1024;

struct Passes {
  const Model& model;
  Ranges ranges;
  const double *lower = nullptr, *upper = nullptr, *low = nullptr, *high = nullptr;
  int d, n, m, most;            // inputs with extra ones, neurons, those and rows, equations
  std::uint8_t *tied, *may;     // corners of each item: inputs, neurons, rows
  double *x, *h, *y, *f;        // the point, and outputs there
  double *p, *lambda, *g, *c;   // the multipliers, and what weights outputs have by them
  double *dp, *dlambda, *dg, *dc;  // a direction
  double *kappa, *tau;          // y = kappa h + tau: the line of a neuron
  double *source;               // what is added to lambda beside kappa p
  double *side, *origin;        // length of each item; h of each neuron's corner O
  double *when, *rate;          // next tie of each item, and what it adds to the slope
  std::uint8_t* what;           // its corner
  double *row, *next, *lu, *rhs, *slots;
  int *columns, *column_of, *rows, *order;
  int* lined;                   // the row whose line a neuron in a face is on, or -1
  int eased = -1;               // such a neuron that leaves its face, and its p then
  double ease = 0.0;
  int size = 0, pivots = 0;
  bool done = false;
  double value = 0.0;

  // With so many inputs, extra ones, too, and room for so many rows.
  Passes(const Model& whole, int inputs, int room, Arena& arena)
      : model(whole), d(inputs), n(whole.neurons), m(n + room) {
    most = room < d ? m : n + d;  // no more than inputs and faces together
    if (most > kMostEquations) most = kMostEquations;
    auto many = [&](std::size_t count) { return arena.take<double>(count + 1); };
    const int items = d + m, widest = whole.widest, wide = widest > d ? widest : d;
    tied = arena.take<std::uint8_t>(items), may = arena.take<std::uint8_t>(items);
    what = arena.take<std::uint8_t>(items);
    x = many(d), g = many(d), dg = many(d), h = many(m), y = many(m), p = many(m);
    lambda = many(m), dp = many(m), dlambda = many(m), kappa = many(m), tau = many(m);
    source = many(m), when = many(items), rate = many(items);
    side = many(items), origin = many(m);
    f = many(whole.outputs), c = many(whole.outputs), dc = many(whole.outputs);
    row = many(wide), next = many(wide), lu = many(std::size_t(most) * most);
    const std::size_t pass = forward_doubles(whole);
    rhs = many(most), slots = many(pass > std::size_t(most) ? pass : most);
    columns = arena.take<int>(items), column_of = arena.take<int>(items);
    rows = arena.take<int>(m + 1), order = arena.take<int>(m + 1);
    lined = arena.take<int>(n + 1);
  }
  // What it is a program of; rows may be more than before, behind those.
  void take(const Ranges& box) {
    ranges = box;
    lower = box.lower, upper = box.upper, low = box.low, high = box.high;
    m = n + box.count;
  }

  static double larger(double a, double b) { return a > b ? a : b; }
  static double smaller(double a, double b) { return a < b ? a : b; }
  static bool single(std::uint8_t corners) { return (corners & (corners - 1)) == 0; }
  static std::uint8_t one_of(std::uint8_t corners) { return corners & -corners; }
  bool face(int item) const { return tied[item] == kAll; }

  static void axpy(double* out, double a, const double* from, int count) {
    for (int i = 0; i < count; ++i) out[i] += a * from[i];
  }

  // Corner v of an item: h (or x), y, what it adds to the bound, and to its slope.
  double across(int item, std::uint8_t v) const {
    if (item < d) return v == kO ? lower[item] : upper[item];
    return v == kU ? high[item - d] : v == kL ? low[item - d] : origin[item - d];
  }
  double above(int item, std::uint8_t v) const {
    const double at = across(item, v);
    return at > 0.0 ? at : 0.0;
  }
  double worth(int item, std::uint8_t v) const {
    const double at = across(item, v);
    if (item < d) return g[item] * at;
    return (at > 0.0 ? p[item - d] - lambda[item - d] : -lambda[item - d]) * at;
  }
  double climb(int item, std::uint8_t v) const {
    const double at = across(item, v);
    if (item < d) return dg[item] * at;
    return (at > 0.0 ? dp[item - d] - dlambda[item - d] : -dlambda[item - d]) * at;
  }

  // The line of neuron i through the corners given.
  void line(int i, std::uint8_t corners) {
    kappa[i] = corners == (kO | kU) ? 1.0 : 0.0;
    tau[i] = corners == kAll ? y[i] : single(corners) ? above(d + i, corners) : 0.0;
    if (corners != (kU | kL)) return;
    kappa[i] = high[i] / (high[i] - low[i]);
    tau[i] = -low[i] * kappa[i];
  }

  // out = bias + weights * from
  static void apply(const Layer& layer, const double* from, double* out) {
    for (int r = 0; r < layer.rows; ++r) out[r] = layer.bias[r];
    for (int c = 0; c < layer.cols; ++c)
      if (from[c] != 0.0)
        axpy(out, from[c], layer.transposed.data() + std::size_t(c) * layer.rows, layer.rows);
  }

  // Values of all neurons at x along their lines, of the outputs and of the rows that count.
  void forward() {
    double* output = f;
    for (const Stack& stack : model.stacks) {
      const double* from = x;
      for (std::size_t s = 0; s + 1 < stack.layers.size(); ++s) {
        const Layer& layer = stack.layers[s];
        apply(layer, from, h + layer.first);
        for (int i = layer.first; i < layer.first + layer.rows; ++i)
          y[i] = lined[i] < 0 ? kappa[i] * h[i] + tau[i]
                              : dot(slopes_of(lined[i]), from, layer.cols) -
                                    ranges.rows[lined[i]].edge -
                                    across(d + n + lined[i], tied[d + n + lined[i]]);
        from = y + layer.first;
      }
      const Layer& last = stack.output();
      for (int r = 0; r < last.rows; ++r)
        *output++ = last.bias[r] + dot(last.weights.data() + std::size_t(r) * last.cols, from,
                                       last.cols);
    }
    for (int k = 0; k < ranges.count; ++k) {
      const Row& own = ranges.rows[k];
      if (own.neuron >= 0 && !may[d + n + k]) continue;
      double sum = -own.edge;
      if (own.slopes) sum += dot(own.slopes, x, model.inputs);
      if (own.shares) sum += dot(own.shares, f, model.outputs);
      if (own.extra >= 0) sum -= x[model.inputs + own.extra];
      if (own.before) sum += dot(own.before, y + own.first, own.width);
      if (own.neuron >= 0) sum -= y[own.neuron];
      h[n + k] = y[n + k] = sum;
    }
  }
  // Slopes of a line above a neuron: of the outputs before its layer, or the inputs.
  const double* slopes_of(int k) const {
    return ranges.rows[k].before ? ranges.rows[k].before : ranges.rows[k].slopes;
  }
  static double dot(const double* a, const double* b, int count) {
    double sum = 0.0;
    for (int i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
  }

  // From `share` of the objective down to the inputs: lambdas of single corners are given,
  // those of lines follow.
  void backward(double share, double* ps, double* lambdas, double* gs, double* cs) const {
    for (int q = 0; q < d; ++q) gs[q] = q < model.inputs ? 0.0 : share;
    for (int o = 0; o < model.outputs; ++o) cs[o] = share * model.goal[o];
    for (int i = 0; i < n; ++i) ps[i] = 0.0;
    for (int i = n; i < m; ++i) {
      const Row& own = ranges.rows[i - n];
      if (own.neuron >= 0 && lined[own.neuron] == i - n) continue;
      if (!single(tied[d + i])) lambdas[i] = source[i];
      if (lambdas[i] == 0.0) continue;
      if (own.slopes) axpy(gs, lambdas[i], own.slopes, model.inputs);
      if (own.shares) axpy(cs, lambdas[i], own.shares, model.outputs);
      if (own.extra >= 0) gs[model.inputs + own.extra] -= lambdas[i];
      if (own.before) axpy(ps + own.first, lambdas[i], own.before, own.width);
      if (own.neuron >= 0) ps[own.neuron] -= lambdas[i];
    }
    const double* output = cs;
    for (const Stack& stack : model.stacks) {
      const int hidden = int(stack.layers.size()) - 1;
      const Layer& last = stack.layers[hidden];
      double* into = hidden ? ps + stack.layers[hidden - 1].first : gs;
      for (int r = 0; r < last.rows; ++r, ++output)
        if (*output != 0.0)
          axpy(into, *output, last.weights.data() + std::size_t(r) * last.cols, last.cols);
      for (int s = hidden - 1; s >= 0; --s) {
        const Layer& layer = stack.layers[s];
        into = s ? ps + stack.layers[s - 1].first : gs;
        for (int r = 0; r < layer.rows; ++r) {
          const int i = layer.first + r, k = lined[i];
          if (k >= 0) {
            const double rest = i == eased && share == 0.0 ? ease : 0.0;
            lambdas[n + k] = ps[i] - rest;
            ps[i] = rest;
            axpy(into, lambdas[n + k], slopes_of(k), layer.cols);
          }
          if (!single(tied[d + i])) lambdas[i] = kappa[i] * ps[i] + source[i];
          if (lambdas[i] != 0.0)
            axpy(into, lambdas[i], layer.weights.data() + std::size_t(r) * layer.cols,
                 layer.cols);
        }
      }
    }
  }

  // Adds how `row`, of the outputs of layer t, depends on the columns: inputs between their
  // bounds, then the outputs of faces.
  void descend(const Stack& stack, int t, double* out) {
    for (; t >= 0; --t) {
      const Layer& layer = stack.layers[t];
      for (int q = 0; q < layer.cols; ++q) next[q] = 0.0;
      for (int r = 0; r < layer.rows; ++r) {
        const int i = layer.first + r;
        if (lined[i] >= 0) {
          if (row[r] != 0.0) axpy(next, row[r], slopes_of(lined[i]), layer.cols);
          continue;
        }
        if (face(d + i)) {
          out[column_of[d + i]] = row[r];
          continue;
        }
        const double a = row[r] * kappa[i];
        if (a != 0.0)
          axpy(next, a, layer.weights.data() + std::size_t(r) * layer.cols, layer.cols);
      }
      double* swap = row;
      row = next;
      next = swap;
    }
    for (int k = 0; k < size && columns[k] < model.inputs; ++k) out[k] += row[columns[k]];
  }
  // How h of row r of layer s depends on the columns.
  void dependence(const Stack& stack, int s, int r, double* out) {
    for (int k = 0; k < size; ++k) out[k] = 0.0;
    const int cols = stack.layers[s].cols;
    const double* weights = stack.layers[s].weights.data() + std::size_t(r) * cols;
    for (int q = 0; q < cols; ++q) row[q] = weights[q];
    descend(stack, s - 1, out);
  }
  // The same for row k of the set.
  void dependence(int k, double* out) {
    const Row& own = ranges.rows[k];
    if (own.neuron >= 0) {
      for (int q = 0; q < size; ++q) out[q] = 0.0;
      dependence_above(k, true, out);
      return;
    }
    for (int q = 0; q < size; ++q) {
      out[q] = own.slopes && columns[q] < model.inputs ? own.slopes[columns[q]] : 0.0;
      if (own.extra >= 0 && columns[q] == model.inputs + own.extra) out[q] -= 1.0;
    }
    if (!own.shares) return;
    const double* share = own.shares;
    for (const Stack& stack : model.stacks) {
      const Layer& last = stack.output();
      bool counts = false;
      for (int q = 0; q < last.cols; ++q) row[q] = 0.0;
      for (int r = 0; r < last.rows; ++r, ++share) {
        if (*share == 0.0) continue;
        axpy(row, *share, last.weights.data() + std::size_t(r) * last.cols, last.cols);
        counts = true;
      }
      if (counts) descend(stack, int(stack.layers.size()) - 2, out);
    }
  }
  // Adds how row k, a line above a neuron, depends on the columns: less that neuron's
  // output if `whole`, else the line alone.
  void dependence_above(int k, bool whole, double* out) {
    const int i = ranges.rows[k].neuron;
    for (const Stack& stack : model.stacks)
      for (int s = 0; s + 1 < int(stack.layers.size()); ++s) {
        const Layer& layer = stack.layers[s];
        const int r = i - layer.first;
        if (r < 0 || r >= layer.rows) continue;
        const double* slopes = slopes_of(k);
        for (int q = 0; q < layer.cols; ++q) row[q] = slopes[q];
        const double* weights = layer.weights.data() + std::size_t(r) * layer.cols;
        if (whole && lined[i] >= 0) axpy(row, -1.0, slopes_of(lined[i]), layer.cols);
        else if (whole && face(d + i)) out[column_of[d + i]] = -1.0;
        else if (whole) axpy(row, -kappa[i], weights, layer.cols);
        descend(stack, s - 1, out);
      }
  }
};
