// Bounds of all neurons of a stack on a batch of nodes, layer by layer.
//
// An unstable neuron obeys alpha*h <= y <= su*h + tu with su = u/(u-l), tu = -l*su. The
// upper form of a row takes the upper line where its coefficient is positive; the lower
// form is minus the upper form of minus the row, so a tile holds two rows with both
// signs and only upper forms are ever computed.
#pragma once

template <class V>
const RealOf<V>* weights_of(const Layer& layer) {
  if constexpr (kIsSingle<V>) return layer.rounded.data();
  else return layer.weights.data();
}

// From a tile of rows down to the inputs, with doubles or floats. With floats everything is
// relative to a reference point, so that rounding is in proportion to the size of the node:
// single.hpp.
template <class V>
struct Pass {
  const Model& model;
  const Settings& settings;
  Arrays<V>& w;
  HalfSpacesOf<V> halves;
  int d;
  int index = 0;  // the stack
  std::size_t wide() const { return std::size_t(model.widest) + 1; }
  std::size_t at(int k) const { return std::size_t(index) * (model.deepest + 1) + k; }
  int& actives(int k) const { return w.actives[at(k)]; }
  int* active(int k) const { return w.active + at(k) * wide(); }
  int* open() const { return w.open + index * wide(); }
  int* fixed() const { return w.fixed + index * wide(); }
  V* jacobian(int k) const {
    return k == 0 ? w.slopes + index * wide() * d : w.jacobian + k * wide() * d;
  }
  FlagsOf<V> alive(int n) const { return w.unstable[n] | w.on[n]; }
  FirstLayerOf<V> first() const {
    const std::size_t n = index * wide();
    return {d, w.slopes + n * d, w.hc + n, w.total + n, w.lb + n,
            w.ub + n, w.open + n, w.opens[index]};
  }
  // Rounding of row r of a layer per unit of its coefficient.
  V error_of(const Layer& layer, int r) const {
    if constexpr (kIsSingle<V>) return w.error[layer.first + r];
    else return splat(layer.error[r]);
  }
  // Sums of floats round in proportion to themselves.
  void add_sums(const V* c, V* margin) const {
    if constexpr (kIsSingle<V>)
      for (int t = 0; t < kTile; ++t) margin[t] += model.sum_error * vabs(c[t]);
  }

  // Down to the first layer's outputs: from w.rows (coefficients of layer k-1's outputs,
  // active neurons only) to w.rows for layer 0; constants are added to c, roundings to
  // `margin`.
  [[gnu::noinline]] void descend(const Stack& stack, int k, const V* signs, V* c,
                                 V* margin) const {
    for (int s = k - 1; s >= 1; --s) {
      const Layer& layer = stack.layers[s];
      const int count = actives(s);
      const int* list = active(s);
      const RealOf<V>* bias = w.packed_bias + s * wide();
      if (settings.row_slopes)
        along<2, V>(signs, jacobian(s), d, list, count, nullptr, w.deviation);
      V sum[kTile] = {};  // of this layer alone: long sums round more
      for (int i = 0; i < count; ++i) {
        const int n = layer.first + list[i];
        const V su = w.slope[n], tu = w.shift[n], error = error_of(layer, list[i]);
        V below[2] = {w.under[n], w.under[n]};
        V* row = w.rows + i * kTile;
        for (int t = 0; t < kTile; ++t) {
          if (settings.row_slopes) {
            const V dev = w.deviation[i * 2 + t / 2];
            const V move = w.scale[n] * dev;
            below[t % 2] = clip01(w.middle[n] + (t % 2 ? -move : move));
          }
          const V plus = vmax(row[t], V{}), minus = vmin(row[t], V{});
          row[t] = plus * su + minus * below[t % 2];
          if constexpr (kIsSingle<V>)
            sum[t] += plus * tu + minus * (below[t % 2] * w.reference[n] + w.floor[n]);
          else sum[t] += plus * tu + row[t] * bias[i];
          margin[t] += vabs(row[t]) * error;
        }
      }
      for (int t = 0; t < kTile; ++t) c[t] += sum[t];
      gemm(w.rows, count, w.packed + w.packed_at[s], actives(s - 1), w.next);
      w.products += double(count) * (kTile * actives(s - 1) + 2 * d);
      V* swap = w.rows;
      w.rows = w.next;
      w.next = swap;
    }
  }

  // Upper forms of the tile in the inputs: g [p][t] (times radius), c (value at the
  // centre); returns their largest values on the node. `f` is the first layer. Its lines
  // round in proportion to the coefficients before their slopes.
  [[gnu::noinline]] void lift(const Stack& stack, const FirstLayerOf<V>& f, V* c, V* margin,
                              V* value) const {
    const Layer& layer = stack.layers[0];
    const int count = actives(0);
    const int* list = active(0);
    int fixeds = 0, opens = 0;
    V sum[kTile] = {};
    for (int i = 0; i < count; ++i) {
      const int r = list[i], n = layer.first + r;
      const V* row = w.rows + i * kTile;
      const V error = keep(alive(n), error_of(layer, r));
      for (int t = 0; t < kTile; ++t) margin[t] += vabs(row[t]) * error;
      if (fixeds < w.fixeds[index] && r == fixed()[fixeds]) {
        for (int t = 0; t < kTile; ++t) {
          const V a = keep(w.on[n], row[t]);
          w.first[fixeds * kTile + t] = a;
          if constexpr (!kIsSingle<V>) sum[t] += a * f.centre[r];
        }
        ++fixeds;
      }
      if (opens < f.count && r == f.list[opens]) {
        for (int t = 0; t < kTile; ++t)
          w.coef[opens * kTile + t] = keep(w.unstable[n], row[t]);
        ++opens;
      }
    }
    for (int x = 0; x < d * kTile; ++x) w.stable[x] = V{};
    spread<kTile>(w.first, f.slopes, d, fixed(), fixeds, w.stable);
    V constant[kTile];
    for (int t = 0; t < kTile; ++t) {
      c[t] += sum[t];
      constant[t] = c[t];
      sum[t] = V{};
    }
    for (int i = 0; i < opens; ++i) {
      const int r = f.list[i], n = layer.first + r;
      for (int t = 0; t < kTile; ++t) {
        const V a = w.coef[i * kTile + t];
        const V plus = vmax(a, V{}), minus = vmin(a, V{});
        const V slope = plus * w.slope[n] + minus * w.under[n];
        w.first[i * kTile + t] = slope;
        if constexpr (kIsSingle<V>)
          sum[t] += plus * w.shift[n] + minus * (w.under[n] * w.reference[n] + w.floor[n]);
        else sum[t] += plus * w.shift[n] + slope * f.centre[r];
      }
    }
    for (int t = 0; t < kTile; ++t) c[t] += sum[t];
    add_sums(c, margin);
    for (int x = 0; x < d * kTile; ++x) w.g[x] = w.stable[x];
    spread<kTile>(w.first, f.slopes, d, f.list, opens, w.g);
    w.products += double(kTile) * d * (fixeds + opens);
    for (int t = 0; t < kTile; ++t) {
      V* multipliers = w.multipliers + t;
      value[t] = c[t] + support(w.g + t, kTile, d, halves, multipliers, kTile);
      if (any(halves.used(multipliers, kTile))) {  // from here on, plus the half-spaces
        const V gain =
            halves.constant(multipliers, kTile) + halves.margin(multipliers, kTile);
        c[t] += gain;
        constant[t] += gain;
        for (int p = 0; p < d; ++p) {
          const V more = halves.slope(multipliers, kTile, p);
          w.g[p * kTile + t] += more;
          w.stable[p * kTile + t] += more;
        }
      }
    }
    if (settings.vertex_lines && opens > 0) anchor(f, constant, c, margin, value);
    for (int t = 0; t < kTile; ++t)
      if (any(halves.used(w.multipliers + t, kTile)))
        for (int p = 0; p < d; ++p)
          w.g[p * kTile + t] -= halves.slope(w.multipliers + t, kTile, p);
  }

  // Anchored lines at points that lean to where the forms are largest, mixed into (g, c).
  [[gnu::noinline]] void anchor(const FirstLayerOf<V>& f, const V* constant, V* c,
                                V* margin, V* value) const {
    using Real = RealOf<V>;
    constexpr Real least = kIsSingle<V> ? kLeastSlopeSingle : kLeastSlope;
    V cnew[kTile], scale[kTile] = {};
    for (int x = 0; x < d * kTile; ++x) scale[x % kTile] += vabs(w.g[x]) * Real(1.0 / d);
    for (int t = 0; t < kTile; ++t) scale[t] = vmax(scale[t], fill<V>(least));
    for (int x = 0; x < d * kTile; ++x)
      w.lean[x] = clip(Real(kLeanStart) * ratio(w.g[x], scale[x % kTile]));
    for (int pass = 1;; ++pass) {
      for (int t = 0; t < kTile; ++t) cnew[t] = constant[t];
      for (int x = 0; x < d * kTile; ++x) {
        w.gnew[x] = w.stable[x];
        const FlagsOf<V> open = vabs(w.lean[x]) <= Real(kUndecided);
        w.undecided[x] = keep(open, fill<V>(1));
        w.signs[x] = keep(~open, pick(w.lean[x] > 0, fill<V>(1), fill<V>(-1)));
      }
      mixed_lines<kTile>(f, w.coef, w.signs, w.undecided, w.anchor, w.range, w.first,
                         w.second, w.third, w.gnew, cnew, w.gopen);
      w.products += 5.0 * kTile * d * f.count;
      add_sums(cnew, margin);
      for (int t = 0; t < kTile; ++t)
        value[t] = mix(w.g + t, c[t], w.gnew + t, cnew[t], d, kTile, value[t]);
      if (pass == kLinePasses) return;
      for (int t = 0; t < kTile; ++t) scale[t] = fill<V>(least);
      for (int x = 0; x < d * kTile; ++x)
        scale[x % kTile] = vmax(scale[x % kTile], vabs(w.gnew[x]));
      for (int x = 0; x < d * kTile; ++x)
        w.lean[x] = clip(w.lean[x] +
                         Real(kLeanStep / pass) * ratio(w.gnew[x], scale[x % kTile]));
    }
  }

  static V clip(V z) { return vmin(vmax(z, fill<V>(-1)), fill<V>(1)); }

  // Sensitivities J_k = W_k diag(s) J_(k-1), times radius, for the listed rows.
  [[gnu::noinline]] void sensitivities(const Stack& stack, int k) const {
    const Layer &layer = stack.layers[k], &before = stack.layers[k - 1];
    const int count = actives(k - 1);
    const int* list = active(k - 1);
    for (int i = 0; i < count; ++i) {
      const V slope = w.slope[before.first + list[i]];
      const V* source = jacobian(k - 1) + std::size_t(list[i]) * d;
      for (int p = 0; p < d; ++p) w.moved[i * d + p] = slope * source[p];
    }
    const RealOf<V>* rows[4];
    V* out[4];
    int some = 0;
    for (int r = 0; r < layer.rows; ++r) {
      if (any(alive(layer.first + r))) {
        rows[some] = weights_of<V>(layer) + std::size_t(r) * layer.cols;
        out[some++] = jacobian(k) + std::size_t(r) * d;
      }
      if (some == 4 || r + 1 == layer.rows) {
        product(rows, some, list, count, w.moved, d, out);
        w.products += double(some) * count * d;
        some = 0;
      }
    }
  }

  // The tile of the rows `pair` with both signs, and the vertices that they lean to.
  void start(const Stack& stack, int k, const int* pair) const {
    const Layer& layer = stack.layers[k];
    const RealOf<V>* upper = weights_of<V>(layer) + std::size_t(pair[0]) * layer.cols;
    const RealOf<V>* lower = weights_of<V>(layer) + std::size_t(pair[1]) * layer.cols;
    for (int i = 0; i < actives(k - 1); ++i) {
      const int j = active(k - 1)[i];
      V* row = w.rows + i * kTile;
      row[0] = fill<V>(upper[j]), row[1] = fill<V>(-upper[j]);
      row[2] = fill<V>(lower[j]), row[3] = fill<V>(-lower[j]);
    }
    if (settings.row_slopes)
      for (int p = 0; p < d; ++p)
        for (int q = 0; q < 2; ++q) {
          const V j = jacobian(k)[std::size_t(pair[q]) * d + p];
          w.trial[p * 2 + q] = pick(j > 0, fill<V>(1), keep(j < 0, fill<V>(-1)));
        }
  }

  // The weights between the active neurons of two layers side by side.
  void pack(const Stack& stack, int k) const {
    const Layer& layer = stack.layers[k];
    const int* list = active(k);
    const int count = actives(k);
    const std::size_t at = k == 0 ? 0 : w.packed_at[k];
    RealOf<V>*packed = w.packed + at, *bias = w.packed_bias + k * wide();
    const int cols = k == 0 ? 0 : actives(k - 1);
    const int* from = active(k > 0 ? k - 1 : 0);
    for (int i = 0; i < count; ++i) {
      const RealOf<V>* row = weights_of<V>(layer) + std::size_t(list[i]) * layer.cols;
      for (int j = 0; j < cols; ++j) packed[std::size_t(i) * cols + j] = row[from[j]];
      bias[i] = RealOf<V>(layer.bias[list[i]]);
    }
    w.packed_at[k + 1] = at + std::size_t(count) * cols;
  }

  // Neurons of the first layer that are unstable, or on, in some lane.
  void sort_first(const Stack& stack) const {
    int opens = 0, fixeds = 0;
    for (int i = 0; i < actives(0); ++i) {
      const int r = active(0)[i], n = stack.layers[0].first + r;
      if (any(w.unstable[n])) open()[opens++] = r;
      if (any(w.on[n])) fixed()[fixeds++] = r;
    }
    w.opens[index] = opens;
    w.fixeds[index] = fixeds;
  }
};

struct Bounder : Pass<Vec> {
  Work& w;
  Bounder(const Model& model, const Settings& settings, Work& work, const HalfSpaces& halves,
          int d)
      : Pass<Vec>{model, settings, work, halves, d}, w(work) {}

  // Store what is known of neuron n (layer row r): bounds, rounding included, status and
  // lines. Lanes in which it is not unstable keep the status they came with.
  void settle(const Layer& layer, int r, Vec low, Vec high) const {
    const int n = layer.first + r;
    const Vec size = splat(layer.size[r]);
    low = vmax(low, -size);  // second operand where the first is NaN
    high = vmin(high, size);
    const Mask free = w.unstable[n];
    const Mask off = free & (high <= 0.0), on = free & (low >= 0.0) & ~off;
    const Mask open = free & ~off & ~on;
    w.on[n] |= on;
    w.unstable[n] = open;
    w.low[n] = low;
    w.high[n] = high;
    const Vec width = pick(open, high - low, splat(1.0));
    const Vec one = keep(w.on[n], splat(1.0));
    const Vec slope = pick(open, high / width, one);
    w.slope[n] = slope;
    w.shift[n] = keep(open, -low * slope);
    w.under[n] = pick(open, keep(high > -low, splat(1.0)), one);
    const Vec q = 5.0 / width;
    w.middle[n] = pick(open, 0.5 + 0.5 * (low + high) * q, one);
    w.scale[n] = keep(open, 0.75 * q);
  }

  // Neurons of a layer that are not off in every lane.
  void collect(const Stack& stack, int k) const {
    const Layer& layer = stack.layers[k];
    int count = 0;
    for (int r = 0; r < layer.rows; ++r)
      if (any(alive(layer.first + r))) active(k)[count++] = r;
    actives(k) = count;
    pack(stack, k);
  }

  // Neuron r of the first layer, which is off in all lanes.
  void leave_out(const Layer& layer, int r) const {
    const std::size_t at = index * wide() + r;
    for (int p = 0; p < d; ++p) jacobian(0)[std::size_t(r) * d + p] = Vec{};
    w.hc[at] = w.total[at] = Vec{};
    w.lb[at] = splat(-1.0), w.ub[at] = splat(1.0);
    settle(layer, r, splat(-layer.size[r]), splat(layer.size[r]));
  }

  [[gnu::noinline]] void first_layer(const Stack& stack) const {
    Vec* wr = jacobian(0);
    const std::size_t at0 = index * wide();
    Vec *hcs = w.hc + at0, *totals = w.total + at0;
    Vec *lbs = w.lb + at0, *ubs = w.ub + at0;
    const Layer& layer = stack.layers[0];
    for (int r = 0; r < layer.rows; ++r) {
      const int n = layer.first + r;
      Vec* row = wr + std::size_t(r) * d;
      const double* weights = layer.weights.data() + std::size_t(r) * layer.cols;
      if (!any(alive(n))) continue;
      Vec hc = splat(layer.bias[r]), total = Vec{};
      for (int p = 0; p < d; ++p) {
        row[p] = weights[p] * w.radius[p];
        w.smear[std::size_t(n) * d + p] = 2.0 * vabs(row[p]);
        hc += weights[p] * w.centre[p];
        total += vabs(row[p]);
      }
      hcs[r] = hc;
      totals[r] = total;
      const Vec error = splat(layer.error[r]);
      Vec up = total, down = total;
      if (halves.count > 0 && any(w.unstable[n])) {
        for (int p = 0; p < d; ++p) w.trial[p] = -row[p];
        up = support(row, 1, d, halves, w.multipliers, 1);
        down = support(w.trial, 1, d, halves, w.multipliers, 1);
      }
      settle(layer, r, hc - down - error, hc + up + error);
      const Mask open = w.unstable[n];
      lbs[r] = pick(open, hc - total - error, splat(-1.0));
      ubs[r] = pick(open, hc + total + error, splat(1.0));
    }
    collect(stack, 0);
    sort_first(stack);
  }

  // Bound the rows of layer k that are unstable in some lane; in the lanes of `skip`
  // those that only need the line below ReLU are left out.
  void layer(const Stack& stack, const FirstLayer& f, int k, Mask skip) const {
    const Layer& layer = stack.layers[k];
    if (settings.row_slopes) sensitivities(stack, k);
    int pending[2], count = 0;
    for (int r = 0; r < layer.rows; ++r) {
      const int n = layer.first + r;
      const Mask idle = model.only_below[n] ? skip : none();
      if (!any(w.unstable[n] & ~idle)) {
        const Vec size = splat(layer.size[r]);
        for (int p = 0; p < d; ++p) w.smear[std::size_t(n) * d + p] = Vec{};
        settle(layer, r, -size, size);
        continue;
      }
      pending[count++] = r;
      if (count == 2) {
        rows(stack, f, k, pending, skip);
        count = 0;
      }
    }
    if (count == 1) {
      pending[1] = pending[0];
      rows(stack, f, k, pending, skip);
    }
    collect(stack, k);
  }

  void rows(const Stack& stack, const FirstLayer& f, int k, const int* pair,
            Mask skip) const {
    const Layer& layer = stack.layers[k];
    Vec c[kTile], value[kTile], margin[kTile];
    for (int t = 0; t < kTile; ++t) {
      const double sign = t % 2 ? -1.0 : 1.0;
      c[t] = splat(sign * layer.bias[pair[t / 2]]);
      margin[t] = splat(layer.error[pair[t / 2]]);
    }
    start(stack, k, pair);
    descend(stack, k, w.trial, c, margin);
    lift(stack, f, c, margin, value);
    for (int q = 0; q < (pair[0] == pair[1] ? 1 : 2); ++q) {
      const int r = pair[q], n = layer.first + r;
      Vec* smear = w.smear + std::size_t(n) * d;
      for (int p = 0; p < d; ++p)
        smear[p] = vabs(w.g[p * kTile + 2 * q]) + vabs(w.g[p * kTile + 2 * q + 1]);
      Vec high = value[2 * q] + margin[2 * q];
      Vec low = -(value[2 * q + 1] + margin[2 * q + 1]);
      if (model.only_below[n]) {
        const Vec size = splat(layer.size[r]);
        high = pick(skip, size, high);
        low = pick(skip, -size, low);
        for (int p = 0; p < d; ++p) smear[p] = keep(~skip, smear[p]);
      }
      settle(layer, r, low, high);
    }
  }
};
