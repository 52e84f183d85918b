// The objective on a batch of nodes: linear majorant, slope steps, branching scores.
#pragma once

constexpr double kSmearFloor = 0.02;    // weight of the majorant itself in the scores
constexpr double kSmearDecay = 0.5;    // from one layer to the next, in the scores
constexpr double kWidthFloor = 1e-4;   // of all errors, for every input's relative width
constexpr double kCrowdedShare = 0.1;  // of unstable neurons: above, some rows are skipped

struct Majorant {
  const Model& model;
  Work& w;
  int d;

  // A linear function above the sum of the outputs with one slope below ReLU per neuron
  // (w.alpha): w.form (times radius) and its value at the centre; w.base and `base` hold
  // the part without the unstable neurons of the first layers, w.coefficient what
  // multiplies each neuron's output. `margin` is its rounding.
  [[gnu::noinline]] Vec form(Bounder at, Vec& base, Vec& margin) const {
    Vec c = Vec{};
    base = Vec{};
    margin = splat(model.output_error);
    for (int p = 0; p < d; ++p) w.form[p] = w.base[p] = Vec{};
    for (std::size_t m = 0; m < model.stacks.size(); ++m) {
      at.index = int(m);
      add(at, model.stacks[m], 0, 1.0, w.coefficient, 0, c, base, margin);
    }
    return c;
  }

  // Adds one output of a stack, or minus it, to all that; what multiplies neuron n's output
  // becomes coefficient[n - from].
  [[gnu::always_inline]] inline void add(Bounder at, const Stack& stack, int output,
                                         double sign, Vec* coefficient, int from, Vec& c,
                                         Vec& base, Vec& margin) const {
    const Layer& out = stack.output();
    const double* weights = out.weights.data() + std::size_t(output) * out.cols;
    const int hidden = int(stack.layers.size()) - 1;
    c += sign * out.bias[output];
    base += sign * out.bias[output];
    if (hidden == 0) {
      for (int p = 0; p < d; ++p) {
        const Vec g = sign * weights[p] * w.radius[p];
        w.form[p] += g;
        w.base[p] += g;
        c += sign * weights[p] * w.centre[p];
        base += sign * weights[p] * w.centre[p];
      }
      return;
    }
    Vec* row = w.ahead;
    for (int i = 0; i < at.actives(hidden - 1); ++i)
      row[i] = splat(sign * weights[at.active(hidden - 1)[i]]);
    for (int s = hidden - 1; s >= 1; --s) {
      const Layer& layer = stack.layers[s];
      const int count = at.actives(s);
      const int* list = at.active(s);
      Vec sum = Vec{};  // of this layer alone: long sums round more
      for (int i = 0; i < count; ++i) {
        const int n = layer.first + list[i];
        coefficient[n - from] = row[i];
        const Vec plus = vmax(row[i], Vec{}), minus = vmin(row[i], Vec{});
        row[i] = plus * w.slope[n] + minus * w.alpha[n];
        margin += vabs(row[i]) * layer.error[list[i]];
        sum += plus * w.shift[n] + row[i] * layer.bias[list[i]];
      }
      c += sum;
      base += sum;
      transposed(layer, row, list, count, at.active(s - 1), at.actives(s - 1), w.trial);
      for (int i = 0; i < at.actives(s - 1); ++i) row[i] = w.trial[i];
    }
    const Layer& layer = stack.layers[0];
    const FirstLayer f = at.first();
    // Of this stack alone: long sums round more.
    Vec sum = Vec{}, fixed_sum = Vec{}, *form = w.gnew, *stable = w.gopen;
    for (int p = 0; p < d; ++p) form[p] = stable[p] = Vec{};
    for (int i = 0; i < at.actives(0); ++i) {
      const int r = at.active(0)[i], n = layer.first + r;
      coefficient[n - from] = row[i];
      margin += keep(at.alive(n), vabs(row[i])) * layer.error[r];
      const Vec plus = vmax(row[i], Vec{}), minus = vmin(row[i], Vec{});
      const Vec slope = plus * w.slope[n] + minus * w.alpha[n];
      const Vec* wr = f.slopes + std::size_t(r) * d;
      sum += plus * w.shift[n] + slope * f.centre[r];
      for (int p = 0; p < d; ++p) form[p] += slope * wr[p];
      if (any(w.on[n])) {
        const Vec fixed = keep(w.on[n], row[i]);
        fixed_sum += fixed * f.centre[r];
        for (int p = 0; p < d; ++p) stable[p] += fixed * wr[p];
      }
    }
    c += sum;
    base += fixed_sum;
    for (int p = 0; p < d; ++p) w.form[p] += form[p], w.base[p] += stable[p];
  }

  // out[j] = sum_i row[i] * W[list[i]][columns[j]]
  static void transposed(const Layer& layer, const Vec* row, const int* list, int count,
                         const int* columns, int width, Vec* out) {
    constexpr int J = 8;
    for (int j = 0; j < width; j += J) {
      const int left = width - j < J ? width - j : J;
      Vec acc[J];
      int col[J];
      for (int q = 0; q < J; ++q) acc[q] = Vec{}, col[q] = columns[j + (q < left ? q : 0)];
      for (int i = 0; i < count; ++i) {
        const double* weights = layer.weights.data() + std::size_t(list[i]) * layer.cols;
        for (int q = 0; q < J; ++q) acc[q] += row[i] * weights[col[q]];
      }
      for (int q = 0; q < left; ++q) out[j + q] = acc[q];
    }
  }

  // out[i] = bias + sum_j W[list[i]][columns[j]] * y[j]
  static void forward(const Layer& layer, const Vec* y, const int* columns, int width,
                      const int* list, int count, Vec* out) {
    constexpr int I = 8;
    for (int i = 0; i < count; i += I) {
      const int left = count - i < I ? count - i : I;
      Vec acc[I];
      const double* rows[I];
      for (int q = 0; q < I; ++q) {
        const int r = list[i + (q < left ? q : 0)];
        acc[q] = splat(layer.bias[r]);
        rows[q] = layer.weights.data() + std::size_t(r) * layer.cols;
      }
      for (int j = 0; j < width; ++j)
        for (int q = 0; q < I; ++q) acc[q] += rows[q][columns[j]] * y[j];
      for (int q = 0; q < left; ++q) out[i + q] = acc[q];
    }
  }

  // Values at the point z: through ReLU (exact = true) or through the lines of the
  // majorant, where slopes of neurons with a negative coefficient then move towards the
  // best response [h > 0] by `step` in the lanes of `go`. Returns the objective.
  [[gnu::noinline]] Vec walk(Bounder at, const Vec* z, bool exact, double step, Mask go) const {
    Vec sum = Vec{};
    for (std::size_t m = 0; m < model.stacks.size(); ++m) {
      const Stack& stack = model.stacks[m];
      at.index = int(m);
      const Layer& out = stack.output();
      const int hidden = int(stack.layers.size()) - 1;
      sum += out.bias[0];
      if (hidden == 0) {
        for (int p = 0; p < d; ++p)
          sum += out.weights[p] * (w.centre[p] + w.radius[p] * z[p]);
        continue;
      }
      Vec *h = w.ahead, *y = w.trial;
      const FirstLayer f = at.first();
      for (int i = 0; i < at.actives(0); ++i) {
        const int r = at.active(0)[i];
        Vec v = f.centre[r];
        for (int p = 0; p < d; ++p) v += f.slopes[std::size_t(r) * d + p] * z[p];
        h[i] = v;
      }
      for (int s = 0; s < hidden; ++s) {
        const Layer& layer = stack.layers[s];
        const int count = at.actives(s);
        const int* list = at.active(s);
        if (s > 0)
          forward(layer, y, at.active(s - 1), at.actives(s - 1), list, count, h);
        for (int i = 0; i < count; ++i) {
          const int n = layer.first + list[i];
          if (exact) {
            y[i] = vmax(h[i], Vec{});
            continue;
          }
          const Mask below = w.coefficient[n] < 0.0;
          y[i] = pick(below, w.alpha[n] * h[i], w.slope[n] * h[i] + w.shift[n]);
          const Vec target = keep(h[i] > 0.0, splat(1.0));
          w.alpha[n] = pick(below & w.unstable[n] & go,
                            w.alpha[n] + step * (target - w.alpha[n]), w.alpha[n]);
        }
      }
      if (exact)
        for (int i = 0; i < at.actives(hidden - 1); ++i)
          sum += out.weights[at.active(hidden - 1)[i]] * y[i];
    }
    return sum;
  }

  // First-layer lines at the common vertex of the stacks, mixed into (w.form, c).
  [[gnu::noinline]] Vec anchor(Bounder at, Vec base, Vec& c, Vec value) const {
    const HalfSpaces& halves = at.halves;
    const Vec constant = halves.constant(w.multipliers, 1);
    const Vec gain = constant + halves.margin(w.multipliers, 1);
    c += gain;
    Vec cnew = base + gain;
    for (int p = 0; p < d; ++p) {
      const Vec more = halves.slope(w.multipliers, 1, p);
      w.form[p] += more;
      w.gnew[p] = w.base[p] + more;
      const Vec tie = halves.tie_width(w.multipliers, 1, p);
      w.signs[p] = pick(w.form[p] >= -tie, splat(1.0), splat(-1.0));
    }
    for (std::size_t m = 0; m < model.stacks.size(); ++m) {
      if (model.stacks[m].layers.size() < 2) continue;
      at.index = int(m);
      const FirstLayer f = at.first();
      const int first = model.stacks[m].layers[0].first;
      for (int i = 0; i < f.count; ++i)
        w.coef[i] = keep(w.unstable[first + f.list[i]], w.coefficient[first + f.list[i]]);
      Vec sum = Vec{};
      for (int p = 0; p < d; ++p) w.gopen[p] = Vec{};
      vertex_lines<1>(f, w.coef, w.signs, w.anchor, w.first, w.second, w.gopen, &sum);
      cnew += sum;
      for (int p = 0; p < d; ++p) w.gnew[p] += w.gopen[p];
    }
    value = mix(w.form, c, w.gnew, cnew, d, 1, value);
    for (int p = 0; p < d; ++p) w.form[p] -= halves.slope(w.multipliers, 1, p);
    c -= constant;  // the rounding of both moves stays
    return value;
  }

  // How far the lines of a neuron are off whose output counts `a` times, where its sign
  // holds, and the width of its range.
  [[gnu::always_inline]] inline Vec error_of(int n, Vec a, Vec& width) const {
    const Vec low = w.low[n], high = w.high[n];
    width = pick(w.unstable[n], high - low, splat(1.0));
    const Vec above = a * w.shift[n];
    const Vec below = -a * vmax((1.0 - w.alpha[n]) * high, -w.alpha[n] * low);
    return keep(w.unstable[n], pick(a > 0.0, above, below));
  }

  // Smear: the relaxation error of every unstable neuron, attributed to the inputs its
  // forms depend on. The small term in the majorant keeps scores from being all zero.
  // Returns the sum of all errors: how far the majorant can be above the objective where
  // the signs hold.
  [[gnu::noinline]] Vec scores() const {
    Vec errors = Vec{};
    for (int p = 0; p < d; ++p) w.score[p] = kSmearFloor * vabs(w.best[p]);
    for (const Stack& stack : model.stacks) {
      double share = 1.0;
      for (std::size_t s = 0; s + 1 < stack.layers.size(); ++s, share *= kSmearDecay) {
        const Layer& layer = stack.layers[s];
        for (int r = 0; r < layer.rows; ++r) {
          const int n = layer.first + r;
          if (!any(w.unstable[n])) continue;
          Vec width;
          const Vec error = error_of(n, w.coefficient[n], width);
          const Vec gap = share * error / width;
          errors += error;
          const Vec* smear = w.smear + std::size_t(n) * d;
          for (int p = 0; p < d; ++p) w.score[p] += gap * smear[p];
        }
      }
    }
    add_floor(errors);
    return errors;
  }

  // What every input is blamed for.
  void add_floor(Vec errors) const {
    for (int p = 0; p < d; ++p) {
      const double width = model.set.upper[p] - model.set.lower[p];
      w.score[p] += kWidthFloor * errors * (2.0 / (width > 0.0 ? width : 1.0)) * w.radius[p];
    }
  }
};
