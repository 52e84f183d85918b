// Bounds a batch of nodes, one per lane. Compiled once per instruction set; everything
// but the table at the end has internal linkage.
#include <cmath>
#include <cstddef>
#include <cstdint>
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
#include "output.hpp"
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
  Vec open = Vec{};
  for (int n = 0; n < model.neurons; ++n) {
    Bytes bytes;
    for (int lane = 0; lane < kLanes; ++lane) bytes[lane] = states[lane][n];
    const Vec state = __builtin_convertvector(bytes, Vec);
    w.unstable[n] = state < double(kOn);
    w.on[n] = state == double(kOn);
    w.alpha[n] = pick(state <= double(kSlopeMax), state * (1.0 / kSlopeMax), splat(-1.0));
    if (!model.only_below[n]) open += keep(w.unstable[n], splat(1.0));
  }
  // Without slope steps the skipped rows' slopes would never improve.
  Mask crowded = (flag == 0.0) & (10.0 * open > double(model.neurons));
  if (settings.max_steps == 0) crowded = none();

  // 1. Clip by the inherited cut.
  const bool cutting = std::isfinite(cutoff);
  Mask closed = ~used;
  Vec best = inherited;
  Vec old_top = splat(std::numeric_limits<double>::infinity());
  if (cutting) {
    closed |= clip(w.cut, constant, cutoff, model.reach.data(), model.unit, d, w.lower,
                   w.upper, old_top);
    best = vmin(best, old_top);
  }
  Vec size = vabs(constant) + std::fabs(cutting ? cutoff : 0.0);
  Cut cut{w.scaled, w.inverse, constant - (cutting ? cutoff : 0.0), Vec{}, cutting};
  for (int p = 0; p < d; ++p) {
    w.centre[p] = 0.5 * (w.lower[p] + w.upper[p]);
    w.radius[p] = 0.5 * (w.upper[p] - w.lower[p]) * (1.0 + 1e-15);
    w.scaled[p] = w.cut[p] * w.radius[p];
    w.inverse[p] = keep(w.scaled[p] != 0.0, -1.0 / w.scaled[p]);
    w.inverse[p] = keep(vabs(w.inverse[p]) < kLargest, w.inverse[p]);
    cut.s += w.cut[p] * w.centre[p];
    cut.size += vabs(w.scaled[p]);
    size += vabs(w.cut[p]) * model.reach[p];
  }
  cut.s = vmin(cut.s + model.unit * size, splat(kLargest));  // no cut yet: infinite
  cut.size += vabs(cut.s);

  // 2. Bounds of the neurons.
  Bounder bounder{model, settings, w, cut, d};
  for (std::size_t m = 0; m < model.members.size(); ++m) {
    const Member& member = model.members[m];
    bounder.index = int(m);
    const int hidden = int(member.layers.size()) - 1;
    if (hidden == 0) continue;
    w.packed_at[0] = w.packed_at[1] = 0;
    bounder.first_layer(member);
    const FirstLayer f = bounder.first();
    for (int k = 1; k < hidden; ++k) bounder.layer(member, f, k, crowded);
  }
  for (int n = 0; n < model.neurons; ++n) {
    w.alpha[n] = pick(w.alpha[n] < 0.0, w.under[n], w.alpha[n]);
    w.alpha[n] = pick(w.unstable[n], w.alpha[n], w.slope[n]);
  }

  // 3. Majorant and slope steps.
  const double measure = std::fmax(std::fabs(cutoff), model.spread);
  Objective objective{bounder, model, w, d};
  Vec best_constant = Vec{}, least = splat(std::numeric_limits<double>::infinity());
  Vec c, base, multiplier, value;
  Mask go = ~closed;
  for (int step = 0;; ++step) {
    c = objective.majorant(bounder, base);
    value = c + support(w.form, 1, d, cut, model.unit, multiplier);
    const Mask better = (value < least) & (step == 0 ? all() : go);
    least = pick(better, value, least);
    best_constant = pick(better, c, best_constant);
    for (int p = 0; p < d; ++p) w.best[p] = pick(better, w.form[p], w.best[p]);
    argument(w.form, d, cut, multiplier, w.point);
    go &= ~(least + model.margin <= cutoff);
    go &= splat(step) < step_limit(least, cutoff, measure, settings.max_steps);
    if (!any(go)) break;
    objective.walk(bounder, w.point, false, 0.5 / (step + 1), go);
  }
  if (settings.output_lines && any(~closed & ~(least + model.margin <= cutoff))) {
    value = objective.anchor(bounder, base, multiplier, c, value);
    const Mask better = value < least;
    least = pick(better, value, least);
    best_constant = pick(better, c, best_constant);
    for (int p = 0; p < d; ++p) w.best[p] = pick(better, w.form[p], w.best[p]);
  }
  best = vmin(least + model.margin, best);
  closed |= best <= cutoff;
  const Vec reached = objective.walk(bounder, w.point, true, 0.0, none());

  // 4. The new cut, in original coordinates, and the clip by it. The children keep the
  // old cut where it is lower: signs of neurons were decided by it, and where those do
  // not hold it alone closes a node.
  Vec offset = best_constant + model.margin, weight = vabs(best_constant);
  Vec share = splat(1.0), top = splat(-std::numeric_limits<double>::infinity());
  for (int p = 0; p < d; ++p) {
    w.cut[p] = keep(w.radius[p] > 0.0, w.best[p] / w.radius[p]);
    w.cut[p] = keep(vabs(w.cut[p]) < kLargest, w.cut[p]);
    offset -= w.cut[p] * w.centre[p];
    weight += vabs(w.cut[p]) * model.reach[p];
    w.form[p] = w.upper[p] - w.lower[p];
  }
  offset += model.unit * weight;
  if (cutting) {
    closed |= clip(w.cut, offset, cutoff, model.reach.data(), model.unit, d, w.lower,
                   w.upper, top);
    for (int p = 0; p < d; ++p)
      share *= pick(w.form[p] > 0.0, (w.upper[p] - w.lower[p]) / w.form[p], splat(1.0));
  }

  // 5. Where to branch.
  objective.scores();
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
    if (trace && trace->lower) {
      for (int n = 0; n < model.neurons; ++n) {
        trace->lower[std::size_t(lane) * model.neurons + n] = w.low[n][lane];
        trace->upper[std::size_t(lane) * model.neurons + n] = w.high[n][lane];
      }
      for (int p = 0; p < d; ++p) trace->scores[lane * d + p] = w.score[p][lane];
    }
    if (closed[lane]) continue;
    if (share[lane] < settings.again && *layout.flag(node) == 0.0) {
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
    // Too thin to split: once more, with every row bounded.
    const bool first = *layout.flag(node) == 0.0;
    if (outcome.fate == Fate::stuck && first) outcome.fate = Fate::again;
    *layout.flag(node) = outcome.fate == Fate::again ? 1.0 : 0.0;
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
  if (bound <= cutoff) {
    outcome.fate = Fate::closed;
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
