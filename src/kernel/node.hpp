// The bound of a batch of boxes, one per lane, by the layers and the sum that it is given:
// those of ReLU (node.cpp) or of other activations (smooth.cpp), or several functions of
// the outputs of the former (functions.cpp). The specification is
// src/ennopt/engine/node.py.
#pragma once

char* aligned(void* scratch) {
  return reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(scratch) + 63) &
                                 ~std::uintptr_t(63));
}

// A slope in [0, 1] as a byte, halves to the nearer end: rounded the other way, a slope
// that half steps move to an end would never get there.
Vec slope_byte(Vec alpha) {
  const Vec scaled = alpha * double(kSlopeMax);
  const Vec down = scaled + 0.5, up = scaled + 0.5 - 1e-9;
  return pick(alpha < 0.5, up, down);
}

// How many slope steps a node deserves: more when it is close to the cutoff, measured
// by `size`, the larger of |cutoff| and the objective's spread: an objective shifted to
// zero is no harder.
Vec step_limit(Vec bound, double cutoff, double size, int most) {
  const Vec distance = bound - cutoff;
  const double near = most < 6 ? most : 6, far = most < 1 ? most : 1;
  return pick(distance <= 1e-3 * size, splat(most),
              pick(distance <= 0.1 * size, splat(near), splat(far)));
}

// A bound this many times the objective's noise above the cutoff is kept there by rounding.
constexpr double kNoise = 4.0;

// Generations in which only rounding keeps a node open before it is left as it is.
constexpr int kRoundingGenerations = 8;

// A box whose sides are all below this share of the domain's trusts no inherited sign.
constexpr double kThin = 0x1p-20;

// Half-spaces of the feasible set that bound the functions of a box, at most.
constexpr int kMostHalfSpaces = 8;

double least(Vec a) {
  double found = a[0];
  for (int lane = 1; lane < kLanes; ++lane) found = std::fmin(found, a[lane]);
  return found;
}

// The cut, if there is a cutoff, the limits, and the half-spaces of the feasible set.
HalfSpaces half_spaces(const Model& model, Work& w, double cutoff, Vec constant) {
  const int d = model.inputs;
  HalfSpaces halves{w.half_spaces, 0, model.unit, w.moved_by, w.tied_by, w.way};
  auto add = [&](auto slope, Vec s, Vec size, bool always) {
    Vec* scaled = w.scaled + std::size_t(halves.count) * d;
    Vec* inverse = w.inverse + std::size_t(halves.count) * d;
    HalfSpace half{scaled, inverse, s, Vec{}};
    for (int p = 0; p < d; ++p) {
      const Vec a = slope(p);
      scaled[p] = a * w.radius[p];
      inverse[p] = keep(scaled[p] != 0.0, -1.0 / scaled[p]);
      inverse[p] = keep(vabs(inverse[p]) < kLargest, inverse[p]);
      half.s += a * w.centre[p];
      half.size += vabs(scaled[p]);
      size += vabs(a) * model.reach[p];
    }
    half.s = vmin(half.s + model.unit * size, splat(kLargest));  // no cut yet: infinite
    const bool cuts = any(half.s < half.size);  // else all of the box is in it
    half.size += vabs(half.s);
    if (cuts || always || halves.count == 0) w.half_spaces[halves.count++] = half;
  };
  if (std::isfinite(cutoff))
    add([&](int p) { return w.cut[p]; }, constant - cutoff,
        vabs(constant) + std::fabs(cutoff), true);
  for (int j = 0; j < model.limits(); ++j)
    add([&](int p) { return w.limit_slopes[j * d + p]; }, w.limit_constants[j],
        vabs(w.limit_constants[j]), true);
  // Of many half-spaces those that cut most: any of them give a bound.
  double steepest = kInfinity;
  if (model.set.half_spaces() > kMostHalfSpaces) {
    for (int k = 0; k < model.set.half_spaces(); ++k) {
      const double* slopes = model.set.slopes.data() + std::size_t(k) * d;
      Vec s = splat(-model.set.sides[k]), size = Vec{};
      for (int p = 0; p < d; ++p) {
        s += slopes[p] * w.centre[p];
        size += vabs(slopes[p] * w.radius[p]);
      }
      s = pick(size > 0.0, s / size, splat(1.0));  // 1: all of the box is in it
      w.depths[k] = w.ranked[k] = least(s);
    }
    std::nth_element(w.ranked, w.ranked + kMostHalfSpaces - 1,
                     w.ranked + model.set.half_spaces());
    steepest = w.ranked[kMostHalfSpaces - 1];
  }
  for (int k = 0; k < model.set.half_spaces(); ++k) {
    if (halves.count > kMostHalfSpaces + model.limits()) break;
    if (steepest < kInfinity && w.depths[k] > steepest) continue;
    const double* slopes = model.set.slopes.data() + std::size_t(k) * d;
    const double side = model.set.sides[k];
    add([&](int p) { return splat(slopes[p]); }, splat(-side), splat(std::fabs(side)), false);
  }
  return halves;
}

// Clips boxes to a region around data; true where fewer rows are within reach than it
// takes. A point lies in `count` of their boxes, so it is at or above that many of the
// lower ends, and below the upper ones.
Mask clip_near(const Near& near, int d, Work& w) {
  const int count = near.count;
  for (int i = 0; i < count * d; ++i) {
    w.lowest[i] = splat(kInfinity);
    w.highest[i] = splat(-kInfinity);
  }
  Vec met = Vec{};
  for (int r = 0; r < near.rows; ++r) {
    const double* low = near.lower.data() + std::size_t(r) * d;
    const double* high = near.upper.data() + std::size_t(r) * d;
    Mask alive = all();
    for (int p = 0; p < d; ++p) alive &= (low[p] <= w.upper[p]) & (high[p] >= w.lower[p]);
    if (!any(alive)) continue;
    met += keep(alive, splat(1.0));
    for (int p = 0; p < d; ++p) {
      Vec lower = pick(alive, splat(low[p]), splat(kInfinity));
      Vec upper = pick(alive, splat(high[p]), splat(-kInfinity));
      for (int i = p * count; i < (p + 1) * count; ++i) {  // in order, the last falls out
        const Vec smaller = vmin(w.lowest[i], lower), larger = vmax(w.highest[i], upper);
        lower = vmax(w.lowest[i], lower), upper = vmin(w.highest[i], upper);
        w.lowest[i] = smaller, w.highest[i] = larger;
      }
    }
  }
  Mask empty = met < double(count);
  for (int p = 0; p < d; ++p) {
    const int last = p * count + count - 1;
    const Vec low = vmax(w.lower[p], w.lowest[last]), high = vmin(w.upper[p], w.highest[last]);
    empty |= low > high;
    w.form[p] = low, w.best[p] = high;
  }
  for (int p = 0; p < d; ++p) {
    w.lower[p] = pick(empty, w.lower[p], w.form[p]);
    w.upper[p] = pick(empty, w.upper[p], w.best[p]);
  }
  return empty;
}

// Moves the ends of boxes to values that inputs may take; true where there is none.
Mask round_inwards(const Set& set, int d, Vec* lower, Vec* upper) {
  Mask empty = none();
  for (int p = 0; p < d; ++p) {
    if (!set.discrete(p)) continue;
    Vec low, high;
    for (int lane = 0; lane < kLanes; ++lane) {
      low[lane] = set.up(p, lower[p][lane]);
      high[lane] = set.down(p, upper[p][lane]);
    }
    const Mask missed = low > high;
    empty |= missed;
    lower[p] = pick(missed, lower[p], low);
    upper[p] = pick(missed, upper[p], high);
  }
  return empty;
}

struct Functions;

// A batch of boxes on its way through the steps.
template <class Layers, class Sum>
struct Batch {
  static constexpr bool kSmooth = !std::is_same_v<Layers, Bounder>;
  static constexpr bool kSeveral = std::is_same_v<Sum, Functions>;
  const Model& model;
  const Settings& settings;
  const BoxLayout& layout;
  double cutoff;
  double* const* nodes;
  int count;
  Work& w;
  int d = model.inputs;
  bool cutting = std::isfinite(cutoff), discrete = model.set.any_discrete();
  Vec constant = Vec{}, inherited = Vec{};
  Mask used = none(), first = none(), closed = none(), infeasible = none();
  Mask leaning = none(), crowded = none();
  Vec best = Vec{}, top = splat(-kInfinity), old_top = splat(kInfinity);
  Past pasts[kLanes] = {};
  const std::uint8_t* states[kLanes] = {};
  HalfSpaces halves = {};

  // Up to the neurons.
  [[gnu::noinline]] void open_boxes() {
    for (int lane = 0; lane < kLanes; ++lane) {
      double* node = nodes[lane < count ? lane : 0];
      used[lane] = lane < count ? -1 : 0;
      inherited[lane] = *layout.bound(node);
      constant[lane] = *layout.constant(node);
      for (int p = 0; p < d; ++p) {
        w.lower[p][lane] = layout.lower(node)[p];
        w.upper[p][lane] = layout.upper(node)[p];
        w.cut[p][lane] = layout.cut(node)[p];
      }
      if constexpr (kSeveral)
        for (int j = 0; j < model.limits(); ++j) {
          w.limit_constants[j][lane] = *layout.constant(node, 1 + j);
          for (int p = 0; p < d; ++p)
            w.limit_slopes[j * d + p][lane] = layout.cut(node, 1 + j)[p];
        }
      states[lane] = layout.states(node);
      pasts[lane] = Past::of(*layout.past(node));
      first[lane] = pasts[lane].again ? 0 : -1;
    }

    // 1. Clip by the inherited cut and by the half-spaces of the feasible set.
    closed = ~used;
    // Where a cut is at work, what is left out is below the cutoff, not below the bound.
    if (cutting) leaning = constant < kInfinity;
    best = inherited;
    if (cutting) {
      closed |= clip(w.cut, constant, cutoff, model.reach.data(), model.unit, d, w.lower,
                     w.upper, old_top);
      best = vmin(best, old_top);
    }
    if constexpr (kSeveral)
      for (int j = 0; j < model.limits(); ++j) {
        Vec largest;
        infeasible |= clip(w.limit_slopes + j * d, w.limit_constants[j], 0.0,
                           model.reach.data(), model.unit, d, w.lower, w.upper, largest);
      }
    for (int k = 0; k < model.set.half_spaces(); ++k) {
      const double* slopes = model.set.slopes.data() + std::size_t(k) * d;
      for (int p = 0; p < d; ++p) w.slopes_of_set[p] = splat(slopes[p]);
      Vec largest;
      infeasible |= clip(w.slopes_of_set, Vec{}, model.set.sides[k], model.reach.data(),
                         model.unit, d, w.lower, w.upper, largest);
    }
    for (const Near& near : model.set.near) infeasible |= clip_near(near, d, w);
    if (discrete) infeasible |= round_inwards(model.set, d, w.lower, w.upper);
    Mask thin = all();
    for (int p = 0; p < d; ++p) {
      w.centre[p] = 0.5 * (w.lower[p] + w.upper[p]);
      w.radius[p] = 0.5 * (w.upper[p] - w.lower[p]) * (1.0 + 1e-15);
      const double most = kThin * (model.set.upper[p] - model.set.lower[p]);
      thin &= w.upper[p] - w.lower[p] <= most;
    }
    halves = half_spaces(model, w, cutoff, constant);
    if (model.set.half_spaces()) infeasible |= empty(halves, d, w.others, w.multipliers);
    closed |= infeasible;

    Vec open = Vec{};
    for (int n = 0; n < layout.neurons; ++n) {
      Bytes bytes;
      for (int lane = 0; lane < kLanes; ++lane) bytes[lane] = states[lane][n];
      Vec state = __builtin_convertvector(bytes, Vec);
      state = pick(thin & (state >= double(kOn)), splat(kFresh), state);
      w.unstable[n] = state < double(kOn);
      w.on[n] = state == double(kOn);
      w.alpha[n] = pick(state <= double(kSlopeMax), state * (1.0 / kSlopeMax), splat(-1.0));
      if (!model.only_below[n]) open += keep(w.unstable[n], splat(1.0));
    }
    // Without slope steps the skipped rows' slopes would never improve.
    crowded = first & (open > kCrowdedShare * double(model.neurons));
    if (settings.max_steps == 0) crowded = none();
  }

  [[gnu::noinline]] void bound_neurons() {
    // 2. Bounds of the neurons.
    Layers bounder{model, settings, w, halves, d};
    if constexpr (kSmooth) {
      bounder.all_layers();
    } else {
      for (std::size_t m = 0; m < model.stacks.size(); ++m) {
        const Stack& stack = model.stacks[m];
        bounder.index = int(m);
        const int hidden = int(stack.layers.size()) - 1;
        if (hidden == 0) continue;
        w.packed_at[0] = w.packed_at[1] = 0;
        bounder.first_layer(stack);
        const FirstLayer f = bounder.first();
        for (int k = 1; k < hidden; ++k) bounder.layer(stack, f, k, crowded);
      }
      inherit_slopes();
    }
  }

  // Slopes below ReLU as the parents left them.
  void inherit_slopes() {
    for (int n = 0; n < model.neurons; ++n) {
      w.alpha[n] = pick(w.alpha[n] < 0.0, w.under[n], w.alpha[n]);
      w.alpha[n] = pick(w.unstable[n], w.alpha[n], w.slope[n]);
    }
  }

  [[gnu::noinline]] void bound_objective(Outcome* outcomes, const Trace* trace) {
    // 3. Majorant and slope steps.
    const double measure = std::fmax(std::fabs(cutoff), model.spread);
    Layers bounder{model, settings, w, halves, d};
    Sum majorant{model, w, d};
    if constexpr (kSeveral) majorant.first = cutting ? 1 : 0;
    Vec best_constant = Vec{}, least = splat(kInfinity), margin = Vec{};
    Vec c, base, error, value;
    auto keep_best = [&](Mask better) {
      least = pick(better, value, least);
      margin = pick(better, error, margin);
      best_constant = pick(better, c, best_constant);
      for (int p = 0; p < d; ++p) w.best[p] = pick(better, w.form[p], w.best[p]);
    };
    Mask go = ~closed;
    for (int step = 0;; ++step) {
      c = majorant.form(bounder, base, error);
      value = c + support(w.form, 1, d, halves, w.multipliers, 1);
      keep_best((value < least) & (step == 0 ? all() : go));
      argument(w.form, d, halves, w.multipliers, w.point);
      go &= ~(least + margin <= cutoff);
      Vec limit = step_limit(least, cutoff, measure, settings.max_steps);
      if constexpr (kSeveral) {
        majorant.note(w.point);
        infeasible |= majorant.missed;
        go &= ~infeasible;
        for (int j = 0; j < model.limits(); ++j)
          limit = vmax(limit, step_limit(w.over[j], 0.0, model.functions[1 + j].spread,
                                         settings.max_steps));
      }
      go &= splat(step) < limit;
      if constexpr (kSmooth) break;
      else {
        if (!any(go)) break;
        if constexpr (kSeveral) majorant.share_lagrangian();
        majorant.walk(bounder, w.point, false, 0.5 / (step + 1), go);
      }
    }
    Vec promised = c - error;  // at the point, if all signs hold there: less all errors
    for (int p = 0; p < d; ++p) promised += w.form[p] * w.point[p];
    if constexpr (!kSmooth)
      if (settings.output_lines && any(~closed & ~(least + margin <= cutoff))) {
        if constexpr (kSeveral) majorant.share_objective();
        value = majorant.anchor(bounder, base, c, value);
        keep_best(value < least);
      }
    if constexpr (kSeveral) closed |= infeasible;
    best = pick(infeasible, splat(-kInfinity), vmin(least + margin, best));
    closed |= best <= cutoff;
    Vec reached;
    if constexpr (kSeveral) reached = majorant.merits();
    else if constexpr (kSmooth) reached = majorant.values(w.point);
    else reached = majorant.walk(bounder, w.point, true, 0.0, none());

    // 4. The new cut, in original coordinates, and the clip by it. The children keep the
    // old cut where it is lower: signs of neurons were decided by it, and where those do
    // not hold it alone closes a node.
    Vec offset = best_constant + margin, weight = vabs(best_constant), share = splat(1.0);
    for (int p = 0; p < d; ++p) {
      w.cut[p] = keep(w.radius[p] > 0.0, w.best[p] / w.radius[p]);
      w.cut[p] = keep(vabs(w.cut[p]) < kLargest, w.cut[p]);
      offset -= w.cut[p] * w.centre[p];
      weight += vabs(w.cut[p]) * model.reach[p];
      w.form[p] = w.upper[p] - w.lower[p];
    }
    offset += model.unit * weight;
    if (cutting) {
      const Mask none_left = clip(w.cut, offset, cutoff, model.reach.data(), model.unit, d,
                                  w.lower, w.upper, top);
      closed |= none_left;
      best = pick(none_left, vmin(best, top), best);
      if (discrete) {  // what the cut leaves may hold no value that inputs may take
        const Mask missed = round_inwards(model.set, d, w.lower, w.upper) & ~none_left;
        closed |= missed;
        best = pick(missed, vmin(best, splat(cutoff)), best);
      }
      for (int p = 0; p < d; ++p) {
        const Vec width = w.upper[p] - w.lower[p];
        share *= pick(w.form[p] > 0.0, width / w.form[p], splat(1.0));
        leaning |= (width < w.form[p]) & ~closed;
      }
    }

    // 5. Where to branch.
    promised -= majorant.scores();
    Mask wrong = none();
    if constexpr (kSeveral) wrong = majorant.fell_short();
    for (int n = 0; n < layout.neurons; ++n)
      w.alpha[n] = pick(w.unstable[n], slope_byte(w.alpha[n]),
                        pick(w.on[n], splat(kOn), splat(kOff)));
    for (int lane = 0; lane < count; ++lane) {
      double* node = nodes[lane];
      Outcome& outcome = outcomes[lane];
      if (best[lane] < *layout.bound(node)) *layout.bound(node) = best[lane];
      const bool renew = !(old_top[lane] < top[lane]);
      if (renew) *layout.constant(node) = offset[lane];
      for (int p = 0; p < d; ++p) {
        if (renew) layout.cut(node)[p] = w.cut[p][lane];
        layout.lower(node)[p] = w.lower[p][lane];
        layout.upper(node)[p] = w.upper[p][lane];
        outcome.point[p] = w.centre[p][lane] + w.radius[p][lane] * w.point[p][lane];
      }
      if constexpr (kSeveral) majorant.inherit(layout, node, lane);
      outcome.value = reached[lane];
      std::uint8_t* mine = layout.states(node);
      for (int n = 0; n < layout.neurons; ++n) mine[n] = std::uint8_t(w.alpha[n][lane]);
      outcome.fate = Fate::closed;
      if (leaning[lane]) outcome.dropped = cutoff;
      if (trace && trace->lower) {
        for (int n = 0; n < model.neurons; ++n) {
          trace->lower[std::size_t(lane) * model.neurons + n] = w.low[n][lane];
          trace->upper[std::size_t(lane) * model.neurons + n] = w.high[n][lane];
        }
        for (int p = 0; p < d; ++p) trace->scores[lane * d + p] = w.score[p][lane];
      }
      if (closed[lane]) {
        outcome.dropped = std::fmax(outcome.dropped, *layout.bound(node));
        continue;
      }
      // Where all signs hold the objective is at most the errors below the majorant. If it
      // falls short of that, a sign decided under an older cut does not hold here: the
      // children decide all of them anew.
      if constexpr (kSeveral) {
        outcome.doubted = wrong[lane];
        if (outcome.doubted) std::memset(mine, kFresh, model.neurons);
      } else if (!kSmooth && promised[lane] > cutoff) {
        outcome.value = evaluate(model, outcome.point, w.forward);
        outcome.doubted = outcome.value < promised[lane];
        if (outcome.doubted) std::memset(mine, kFresh, model.neurons);
      }
      // Splitting is of little use where the rest is rounding.
      const bool limited = best[lane] <= cutoff + kNoise * model.noise;
      Past past = pasts[lane];
      const bool tired = limited && past.generations >= kRoundingGenerations;
      if (!limited) past.generations = 0;
      double most = -1.0;
      outcome.fate = Fate::stuck;
      for (int p = 0; p < d; ++p) {
        const double low = w.lower[p][lane], high = w.upper[p][lane];
        const double middle = 0.5 * (low + high);
        if (!(low < middle && middle < high)) continue;
        double score = w.score[p][lane];
        // A score that overflowed must not choose the same input for ever.
        if (std::isnan(score)) score = (high - low) / (model.set.upper[p] - model.set.lower[p]);
        if (score > most || outcome.place < 0) {
          most = score;
          outcome.place = p;
          outcome.middle = model.set.down(p, middle);
          outcome.fate = Fate::split;
        }
      }
      const bool shrunk = share[lane] < settings.again;
      if (first[lane] && shrunk) outcome.fate = Fate::again;
      else if (tired) outcome.fate = Fate::stuck;
      // Too thin to split: once more, with every row bounded, or on what a clip has left.
      else if ((first[lane] || shrunk) && outcome.fate == Fate::stuck)
        outcome.fate = Fate::again;
      past.again = outcome.fate == Fate::again;
      // Its point may be outside of a convex region: half-spaces come first, then it is bounded
      // for the last time.
      outcome.waits = past.again && outcome.place < 0 && model.set.outer;
      outcome.wanted = outcome.wanted || outcome.waits;
      if (limited && !past.again) ++past.generations;
      *layout.past(node) = past.packed();
    }
  }
};

template <class Layers, class Sum>
double bound(const Model& model, const Settings& settings, const BoxLayout& layout,
             double cutoff, double* const* nodes, int count, Outcome* outcomes,
             void* scratch, const Trace* trace) {
  Arena arena{aligned(scratch)};
  Work w(model, arena);
  Batch<Layers, Sum> batch{model, settings, layout, cutoff, nodes, count, w};
  batch.open_boxes();
  batch.bound_neurons();
  batch.bound_objective(outcomes, trace);
  return 2.0 * kLanes * w.products;
}
