// Bounds a batch of nodes, one per lane, and solves the programs of nodes of signs.
// Compiled once per instruction set; everything but the table at the end has internal
// linkage. The specification is src/ennopt/engine/node.py.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "model.hpp"

namespace ennopt {
namespace {

#include "simd.hpp"
#include "gemm.hpp"
#include "concretise.hpp"
#include "lines.hpp"
#include "workspace.hpp"
#include "relaxation.hpp"
#include "majorant.hpp"
#include "duality.hpp"
#include "program.hpp"

char* aligned(void* scratch) {
  return reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(scratch) + 63) &
                                 ~std::uintptr_t(63));
}

std::size_t scratch_bytes(const Model& model) {
  Arena arena{nullptr};
  Work work(model, arena);
  return arena.used + 64;
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
constexpr double kRoundingGenerations = 8.0;

// A box whose sides are all below this share of the domain's trusts no inherited sign.
constexpr double kThin = 0x1p-20;

// The cut, if there is a cutoff, and the half-spaces of the feasible set.
HalfSpaces half_spaces(const Model& model, Work& w, double cutoff, Vec constant) {
  const int d = model.inputs;
  HalfSpaces halves{w.half_spaces, 0, model.unit, w.moved_by, w.tied_by, w.way};
  auto add = [&](auto slope, Vec s, Vec size) {
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
    half.size += vabs(half.s);
    w.half_spaces[halves.count++] = half;
  };
  if (std::isfinite(cutoff))
    add([&](int p) { return w.cut[p]; }, constant - cutoff,
        vabs(constant) + std::fabs(cutoff));
  for (int k = 0; k < model.set.half_spaces(); ++k) {
    const double* slopes = model.set.slopes.data() + std::size_t(k) * d;
    const double side = model.set.sides[k];
    add([&](int p) { return splat(slopes[p]); }, splat(-side), splat(std::fabs(side)));
  }
  return halves;
}

double bound(const Model& model, const Settings& settings, const BoxLayout& layout,
             double cutoff, double* const* nodes, int count, Outcome* outcomes,
             void* scratch, const Trace* trace) {
  Arena arena{aligned(scratch)};
  Work w(model, arena);
  const int d = model.inputs;
  Vec constant = Vec{}, inherited = Vec{};
  Mask used = none();
  Vec flag = Vec{};
  const std::uint8_t* states[kLanes];
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
    states[lane] = layout.states(node);
    flag[lane] = *layout.flag(node);
  }

  // 1. Clip by the inherited cut and by the half-spaces of the feasible set.
  const bool cutting = std::isfinite(cutoff);
  Mask closed = ~used, infeasible = none();
  // Where a cut is at work, what is left out is below the cutoff, not below the bound.
  Mask leaning = none();
  if (cutting) leaning = constant < kInfinity;
  Vec best = inherited, top = splat(-kInfinity), old_top = splat(kInfinity);
  if (cutting) {
    closed |= clip(w.cut, constant, cutoff, model.reach.data(), model.unit, d, w.lower,
                   w.upper, old_top);
    best = vmin(best, old_top);
  }
  for (int k = 0; k < model.set.half_spaces(); ++k) {
    const double* slopes = model.set.slopes.data() + std::size_t(k) * d;
    for (int p = 0; p < d; ++p) w.slopes_of_set[p] = splat(slopes[p]);
    Vec largest;
    infeasible |= clip(w.slopes_of_set, Vec{}, model.set.sides[k], model.reach.data(),
                       model.unit, d, w.lower, w.upper, largest);
  }
  Mask thin = all();
  for (int p = 0; p < d; ++p) {
    w.centre[p] = 0.5 * (w.lower[p] + w.upper[p]);
    w.radius[p] = 0.5 * (w.upper[p] - w.lower[p]) * (1.0 + 1e-15);
    const double most = kThin * (model.set.upper[p] - model.set.lower[p]);
    thin &= w.upper[p] - w.lower[p] <= most;
  }
  const HalfSpaces halves = half_spaces(model, w, cutoff, constant);
  if (model.set.half_spaces()) infeasible |= empty(halves, d, w.others, w.multipliers);
  closed |= infeasible;

  Vec open = Vec{};
  for (int n = 0; n < model.neurons; ++n) {
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
  Mask crowded = (flag <= 0.0) & (open > kCrowdedShare * double(model.neurons));
  if (settings.max_steps == 0) crowded = none();

  // 2. Bounds of the neurons.
  Bounder bounder{model, settings, w, halves, d};
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
  for (int n = 0; n < model.neurons; ++n) {
    w.alpha[n] = pick(w.alpha[n] < 0.0, w.under[n], w.alpha[n]);
    w.alpha[n] = pick(w.unstable[n], w.alpha[n], w.slope[n]);
  }

  // 3. Majorant and slope steps.
  const double measure = std::fmax(std::fabs(cutoff), model.spread);
  Majorant majorant{model, w, d};
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
    go &= splat(step) < step_limit(least, cutoff, measure, settings.max_steps);
    if (!any(go)) break;
    majorant.walk(bounder, w.point, false, 0.5 / (step + 1), go);
  }
  Vec promised = c - error;  // at the point, if all signs hold there: less all errors
  for (int p = 0; p < d; ++p) promised += w.form[p] * w.point[p];
  if (settings.output_lines && any(~closed & ~(least + margin <= cutoff))) {
    value = majorant.anchor(bounder, base, c, value);
    keep_best(value < least);
  }
  best = pick(infeasible, splat(-kInfinity), vmin(least + margin, best));
  closed |= best <= cutoff;
  const Vec reached = majorant.walk(bounder, w.point, true, 0.0, none());

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
    for (int p = 0; p < d; ++p) {
      const Vec width = w.upper[p] - w.lower[p];
      share *= pick(w.form[p] > 0.0, width / w.form[p], splat(1.0));
      leaning |= (width < w.form[p]) & ~closed;
    }
  }

  // 5. Where to branch.
  promised -= majorant.scores();
  for (int n = 0; n < model.neurons; ++n)
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
    outcome.value = reached[lane];
    std::uint8_t* mine = layout.states(node);
    for (int n = 0; n < model.neurons; ++n) mine[n] = std::uint8_t(w.alpha[n][lane]);
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
    if (promised[lane] > cutoff) {
      outcome.value = evaluate(model, outcome.point, w.forward);
      outcome.doubted = outcome.value < promised[lane];
      if (outcome.doubted) std::memset(mine, kFresh, model.neurons);
    }
    const bool first = flag[lane] <= 0.0;
    if (share[lane] < settings.again && first) {
      *layout.flag(node) = 1.0;
      outcome.fate = Fate::again;
      continue;
    }
    double most = -1.0;
    outcome.fate = Fate::stuck;
    for (int p = 0; p < d; ++p) {
      const double low = w.lower[p][lane], high = w.upper[p][lane];
      const double middle = 0.5 * (low + high), score = w.score[p][lane];
      if (!(low < middle && middle < high)) continue;
      if (score > most || outcome.place < 0) {
        most = score;
        outcome.place = p;
        outcome.middle = middle;
        outcome.fate = Fate::split;
      }
    }
    // Splitting is of little use where the rest is rounding.
    const bool limited = best[lane] <= cutoff + kNoise * model.noise;
    const bool tired = limited && flag[lane] <= -kRoundingGenerations;
    if (tired) outcome.fate = Fate::stuck;
    // Too thin to split: once more, with every row bounded.
    else if (outcome.fate == Fate::stuck && first) outcome.fate = Fate::again;
    *layout.flag(node) = outcome.fate == Fate::again ? 1.0
                         : limited                   ? std::fmin(flag[lane], 0.0) - 1.0
                                                     : 0.0;
  }
  return 2.0 * kLanes * w.products;
}

std::size_t program_bytes(const Model& model) {
  Arena arena{nullptr};
  Program program(model, Ranges{}, arena);
  return arena.used + 64;
}

void program(const Model& model, const Ranges& ranges, const SignLayout& layout,
             double cutoff, double* node, Outcome& outcome, void* scratch) {
  Arena arena{aligned(scratch)};
  Program program(model, ranges, arena);
  double &bound = *layout.bound(node), &flag = *layout.flag(node);
  bound = std::fmin(bound, program.solve(layout.states(node), cutoff));
  const int neuron = program.costliest(flag <= 0.0);
  const double pivots = program.pivots - std::fmin(flag, 0.0);
  for (int p = 0; p < model.inputs; ++p)
    outcome.point[p] = std::fmin(std::fmax(program.x[p], program.lower[p]), program.upper[p]);
  outcome.value = evaluate(model, outcome.point, program.slots);
  if (bound <= cutoff) {
    outcome.fate = Fate::closed;
    outcome.dropped = bound;
  } else if (!program.done && flag <= 0.0 && pivots < program.most_pivots()) {
    outcome.fate = Fate::again;
    outcome.whole = false;
    flag = -pivots;
  } else if (neuron >= 0) {
    outcome.fate = Fate::split;
    outcome.place = neuron;
    flag = 0.0;
  } else {
    // If all went well the point is the node's maximum and, known by now, closes it.
    outcome.fate = flag <= 0.0 ? Fate::again : Fate::stuck;
    flag = 1.0;
  }
}

}  // namespace

extern const BoundTable ENNOPT_TABLE;
const BoundTable ENNOPT_TABLE{ENNOPT_NAME, kLanes, scratch_bytes, bound, program_bytes, program};

}  // namespace ennopt
