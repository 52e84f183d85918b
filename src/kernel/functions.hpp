// Several functions of the outputs on a batch of nodes: an objective with limits. The
// specification is src/ennopt/engine/functions.py.
//
// Pieces are majorants of outputs, or of minus outputs. A function is the least of many
// weighted sums of outputs, so every weighting of it gives a majorant: a sum of pieces. A
// limit's majorant is a half-space of the node and is inherited by the children. The
// objective is bounded over all of them, with a weighting that is improved by best
// response.
#pragma once

// Shares of the way to the best response that are tried, and their scale in each round
// before the first slope step; later ones have the two in the middle.
constexpr double kSteps[] = {0.02, 0.06, 0.15, 0.35, 0.7, 1.0};
constexpr double kFiner[] = {1.0, 1.0, 0.25, 0.0625};

// What counts beside the majorants in the branching scores: a limit that is missed at the
// best point, and the weights that the objective has there.
constexpr double kBlame = 0.3;

// What missing a limit costs a point, and by which share of its spread it is to be exceeded.
constexpr double kPenalty = 20.0, kInside = 1e-7;

struct Functions {
  const Model& model;
  Work& w;
  int d;
  int first = 0;         // number of the first limit's half-space
  int step = 0;          // majorants so far
  Mask missed = none();  // lanes in which limits cannot be met, or not all together
  // Weights stay as they are in the lanes whose slopes do: what a node becomes does not
  // depend on its neighbours.
  Mask going = all();

  int count() const { return int(model.pieces.size()); }
  Vec* weights(int f) const { return w.weights + std::size_t(f) * model.outputs; }
  Vec* slopes(int k) const { return w.piece_slopes + std::size_t(k) * d; }
  Vec* base(int k) const { return w.piece_base + std::size_t(k) * d; }
  Vec* coefficient(int k) const { return w.piece_coefficient + std::size_t(k) * model.largest; }
  const Stack& stack(int k) const { return model.stacks[model.pieces[k].stack]; }
  int hidden(int k) const { return int(stack(k).layers.size()) - 1; }
  Majorant inner() const { return {model, w, d}; }

  // The share of piece k in a sum of outputs.
  Vec share(int k, const Vec* weights) const {
    const Piece& piece = model.pieces[k];
    return vmax(weights[piece.output] * piece.sign, Vec{});
  }

  // A majorant of the objective, as Majorant::form; limits become half-spaces first.
  [[gnu::noinline]] Vec form(Bounder at, Vec& base_centre, Vec& margin) {
    for (int k = 0; k < count(); ++k) make_piece(at, k);
    if (step == 0) {
      outputs_at(nullptr, nullptr);
      for (std::size_t f = 0; f < model.functions.size(); ++f)
        respond_to(model.functions[f], w.heard, weights(int(f)));
      for (int j = 0; j < model.limits(); ++j) w.over[j] = splat(kInfinity);
    }
    for (int j = 0; j < model.limits(); ++j) limit(at.halves, j);
    if (step == 0 && at.halves.count > first)
      missed |= empty(at.halves, d, w.others, w.multipliers);
    improve(at.halves);
    ++step;
    const Vec c = joined(0, w.form, margin);
    base_centre = Vec{};
    for (int p = 0; p < d; ++p) w.base[p] = Vec{};
    for (int k = 0; k < count(); ++k) {
      const Vec part = share(k, weights(0));
      base_centre += part * w.piece_base_centre[k];
      for (int p = 0; p < d; ++p) w.base[p] += part * base(k)[p];
    }
    return c;
  }

  void make_piece(Bounder at, int k) const {
    const Piece& piece = model.pieces[k];
    at.index = piece.stack;
    for (int p = 0; p < d; ++p) w.form[p] = w.base[p] = Vec{};
    Vec c = Vec{}, stable = Vec{}, margin = splat(stack(k).output().error[piece.row]);
    inner().add(at, stack(k), piece.row, piece.sign, coefficient(k), stack(k).layers[0].first,
                c, stable, margin);
    w.piece_centre[k] = c, w.piece_base_centre[k] = stable, w.piece_margin[k] = margin;
    for (int p = 0; p < d; ++p) slopes(k)[p] = w.form[p], base(k)[p] = w.base[p];
  }

  // w.heard: outputs by their pieces at a point, the centre if there is none. Above for
  // outputs of positive weight, below for those of negative weight, if there is such a piece.
  void outputs_at(const Vec* z, const Vec* weights) const {
    for (int o = 0; o < model.outputs; ++o) w.heard[o] = Vec{};
    int known = -1;
    for (int k = 0; k < count(); ++k) {
      const Piece& piece = model.pieces[k];
      Vec own = w.piece_centre[k];
      for (int p = 0; z && p < d; ++p) own += slopes(k)[p] * z[p];
      own *= piece.sign;
      Vec& found = w.heard[piece.output];
      if (piece.output != known) found = own;
      else if (weights) found = pick(weights[piece.output] < 0.0, own, found);
      known = piece.output;
    }
  }

  void respond_to(const Function& function, const Vec* outputs, Vec* found) const {
    const int n = model.outputs;
    for (int o = 0; o < n; ++o) found[o] = splat(function.weights[o]);
    if (function.groups.empty()) return;
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int o = 0; o < n; ++o) w.alone[o] = outputs[o][lane];
      respond(function, w.alone, w.alone + n);
      for (int o = 0; o < n; ++o) found[o][lane] = w.alone[n + o];
    }
  }

  // The sum of pieces for a weighting; its value at the centre.
  Vec combined(const Vec* weights, Vec* form) const {
    Vec c = Vec{};
    for (int p = 0; p < d; ++p) form[p] = Vec{};
    for (int k = 0; k < count(); ++k) {
      const Vec part = share(k, weights);
      if (!any(part > 0.0)) continue;
      c += part * w.piece_centre[k];
      for (int p = 0; p < d; ++p) form[p] += part * slopes(k)[p];
    }
    return c;
  }

  // The same for function f, with its rounding: of the pieces, of the combination, and of
  // weights that are in their set up to rounding.
  Vec joined(int f, Vec* form, Vec& margin) const {
    const Vec c = combined(weights(f), form);
    Vec sizes = Vec{};
    margin = splat(model.functions[f].rounding);
    for (int k = 0; k < count(); ++k) {
      const Vec part = share(k, weights(f));
      Vec size = vabs(w.piece_centre[k]);
      for (int p = 0; p < d; ++p) size += vabs(slopes(k)[p]);
      sizes += part * size;
      margin += part * w.piece_margin[k];
    }
    margin += 4.0 * (count() + 4) * 0x1p-53 * sizes;
    return c;
  }

  // The largest value of a sum of pieces on the nodes.
  Vec largest(const HalfSpaces& halves, const Vec* weights) const {
    const Vec c = combined(weights, w.tried_form);
    return c + support(w.tried_form, 1, d, halves, w.multipliers, 1);
  }

  // Keep a trial in w.kept where it makes the largest value less.
  void consider(const HalfSpaces& halves, const Vec* trial, Vec& least) const {
    const Vec value = largest(halves, trial);
    const Mask better = value < least;
    least = pick(better, value, least);
    for (int o = 0; o < model.outputs; ++o) w.kept[o] = pick(better, trial[o], w.kept[o]);
  }

  // The weights `own`, and those at a good point.
  Vec start(const HalfSpaces& halves, const Function& function, const Vec* own) const {
    Vec least = largest(halves, own);
    for (int o = 0; o < model.outputs; ++o) w.kept[o] = own[o];
    if (function.guide.empty()) return least;
    for (int o = 0; o < model.outputs; ++o) w.tried[o] = splat(function.guide[o]);
    consider(halves, w.tried, least);
    return least;
  }

  // Weights on the way from `own` to the best response at a point.
  void respond_at(const HalfSpaces& halves, const Function& function, const Vec* z,
                  const Vec* own, double scale, Vec& least) const {
    outputs_at(z, own);
    respond_to(function, w.heard, w.target);
    for (double eta : kSteps) {
      for (int o = 0; o < model.outputs; ++o)
        w.tried[o] = own[o] + scale * eta * (w.target[o] - own[o]);
      consider(halves, w.tried, least);
    }
  }

  void take_kept(Vec* own) const {
    for (int o = 0; o < model.outputs; ++o) own[o] = pick(going, w.kept[o], own[o]);
  }

  // Make the half-space of limit j, if its majorant is lower than the one that is known.
  void limit(const HalfSpaces& halves, int j) {
    const Function& function = model.functions[1 + j];
    Vec* own = weights(1 + j);
    if (!function.groups.empty()) {
      Vec least = start(halves, function, own);
      if (step > 0) respond_at(halves, function, w.point, own, 1.0, least);
      take_kept(own);
    }
    Vec margin, *form = w.tried_form;
    const Vec c = joined(1 + j, form, margin);
    Vec steep = Vec{}, known = Vec{};
    HalfSpace& half = w.half_spaces[first + j];
    Vec* a = w.scaled + std::size_t(first + j) * d;
    Vec* inverse = w.inverse + std::size_t(first + j) * d;
    for (int p = 0; p < d; ++p) steep += vabs(form[p]), known += vabs(a[p]);
    const Vec size = steep + vabs(c) + std::fabs(function.relaxed);
    const Vec s = vmin(c + margin - function.relaxed + model.unit * size, splat(kLargest));
    const Vec before = half.s + known, now = s + steep;
    const Mask lower = now < before;
    for (int p = 0; p < d; ++p) {
      a[p] = pick(lower, form[p], a[p]);
      inverse[p] = keep(a[p] != 0.0, -1.0 / a[p]);
      inverse[p] = keep(vabs(inverse[p]) < kLargest, inverse[p]);
    }
    half.s = pick(lower, s, half.s);
    half.size = pick(lower, steep, known) + vabs(half.s);
    w.over[j] = vmin(vmin(before, now), w.over[j]);
    missed |= w.over[j] + model.unit * half.size < 0.0;
  }

  // Weights of the objective, after some rounds of best response.
  void improve(const HalfSpaces& halves) const {
    const Function& function = model.functions[0];
    if (function.groups.empty()) return;
    Vec* own = weights(0);
    Vec least = start(halves, function, own);
    take_kept(own);
    for (int round = step == 0 ? 0 : 1; round < (step == 0 ? 4 : 3); ++round) {
      least = largest(halves, own);
      argument(w.tried_form, d, halves, w.multipliers, w.tried_point);
      respond_at(halves, function, w.tried_point, own, kFiner[round], least);
      take_kept(own);
    }
  }

  // Hear where the majorant is largest: w.outputs there, and w.reached by the limits.
  // w.multipliers stay until the next majorant.
  [[gnu::noinline]] void note(const Vec* z) const {
    Vec* found = w.outputs;
    for (int i = 0; i < model.widest + 1 || i < d; ++i) w.every[i] = i;
    for (const Stack& stack : model.stacks) {
      Vec *y = w.rows, *h = w.next;
      for (int p = 0; p < d; ++p) y[p] = w.centre[p] + w.radius[p] * z[p];
      for (const Layer& layer : stack.layers) {
        Majorant::forward(layer, y, w.every, layer.cols, w.every, layer.rows, h);
        for (int r = 0; r < layer.rows; ++r) y[r] = vmax(h[r], Vec{});
      }
      for (int r = 0; r < stack.output().rows; ++r) *found++ = h[r];
    }
    for (int j = 0; j < model.limits(); ++j) w.reached[j] = value_of(model.functions[1 + j]);
  }

  // A function of w.outputs.
  Vec value_of(const Function& function) const {
    respond_to(function, w.outputs, w.target);
    Vec sum = Vec{};
    for (int o = 0; o < model.outputs; ++o) sum += w.target[o] * w.outputs[o];
    return sum;
  }

  // The objective at the point, less what missing limits costs: how promising it is.
  Vec merits() const {
    Vec value = value_of(model.functions[0]);
    for (int j = 0; j < model.limits(); ++j) {
      const Function& limit = model.functions[1 + j];
      const double ratio = (model.spread > 0.0 ? model.spread : 1.0) /
                           (limit.spread > 0.0 ? limit.spread : 1.0);
      const double aim = limit.least + kInside * limit.spread;
      value -= kPenalty * ratio * vmax(aim - w.reached[j], Vec{});
    }
    return value;
  }

  // w.shares: of the pieces in the objective plus multiples of limits. A limit that is
  // missed at the best point counts, too, whatever its majorant says there: else nothing
  // would make that closer. So do the outputs that a risk has there: a majorant may leave
  // out a member that is the worst, and is bounded too loosely to be of use.
  void lagrangian() const {
    for (int k = 0; k < count(); ++k) w.shares[k] = share(k, weights(0));
    if (!model.functions[0].groups.empty()) {
      respond_to(model.functions[0], w.outputs, w.target);
      for (int k = 0; k < count(); ++k) w.shares[k] += kBlame * share(k, w.target);
    }
    for (int j = 0; j < model.limits(); ++j) {
      const Function& limit = model.functions[1 + j];
      const double ratio = model.spread / std::fmax(limit.spread, 1e-300);
      const Vec own = w.multipliers[first + j];
      const Vec blame = keep(w.reached[j] < limit.least, splat(kBlame * ratio));
      respond_to(limit, w.outputs, w.target);
      for (int k = 0; k < count(); ++k)
        w.shares[k] += own * share(k, weights(1 + j)) + blame * share(k, w.target);
    }
  }

  // w.coefficient: what multiplies the outputs of neurons in the sum of w.shares.
  [[gnu::noinline]] void set_coefficients() const {
    for (int n = 0; n < model.neurons; ++n) w.coefficient[n] = Vec{};
    for (int k = 0; k < count(); ++k) {
      const Vec* own = coefficient(k);
      for (int s = 0; s < hidden(k); ++s) {
        const Layer& layer = stack(k).layers[s];
        for (int n = layer.first; n < layer.first + layer.rows; ++n)
          if (any(w.unstable[n] | w.on[n]))
            w.coefficient[n] += w.shares[k] * own[n - stack(k).layers[0].first];
      }
    }
  }
  void share_lagrangian() const {
    lagrangian();
    set_coefficients();
  }
  void share_objective() const {
    for (int k = 0; k < count(); ++k) w.shares[k] = share(k, weights(0));
    set_coefficients();
  }

  // Slope steps and first-layer lines are those of a sum with such coefficients.
  void walk(const Bounder& at, const Vec* z, bool exact, double share, Mask go) {
    going = go;
    inner().walk(at, z, exact, share, go);
  }
  Vec anchor(const Bounder& at, Vec base, Vec& c, Vec value) const {
    return inner().anchor(at, base, c, value);
  }

  // Errors of the objective plus multiples of limits, as Majorant::scores. Linear terms need
  // no branching: only pieces of networks count for the floor.
  [[gnu::noinline]] Vec scores() const {
    lagrangian();
    Vec errors = Vec{};
    for (int p = 0; p < d; ++p) w.score[p] = w.tried_form[p] = Vec{};
    for (int k = 0; k < count(); ++k) {
      w.piece_error[k] = Vec{};
      if (hidden(k) == 0) continue;
      for (int p = 0; p < d; ++p) w.tried_form[p] += w.shares[k] * slopes(k)[p];
      Vec share = w.shares[k];
      for (int s = 0; s < hidden(k); ++s, share *= kSmearDecay) {
        const Layer& layer = stack(k).layers[s];
        for (int n = layer.first; n < layer.first + layer.rows; ++n) {
          if (!any(w.unstable[n])) continue;
          Vec width;
          const Vec error =
              inner().error_of(n, coefficient(k)[n - stack(k).layers[0].first], width);
          w.piece_error[k] += error;
          const Vec gap = share * error / width, *smear = w.smear + std::size_t(n) * d;
          for (int p = 0; p < d; ++p) w.score[p] += gap * smear[p];
        }
      }
      errors += w.shares[k] * w.piece_error[k];
    }
    for (int p = 0; p < d; ++p) w.score[p] += kSmearFloor * vabs(w.tried_form[p]);
    inner().add_floor(errors);
    return errors;
  }

  // Lanes where functions fall short of what the signs of neurons promise; after `scores`.
  Mask fell_short() const {
    Vec promised = Vec{}, reached = Vec{};
    for (int k = 0; k < count(); ++k) {
      Vec own = w.piece_centre[k] - w.piece_error[k] - w.piece_margin[k];
      for (int p = 0; p < d; ++p) own += slopes(k)[p] * w.point[p];
      promised += w.shares[k] * own;
      reached += w.shares[k] * model.pieces[k].sign * w.outputs[model.pieces[k].output];
    }
    return reached < promised;
  }

  // Majorants of the limits for the children, in original coordinates. An input that is
  // fixed on the node may vary on no child: its slope is gone.
  void inherit(const BoxLayout& layout, double* node, int lane) const {
    for (int j = 0; j < model.limits(); ++j) {
      const HalfSpace& half = w.half_spaces[first + j];
      double constant = half.s[lane], size = std::fabs(constant);
      for (int p = 0; p < d; ++p) {
        const double radius = w.radius[p][lane];
        double slope = radius > 0.0 ? half.a[p][lane] / radius : 0.0;
        if (!(std::fabs(slope) < kLargest)) slope = 0.0;
        layout.cut(node, 1 + j)[p] = slope;
        constant -= slope * w.centre[p][lane];
        size += std::fabs(slope) * model.reach[p];
      }
      *layout.constant(node, 1 + j) = constant + model.unit * size;
    }
  }
};
