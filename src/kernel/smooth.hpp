// Layers and objective for activations other than ReLU. Every neuron has a line above
// and a line below on its range, and no sign. The specification is
// src/ennopt/engine/smooth.py.
#pragma once

struct SmoothBounder {
  const Model& model;
  const Settings& settings;
  Work& w;
  HalfSpaces halves;
  int d;
  int index = 0;  // the stack
  std::size_t wide() const { return std::size_t(model.widest) + 1; }
  Vec* slopes() const { return w.slopes + index * wide() * d; }  // wr
  Vec* centre() const { return w.hc + index * wide(); }          // hc
  const int* every() const { return w.active; }                  // 0, 1, 2, ...

  // Bounds of all neurons.
  void all_layers() {
    for (std::size_t i = 0; i < wide(); ++i) w.active[i] = int(i);
    for (std::size_t m = 0; m < model.stacks.size(); ++m) {
      index = int(m);
      const Stack& stack = model.stacks[m];
      for (std::size_t k = 0; k + 1 < stack.layers.size(); ++k) {
        if (k == 0) first_layer(stack.layers[0]);
        else later_layer(stack, int(k));
      }
    }
  }

  // Store bounds of a neuron, rounding included, and its lines.
  void settle(const Layer& layer, int r, Vec low, Vec high) const {
    const int n = layer.first + r;
    const Vec size = splat(layer.size[r]);
    low = vmax(low, -size);  // second operand where the first is NaN
    high = vmin(high, size);
    // They cross only where no point of the node is left.
    w.low[n] = vmin(low, high);
    w.high[n] = vmax(low, high);
    const Curve curve = curve_of(layer, r);
    for (int lane = 0; lane < kLanes; ++lane) {
      const Lines lines = lines_of(curve, w.low[n][lane], w.high[n][lane]);
      w.slope[n][lane] = lines.high.slope;
      w.shift[n][lane] = lines.high.shift;
      w.under[n][lane] = lines.low.slope;
      w.under_shift[n][lane] = lines.low.shift;
    }
  }

  void first_layer(const Layer& layer) const {
    for (int r = 0; r < layer.rows; ++r) {
      const int n = layer.first + r;
      Vec* row = slopes() + std::size_t(r) * d;
      const double* weights = layer.weights.data() + std::size_t(r) * layer.cols;
      Vec hc = splat(layer.bias[r]), up = Vec{};
      for (int p = 0; p < d; ++p) {
        row[p] = weights[p] * w.radius[p];
        w.trial[p] = -row[p];
        w.smear[std::size_t(n) * d + p] = 2.0 * vabs(row[p]);
        hc += weights[p] * w.centre[p];
        up += vabs(row[p]);
      }
      centre()[r] = hc;
      const Vec error = splat(layer.error[r]);
      Vec down = up;
      if (halves.count > 0) {
        up = support(row, 1, d, halves, w.multipliers, 1);
        down = support(w.trial, 1, d, halves, w.multipliers, 1);
      }
      settle(layer, r, hc - down - error, hc + up + error);
    }
  }

  // From coefficients of the outputs of a layer to those of its pre-activations; the
  // constants go to `sum`, what they round to `margin`.
  template <int T>
  void relax(const Layer& layer, const Vec* constants, Vec* rows, Vec* sum,
             Vec* margin) const {
    for (int i = 0; i < layer.rows; ++i) {
      const int n = layer.first + i;
      const Vec constant = constants ? constants[i] : splat(layer.bias[i]);
      const Vec error = splat(layer.error[i]);
      for (int t = 0; t < T; ++t) {
        Vec& row = rows[i * T + t];
        const Vec plus = vmax(row, Vec{}), minus = vmin(row, Vec{});
        const Vec shift = plus * w.shift[n] + minus * w.under_shift[n];
        row = plus * w.slope[n] + minus * w.under[n];
        sum[t] += shift + row * constant;
        margin[t] += vabs(row) * error + model.gamma * vabs(shift);
      }
    }
  }

  // Two rows at a time, each with both signs: the lower form of a row is minus the upper
  // form of minus the row.
  void later_layer(const Stack& stack, int k) const {
    const Layer& layer = stack.layers[k];
    for (int r = 0; r < layer.rows; r += 2) {
      const int pair[2] = {r, r + 1 < layer.rows ? r + 1 : r};
      Vec c[kTile], margin[kTile], value[kTile];
      for (int t = 0; t < kTile; ++t) {
        const double sign = t % 2 ? -1.0 : 1.0;
        const double* weights =
            layer.weights.data() + std::size_t(pair[t / 2]) * layer.cols;
        c[t] = splat(sign * layer.bias[pair[t / 2]]);
        margin[t] = splat(layer.error[pair[t / 2]]);
        for (int j = 0; j < layer.cols; ++j) w.rows[j * kTile + t] = splat(sign * weights[j]);
      }
      for (int s = k - 1; s >= 0; --s) {
        const Layer& before = stack.layers[s];
        Vec sum[kTile] = {};  // of this layer alone: long sums round more
        relax<kTile>(before, s == 0 ? centre() : nullptr, w.rows, sum, margin);
        for (int t = 0; t < kTile; ++t) c[t] += sum[t];
        if (s == 0) break;
        gemm(w.rows, before.rows, before.weights.data(), before.cols, w.next);
        w.products += double(kTile) * before.rows * before.cols;
        for (int x = 0; x < before.cols * kTile; ++x) w.rows[x] = w.next[x];
      }
      for (int x = 0; x < d * kTile; ++x) w.g[x] = Vec{};
      spread<kTile>(w.rows, slopes(), d, every(), stack.layers[0].rows, w.g);
      w.products += double(kTile) * d * stack.layers[0].rows;
      for (int t = 0; t < kTile; ++t)
        value[t] = c[t] + margin[t] +
                   support(w.g + t, kTile, d, halves, w.multipliers + t, kTile);
      for (int q = 0; q < (pair[0] == pair[1] ? 1 : 2); ++q) {
        Vec* smear = w.smear + std::size_t(layer.first + pair[q]) * d;
        for (int p = 0; p < d; ++p)
          smear[p] = vabs(w.g[p * kTile + 2 * q]) + vabs(w.g[p * kTile + 2 * q + 1]);
        settle(layer, pair[q], -value[2 * q + 1], value[2 * q]);
      }
    }
  }
};

struct SmoothMajorant {
  const Model& model;
  Work& w;
  int d;

  // A linear function above the sum of the outputs: w.form (times radius) and its value
  // at the centre. `margin` is its rounding; w.coefficient what multiplies each output.
  Vec form(SmoothBounder at, Vec&, Vec& margin) const {
    Vec c = Vec{};
    margin = splat(model.output_error);
    for (int p = 0; p < d; ++p) w.form[p] = Vec{};
    for (std::size_t m = 0; m < model.stacks.size(); ++m) {
      const Stack& stack = model.stacks[m];
      at.index = int(m);
      const Layer& out = stack.output();
      const int hidden = int(stack.layers.size()) - 1;
      c += out.bias[0];
      if (hidden == 0) {
        for (int p = 0; p < d; ++p) {
          w.form[p] += out.weights[p] * w.radius[p];
          c += out.weights[p] * w.centre[p];
        }
        continue;
      }
      Vec *row = w.rows, sum = Vec{};
      for (int i = 0; i < out.cols; ++i) row[i] = splat(out.weights[i]);
      for (int s = hidden - 1; s >= 0; --s) {
        const Layer& layer = stack.layers[s];
        for (int i = 0; i < layer.rows; ++i) w.coefficient[layer.first + i] = row[i];
        Vec more = Vec{};  // of this layer alone: long sums round more
        at.relax<1>(layer, s == 0 ? at.centre() : nullptr, row, &more, &margin);
        sum += more;
        if (s == 0) break;
        Majorant::transposed(layer, row, at.every(), layer.rows, at.every(), layer.cols,
                             w.next);
        for (int j = 0; j < layer.cols; ++j) row[j] = w.next[j];
      }
      c += sum;
      for (int p = 0; p < d; ++p) w.gnew[p] = Vec{};  // of this stack alone
      spread<1>(row, at.slopes(), d, at.every(), stack.layers[0].rows, w.gnew);
      for (int p = 0; p < d; ++p) w.form[p] += w.gnew[p];
    }
    return c;
  }

  // The objective at the point z of each node.
  Vec values(const Vec* z) const {
    Vec sum;
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int p = 0; p < d; ++p)
        w.at[p] = w.centre[p][lane] + w.radius[p][lane] * z[p][lane];
      sum[lane] = evaluate(model, w.at, w.forward);
    }
    return sum;
  }

  // Smear: errors of lines, at both ends of the range, in the middle and next to zero,
  // attributed to the inputs that the neurons depend on. Returns their sum.
  Vec scores() const {
    Vec errors = Vec{};
    for (int p = 0; p < d; ++p) w.score[p] = kSmearFloor * vabs(w.best[p]);
    for (const Stack& stack : model.stacks) {
      double share = 1.0;
      for (std::size_t s = 0; s + 1 < stack.layers.size(); ++s, share *= kSmearDecay) {
        const Layer& layer = stack.layers[s];
        for (int r = 0; r < layer.rows; ++r) {
          const int n = layer.first + r;
          const Curve curve = curve_of(layer, r);
          const Vec low = w.low[n], high = w.high[n], a = w.coefficient[n];
          const Vec points[] = {low, 0.5 * (low + high), vmin(vmax(Vec{}, low), high), high};
          Vec above = splat(-kInfinity), below = above;
          for (const Vec& x : points) {
            Vec y;
            for (int lane = 0; lane < kLanes; ++lane) y[lane] = curve.value(x[lane]);
            above = vmax(above, w.slope[n] * x + w.shift[n] - y);
            below = vmax(below, y - w.under[n] * x - w.under_shift[n]);
          }
          const Vec error = vmax(pick(a > 0.0, a * above, -a * below), Vec{});
          const Vec gap = share * error / pick(high > low, high - low, splat(1.0));
          errors += error;
          const Vec* smear = w.smear + std::size_t(n) * d;
          for (int p = 0; p < d; ++p) w.score[p] += gap * smear[p];
        }
      }
    }
    for (int p = 0; p < d; ++p) {
      const double width = model.set.upper[p] - model.set.lower[p];
      w.score[p] += kWidthFloor * errors * (2.0 / (width > 0.0 ? width : 1.0)) * w.radius[p];
    }
    return errors;
  }
};
