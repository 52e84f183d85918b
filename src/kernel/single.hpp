// Bounds of the neurons behind the first layers in float32, for the nodes of two vectors of
// doubles at once. The first layer and the objective are in float64. The specification is
// src/ennopt/engine/single.py.
//
// Every layer is relative to a reference point: its first layer's at the centre of the box,
// and from there on y = ReLU(h) (h where a neuron is on, 0 where it is off), in float64. A
// row then has no bias, lines have their values at the reference, and a form's coefficients
// multiply distances from it, which shrink with the box: so do all rounding errors.
#pragma once

constexpr float kUnitSingle = 0x1p-24f;

// Per coefficient, and per form: more than everything that underflows in a pass.
constexpr double kUnderflow = 1e-18;

// Roundings of a vertex line, times its neuron's range, per input and in all.
constexpr int kLineInputs = 16, kLineRoundings = 128;

// At least x, as floats.
inline Single join_up(Vec a, Vec b) {
  constexpr double up = 0x1p-23;
  return join(a + up * vabs(a) + kUnderflow, b + up * vabs(b) + kUnderflow);
}

struct SingleArrays : Arrays<Single> {
  // Of every neuron: |h - reference| and |y - reference| at most; how far h is from its
  // sensitivities at most, and the part of it that reaches the next layer; and |W| times
  // the distances before, which is what a product with W rounds in proportion to.
  Single *reach, *most, *apart, *passed, *spread;
  Vec *at[2], *out[2], *rounding[2];  // the reference's h and y, and what h is off
  Single *scaled, *inverse;
  HalfSpaceOf<Single>* cut;
  double margins = 0.0, widths = 0.0;  // of a layer's rows, on the first node
  double loosest = 0.0;                // the largest share of widths that margins had
  SingleArrays(const Model& m, Arena& arena) : Arrays(m, 1, arena) {
    const std::size_t n = m.neurons, d = m.inputs;
    reach = arena.take<Single>(n + 1), most = arena.take<Single>(n + 1);
    apart = arena.take<Single>(n + 1), passed = arena.take<Single>(n + 1);
    spread = arena.take<Single>(n + 1);
    for (int h : {0, 1}) {
      at[h] = arena.take<Vec>(n + 1), out[h] = arena.take<Vec>(n + 1);
      rounding[h] = arena.take<Vec>(n + 1);
    }
    scaled = arena.take<Single>(d), inverse = arena.take<Single>(d);
    cut = arena.take<HalfSpaceOf<Single>>(1);
  }
};

struct SingleBounder : Pass<Single> {
  SingleArrays& s;
  Bounder one, two;  // the nodes of either vector
  SingleBounder(SingleArrays& arrays, const Bounder& one, const Bounder& two)
      : Pass<Single>{one.model, one.settings, arrays, {}, one.d}, s(arrays), one(one),
        two(two) {
    halves.at = s.cut;
    halves.unit = 4.0f * model.sum_error;
    if (one.halves.count == 0) return;
    halves.count = 1;
    // Of a cut that is not known yet, or that overflows, nothing is used.
    const HalfSpace &first = one.halves.at[0], &second = two.halves.at[0];
    const Mask small[2] = {first.size < kLargestSingle, second.size < kLargestSingle};
    Single size = {};
    for (int p = 0; p < d; ++p) {
      const Single a = join(keep(small[0], first.a[p]), keep(small[1], second.a[p]));
      const Single inverse = keep(a != 0, -1 / a);
      s.scaled[p] = a, size += vabs(a);
      s.inverse[p] = keep(vabs(inverse) < kLargestSingle, inverse);
    }
    const Single side = join_up(pick(small[0], first.s, splat(1.0)),
                                pick(small[1], second.s, splat(1.0)));
    s.cut[0] = {s.scaled, s.inverse, side + 4 * kUnitSingle * (size + vabs(side)),
                size + vabs(side)};
  }

  [[gnu::noinline]] void all_layers(Mask crowded_one, Mask crowded_two) {
    for (std::size_t m = 0; m < model.stacks.size(); ++m) {
      const Stack& stack = model.stacks[m];
      index = one.index = two.index = int(m);
      const int hidden = int(stack.layers.size()) - 1;
      if (hidden == 0) continue;
      w.packed_at[0] = w.packed_at[1] = 0;
      first_layer(stack);
      const FirstLayerOf<Single> f = first();
      for (int k = 1; k < hidden; ++k) layer(stack, f, k, crowded_one, crowded_two);
    }
  }

  // Neurons that are not off in every lane, of both vectors.
  void collect(const Stack& stack, int k) const {
    const Layer& layer = stack.layers[k];
    int count = 0;
    for (int r = 0; r < layer.rows; ++r)
      if (any(alive(layer.first + r))) active(k)[count++] = r;
    actives(k) = count;
    for (const Bounder* part : {&one, &two}) {
      std::copy(active(k), active(k) + count, part->active(k));
      part->actives(k) = count;
    }
    pack(stack, k);
  }

  void mark(int n) const {
    w.unstable[n] = join(one.w.unstable[n], two.w.unstable[n]);
    w.on[n] = join(one.w.on[n], two.w.on[n]);
  }

  [[gnu::noinline]] void first_layer(const Stack& stack) const {
    const Layer& layer = stack.layers[0];
    one.first_layer(stack), two.first_layer(stack);
    for (int r = 0; r < layer.rows; ++r) mark(layer.first + r);
    collect(stack, 0);
    sort_first(stack);
    for (const Bounder* part : {&one, &two}) {
      std::copy(open(), open() + w.opens[index], part->open());
      part->w.opens[index] = w.opens[index];
    }
    const std::size_t at0 = index * wide();
    for (int i = 0; i < actives(0); ++i) {
      const int r = active(0)[i], n = layer.first + r;
      for (const Bounder* part : {&one, &two})
        if (!any(part->alive(n))) part->leave_out(layer, r);
      const std::size_t at = at0 + r, row = std::size_t(r) * d;
      for (int p = 0; p < d; ++p)
        jacobian(0)[row + p] = join(one.jacobian(0)[row + p], two.jacobian(0)[row + p]);
      constexpr Single least = {};
      w.hc[at] = join(one.w.hc[at], two.w.hc[at]);
      w.total[at] = join(one.w.total[at], two.w.total[at]);
      w.lb[at] = vmin(join(one.w.lb[at], two.w.lb[at]), least - kLeastSlopeSingle);
      w.ub[at] = vmax(join(one.w.ub[at], two.w.ub[at]), least + kLeastSlopeSingle);
      for (int h : {0, 1}) {
        s.at[h][n] = (h ? two : one).w.hc[at];
        s.rounding[h][n] = splat(layer.error[r]);
      }
      s.reach[n] = join_up(one.w.total[at] + layer.error[r], two.w.total[at] + layer.error[r]);
      s.spread[n] = s.reach[n];
      s.apart[n] = join_up(s.rounding[0][n], s.rounding[1][n]) + 2 * kUnitSingle * s.reach[n];
      lines(layer, r, 0, float(layer.rows + kLineInputs * d + kLineRoundings));
    }
  }

  // The lines of a neuron relative to the reference, and its rounding: so many times the
  // spread. Both vectors have settled it.
  void lines(const Layer& layer, int r, int k, float roundings) const {
    const int n = layer.first + r;
    const Single reach = s.reach[n];
    Vec off[2], shift[2], floor[2], reference[2], steep[2], most[2];
    const Single slope = join(one.w.slope[n], two.w.slope[n]);
    for (int h : {0, 1}) {
      const Work& part = h ? two.w : one.w;
      const Mask free = part.unstable[n];
      const Vec at = s.at[h][n], low = part.low[n], high = part.high[n];
      const Vec y = pick(free, vmax(at, Vec{}), keep(part.on[n], at));
      s.out[h][n] = y;
      reference[h] = keep(free, at);
      // The rounded slope is one like any other: the line is above ReLU at both ends.
      const Vec su = part_of(slope, h);
      const Vec size = su * (vabs(at) + vabs(low) + high) + vabs(y) + high;
      Vec above = vmax(su * (at - low) - y, high - y - su * (high - at)) + 0x1p-49 * size;
      above = vmax(above, -su * part_of(reach, h));
      shift[h] = keep(free, above);
      steep[h] = keep(above < 0.0, -above / su);
      steep[h] = keep(free & (su > 0.0), steep[h]);
      // Below, relative to the slope times the rounded reference.
      floor[h] = keep(free, -vmax(at, Vec{}) - 0x1p-22 * vabs(at));
      off[h] = keep(free, vmax(above, y - su * at) + 0x1p-49 * size);
      const Vec far = part_of(reach, h);
      most[h] = pick(free, vmin(vmax(high - y, y), far), keep(part.on[n], far));
    }
    w.slope[n] = slope;
    w.shift[n] = join_up(shift[0], shift[1]);
    w.shift[n] = keep(w.unstable[n], w.shift[n]);
    w.under[n] = join(one.w.under[n], two.w.under[n]);
    w.middle[n] = join(one.w.middle[n], two.w.middle[n]);
    w.scale[n] = join(one.w.scale[n], two.w.scale[n]);
    w.reference[n] = join(reference[0], reference[1]);
    w.floor[n] = keep(w.unstable[n], -join_up(-floor[0], -floor[1]));
    s.most[n] = keep(alive(n), join_up(most[0], most[1]));
    Single steepness = {};
    for (int p = 0; p < d; ++p) steepness += vabs(jacobian(k)[std::size_t(r) * d + p]);
    s.passed[n] = slope * (s.apart[n] + kUnitSingle * float(layer.rows + 2 * d + 16) * steepness) +
                  join_up(off[0], off[1]);
    w.error[n] = join_up(s.rounding[0][n], s.rounding[1][n]) +
                 kUnitSingle * roundings * s.spread[n] +
                 model.sum_error * 2 * join_up(steep[0], steep[1]);
  }

  // The reference of layer k, how far it may be off, and how far neurons may be from it.
  [[gnu::noinline]] void refer(const Stack& stack, int k) const {
    const Layer &layer = stack.layers[k], &before = stack.layers[k - 1];
    const int count = actives(k - 1);
    const int* list = active(k - 1);
    for (int r = 0; r < layer.rows; ++r) {
      const int n = layer.first + r;
      if (!any(alive(n))) continue;
      const double* weights = layer.weights.data() + std::size_t(r) * layer.cols;
      Vec h[2], size[2];
      for (int half : {0, 1}) h[half] = splat(layer.bias[r]), size[half] = vabs(h[half]);
      Single spread = {}, apart = {};
      for (int i = 0; i < count; ++i) {
        const int j = before.first + list[i];
        const double weight = weights[list[i]], steep = std::fabs(weight);
        for (int half : {0, 1}) {
          h[half] += weight * s.out[half][j];
          size[half] += steep * vabs(s.out[half][j]);
        }
        spread += float(steep) * s.most[j];
        apart += float(steep) * s.passed[j];
      }
      const double unit = 0x1p-53 * (2 * layer.cols + 16);
      for (int half : {0, 1}) {
        s.at[half][n] = h[half];
        s.rounding[half][n] = unit * size[half];
      }
      const Single error = join_up(s.rounding[0][n], s.rounding[1][n]);
      const float up = 1.0f + kUnitSingle * float(2 * layer.cols + 2 * d + 16);
      Single steepness = {};
      for (int p = 0; p < d; ++p) steepness += vabs(jacobian(k)[std::size_t(r) * d + p]);
      s.apart[n] = apart * up + error;
      s.spread[n] = spread * up + error;
      s.reach[n] = vmin(s.spread[n], (steepness + s.apart[n]) * up);
    }
  }

  void layer(const Stack& stack, const FirstLayerOf<Single>& f, int k, Mask skip_one,
             Mask skip_two) const {
    const Layer& layer = stack.layers[k];
    for (int r = 0; r < layer.rows; ++r) mark(layer.first + r);
    sensitivities(stack, k);
    refer(stack, k);
    s.margins = s.widths = 0.0;
    int pending[2], count = 0;
    for (int r = 0; r < layer.rows; ++r) {
      const int n = layer.first + r;
      const Mask idle[2] = {model.only_below[n] ? skip_one : none(),
                            model.only_below[n] ? skip_two : none()};
      if (any(one.w.unstable[n] & ~idle[0]) || any(two.w.unstable[n] & ~idle[1])) {
        pending[count++] = r;
        if (count < 2) continue;
        rows(stack, f, k, pending, skip_one, skip_two);
        count = 0;
        continue;
      }
      const Vec size = splat(layer.size[r]);
      for (const Bounder* part : {&one, &two}) {
        for (int p = 0; p < d; ++p) part->w.smear[std::size_t(n) * d + p] = Vec{};
        part->settle(layer, r, -size, size);
      }
    }
    if (count == 1) {
      pending[1] = pending[0];
      rows(stack, f, k, pending, skip_one, skip_two);
    }
    if (s.widths > 0.0) s.loosest = std::fmax(s.loosest, s.margins / s.widths);
    for (int r = 0; r < layer.rows; ++r) mark(layer.first + r);
    collect(stack, k);
    for (int i = 0; i < actives(k); ++i) lines(layer, active(k)[i], k, float(layer.rows + 8));
  }

  void rows(const Stack& stack, const FirstLayerOf<Single>& f, int k, const int* pair,
            Mask skip_one, Mask skip_two) const {
    const Layer& layer = stack.layers[k];
    Single c[kTile] = {}, value[kTile], margin[kTile];
    for (int t = 0; t < kTile; ++t)
      margin[t] = 4 * kUnitSingle * s.spread[layer.first + pair[t / 2]] + float(kUnderflow);
    start(stack, k, pair);
    descend(stack, k, w.trial, c, margin);
    lift(stack, f, c, margin, value);
    for (int t = 0; t < kTile; ++t) s.margins += margin[t][0], s.widths += value[t][0];
    for (int q = 0; q < (pair[0] == pair[1] ? 1 : 2); ++q) {
      const int r = pair[q], n = layer.first + r;
      for (int h : {0, 1}) {
        const Bounder& part = h ? two : one;
        const Mask skip = h ? skip_two : skip_one;
        Vec* smear = part.w.smear + std::size_t(n) * d;
        for (int p = 0; p < d; ++p)
          smear[p] = part_of(
              vabs(w.g[p * kTile + 2 * q]) + vabs(w.g[p * kTile + 2 * q + 1]), h);
        auto most = [&](int t) {  // above the reference
          const Vec own = part_of(value[t], h), error = part_of(margin[t], h);
          return own + error * (1.0 + 4.0 * model.sum_error) + 0x1p-50 * vabs(own) + s.rounding[h][n];
        };
        Vec high = s.at[h][n] + most(2 * q), low = s.at[h][n] - most(2 * q + 1);
        if (model.only_below[n]) {
          const Vec size = splat(layer.size[r]);
          high = pick(skip, size, high);
          low = pick(skip, -size, low);
          for (int p = 0; p < d; ++p) smear[p] = keep(~skip, smear[p]);
        }
        part.settle(layer, r, low, high);
      }
    }
  }
};

// Two batches at once, of boxes with at most the cut as a half-space.
double bound_single(const Model& model, const Settings& settings, const BoxLayout& layout,
                    double cutoff, double* const* nodes, int count, Outcome* outcomes,
                    void* scratch, const Trace* trace) {
  Arena arena{aligned(scratch)};
  Work first(model, arena), second(model, arena);
  SingleArrays arrays(model, arena);
  const int rest = count > kLanes ? count - kLanes : 0;
  Batch<Bounder, Majorant> one{model, settings, layout, cutoff, nodes, count - rest, first};
  Batch<Bounder, Majorant> two{model, settings, layout, cutoff, rest ? nodes + kLanes : nodes,
                               rest, second};
  one.open_boxes(), two.open_boxes();
  SingleBounder bounder(arrays, {model, settings, first, one.halves, model.inputs},
                        {model, settings, second, two.halves, model.inputs});
  bounder.all_layers(one.crowded, two.crowded);
  one.inherit_slopes(), two.inherit_slopes();
  one.bound_objective(outcomes, trace);
  if (trace && trace->loosest) *trace->loosest = arrays.loosest;
  if (rest) {
    Trace behind;
    if (trace && trace->lower)
      behind = {trace->lower + std::size_t(kLanes) * model.neurons,
                trace->upper + std::size_t(kLanes) * model.neurons,
                trace->scores + kLanes * model.inputs};
    two.bound_objective(outcomes + kLanes, &behind);
  }
  return 2.0 * kLanes * (first.products + second.products + 2.0 * arrays.products);
}
