// Bounds a batch of nodes, one per lane, and solves the programs of nodes of signs.
// Compiled once per instruction set; everything but the table at the end has internal
// linkage. The specification is src/ennopt/engine/node.py.
#include <algorithm>
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
#include "pool.hpp"

namespace ennopt {

// Bounds boxes of networks with other activations than ReLU: smooth.cpp.
double ENNOPT_SMOOTH(const Model& model, const Settings& settings, const BoxLayout& layout,
                     double cutoff, double* const* nodes, int count, Outcome* outcomes,
                     void* scratch, const Trace* trace);

// Bounds boxes for several functions of the outputs: functions.cpp.
double ENNOPT_FUNCTIONS(const Model& model, const Settings& settings, const BoxLayout& layout,
                        double cutoff, double* const* nodes, int count, Outcome* outcomes,
                        void* scratch, const Trace* trace);

namespace {

#include "simd.hpp"
#include "gemm.hpp"
#include "concretise.hpp"
#include "lines.hpp"
#include "workspace.hpp"
#include "relaxation.hpp"
#include "majorant.hpp"
#include "duality.hpp"
#include "passes.hpp"
#include "program.hpp"
#include "node.hpp"
#include "single.hpp"

std::size_t scratch_bytes(const Model& model) {
  Arena arena{nullptr};
  Work one(model, arena), two(model, arena);
  SingleArrays single(model, arena);
  return arena.used + 64;
}

// The part of a set where some inputs are between the ends of a node, and neurons on it: by
// intervals, from layer to layer, between what is known of them on the whole set.
struct Part {
  double *lower, *upper, *low, *high, *lowest, *highest, *counts;

  Part(const Model& model, const SignLayout& layout, Arena& arena) {
    const std::size_t items = std::size_t(layout.neurons) + layout.rows;
    lower = arena.take<double>(layout.inputs), upper = arena.take<double>(layout.inputs);
    low = arena.take<double>(items), high = arena.take<double>(items);
    std::size_t most = 0;
    for (const Near& near : model.set.near) most = std::max(most, std::size_t(near.count));
    lowest = arena.take<double>(most * model.inputs);
    highest = arena.take<double>(most * model.inputs);
    counts = arena.take<double>(most ? 4 * std::size_t(model.inputs) : 0);
  }
  Ranges of(const Ranges& whole, const SignLayout& layout, const std::vector<int>& ends,
            double* node) {
    const std::size_t items = std::size_t(layout.neurons) + whole.count;
    std::copy(whole.lower, whole.lower + layout.inputs, lower);
    std::copy(whole.upper, whole.upper + layout.inputs, upper);
    std::copy(whole.low, whole.low + items, low);
    std::copy(whole.high, whole.high + items, high);
    for (int k = 0; k < layout.discrete; ++k) {
      lower[ends[k]] = layout.lower(node)[k];
      upper[ends[k]] = layout.upper(node)[k];
    }
    Ranges box = whole;
    box.lower = lower, box.upper = upper, box.low = low, box.high = high;
    return box;
  }
  // Whether row r of a region is within reach of the box.
  bool reaches(const Near& near, int r, int d) const {
    const double* from = near.lower.data() + std::size_t(r) * d;
    const double* to = near.upper.data() + std::size_t(r) * d;
    for (int p = 0; p < d; ++p)
      if (!(from[p] <= upper[p] && to[p] >= lower[p])) return false;
    return true;
  }
  // Clips the box to a region around data, as clip_near of node.hpp; false if too few rows
  // are within reach.
  bool clip(const Near& near, int d, bool& moved) {
    const int count = near.count;
    for (int i = 0; i < count * d; ++i) lowest[i] = kInfinity, highest[i] = -kInfinity;
    int met = 0;
    for (int r = 0; r < near.rows; ++r) {
      if (!reaches(near, r, d)) continue;
      ++met;
      for (int p = 0; p < d; ++p) {
        double from = near.lower[std::size_t(r) * d + p], to = near.upper[std::size_t(r) * d + p];
        for (int i = p * count; i < (p + 1) * count; ++i) {  // in order, the last falls out
          if (from < lowest[i]) std::swap(from, lowest[i]);
          if (to > highest[i]) std::swap(to, highest[i]);
        }
      }
    }
    if (met < count) return false;
    for (int p = 0; p < d; ++p) {
      const double from = lowest[p * count + count - 1], to = highest[p * count + count - 1];
      moved = moved || from > lower[p] || to < upper[p];
      lower[p] = std::fmax(lower[p], from), upper[p] = std::fmin(upper[p], to);
      if (lower[p] > upper[p]) return false;
    }
    return true;
  }
  // Clips the ends of a node to all regions, and moves them to values that inputs may take.
  bool clip(const Model& model, const SignLayout& layout, const std::vector<int>& ends,
            double* node) {
    const Set& set = model.set;
    // Rows that are within reach of the box may not be any more once it is clipped.
    for (bool moved = true; moved;) {
      moved = false;
      for (const Near& near : set.near)
        if (!clip(near, model.inputs, moved)) return false;
      for (int p : set.places) {
        lower[p] = set.up(p, lower[p]), upper[p] = set.down(p, upper[p]);
        if (!(lower[p] <= upper[p])) return false;
      }
    }
    for (int k = 0; k < layout.discrete; ++k) {
      layout.lower(node)[k] = lower[ends[k]];
      layout.upper(node)[k] = upper[ends[k]];
    }
    return true;
  }
  // False if a neuron cannot have the sign that it is held at.
  bool narrow(const Model& model, const std::uint8_t* states, int inputs) {
    for (const Stack& stack : model.stacks) {
      for (std::size_t s = 0; s + 1 < stack.layers.size(); ++s) {
        const Layer& layer = stack.layers[s];
        const int before = s ? stack.layers[s - 1].first : 0;
        for (int r = 0; r < layer.rows; ++r) {
          const double* weights = layer.weights.data() + std::size_t(r) * layer.cols;
          double least = layer.bias[r] - layer.error[r], most = layer.bias[r] + layer.error[r];
          for (int c = 0; c < layer.cols; ++c) {
            const double from = s ? std::fmax(low[before + c], 0.0) : lower[c];
            const double to = s ? std::fmax(high[before + c], 0.0) : upper[c];
            least += weights[c] * (weights[c] > 0.0 ? from : to);
            most += weights[c] * (weights[c] > 0.0 ? to : from);
          }
          const int i = layer.first + r, held = states[inputs + i] >> 3;
          const bool free = low[i] < 0.0 && high[i] > 0.0;
          const bool on = free && held == (kO | kU), off = free && held == (kO | kL);
          least = std::fmax(least, low[i]), most = std::fmin(most, high[i]);
          if ((on && most < 0.0) || (off && least > 0.0)) return false;
          if (on) least = std::fmax(least, 0.0);
          if (off) most = std::fmin(most, 0.0);
          // Two proofs of one number may cross by their margins.
          low[i] = std::fmin(least, most), high[i] = std::fmax(least, most);
        }
      }
    }
    return true;
  }
};

// Rounds in which a node learns weightings, and what they must be missed by: a share of what
// its bound is above the cutoff, or of a limit's spread; the same where no neuron is left to
// branch on, and a limit's slack, of which so much may be missed.
constexpr int kLearnRounds = 4, kLeafRounds = 40;
constexpr double kLearnShare = 0.05, kLeafShare = 1e-9, kLimitMissed = 0.1;

// Times that a node waits for half-spaces around a convex region: before it is branched on,
// if it is the root, and where there is nothing to branch on.
constexpr int kRootWaits = 20, kMostWaits = 200;

// What the program of a node needs.
struct Solving {
  Part part;
  Row* rows;
  double* weights;
  Program program;

  Solving(const Model& model, const SignLayout& layout, Arena& arena)
      : part(model, layout, arena), rows(arena.take<Row>(std::size_t(layout.rows) + 1)),
        weights(arena.take<double>(std::size_t(model.outputs) + 1)),
        program(model, layout.inputs, layout.rows, arena) {}
};

std::size_t program_bytes(const Model& model, const SignLayout& layout) {
  Arena arena{nullptr};
  const Solving all(model, layout, arena);
  return arena.used + 64;
}

// The input by which most rows of data within reach of the box miss a point, if it is near
// too few of them, and where: between the point and the first of those rows. -1 if it is near
// enough. One child loses these rows and the other the point, so that branching ends; of
// several inputs the one by which the other child loses many rows, too.
int near_place(const Set& set, const Part& part, int d, const double* x, double& middle) {
  double *under = part.counts, *over = under + d, *before = over + d, *behind = before + d;
  for (const Near& near : set.near) {
    std::fill(under, under + 4 * d, 0.0);
    double *next = part.lowest, *previous = part.highest;  // ends above the point, and below
    std::fill(next, next + d, kInfinity), std::fill(previous, previous + d, -kInfinity);
    int met = 0, best = -1;
    for (int r = 0; r < near.rows; ++r) {
      if (!part.reaches(near, r, d)) continue;
      const double* from = near.lower.data() + std::size_t(r) * d;
      const double* to = near.upper.data() + std::size_t(r) * d;
      bool inside = true;
      for (int p = 0; p < d; ++p) {
        if (x[p] < from[p]) under[p] += 1.0, next[p] = std::fmin(next[p], from[p]);
        if (x[p] > to[p]) over[p] += 1.0, previous[p] = std::fmax(previous[p], to[p]);
        inside = inside && from[p] <= x[p] && x[p] <= to[p];
      }
      met += inside;
    }
    if (met >= near.count) continue;
    for (int r = 0; r < near.rows; ++r) {
      if (!part.reaches(near, r, d)) continue;
      const double* from = near.lower.data() + std::size_t(r) * d;
      const double* to = near.upper.data() + std::size_t(r) * d;
      for (int p = 0; p < d; ++p) before[p] += to[p] < next[p], behind[p] += from[p] > previous[p];
    }
    double most = 0.0;
    for (int p = 0; p < d; ++p) {
      const double one = under[p] > 0.0 ? under[p] * (1.0 + before[p]) : 0.0;
      const double two = over[p] > 0.0 ? over[p] * (1.0 + behind[p]) : 0.0;
      if (one > most)
        most = one, best = p, middle = set.down(p, std::nextafter(next[p], -kInfinity));
      if (two > most) most = two, best = p, middle = set.down(p, previous[p]);
    }
    return best;
  }
  return -1;
}

// The discrete input that is furthest from its values in x, as a share of the distance of
// its neighbours; or, if `anywhere` and none is, the one with the widest range. -1 if there
// is none. `middle` is the value below x, or below the middle of the range.
int discrete_place(const Set& set, const Ranges& box, const double* x, bool anywhere,
                   double& middle) {
  int best = -1;
  double most = kLean;
  for (int p : set.places) {
    const double below = set.down(p, x[p]), above = set.up(p, x[p]);
    const double share = std::fmin(x[p] - below, above - x[p]) / (above - below);
    if (share > most) most = share, best = p, middle = below;
  }
  most = 0.0;
  if (best >= 0 || !anywhere) return best;
  for (int p : set.places) {
    const double width = box.upper[p] - box.lower[p];
    const double share = width / (set.upper[p] - set.lower[p]);
    if (width > 0.0 && share > most)
      most = share, best = p, middle = set.down(p, box.lower[p] + 0.5 * width);
  }
  return best;
}

// Teaches a pool the weightings of risks that the program's point misses: by more than a
// share of what the bound is above the cutoff, or of a limit's spread. False if there is
// nothing to learn; `full` if there is no room for it.
bool teach(const Model& model, const Program& program, Pool& pool, double over, double share,
           double* weights, bool& full) {
  bool learned = false;
  auto tell = [&](int function, int risk, double missed, double least) {
    if (!(missed > least && missed < kLargest)) return;
    if (pool.learn_weights(function, risk, weights)) learned = true;
    else full = true;
  };
  for (int function = 0; function <= model.limits(); ++function) {
    const Function& own = model.functions[function];
    if (own.groups.empty()) continue;
    respond(own, program.f, weights);
    if (function > 0) {
      const double slack = own.least - own.relaxed;
      const double reached = Program::dot(weights, program.f, model.outputs);
      tell(function, -1, own.least - kRowEdge * slack - reached,
           std::fmax(kLimitMissed * slack, share * own.spread));
      continue;
    }
    for (int g = 0; g < model.risks(); ++g) {
      double reached = 0.0;
      for (int o : own.groups[g].outputs) reached += weights[o] * program.f[o];
      tell(0, g, program.x[model.inputs + g] - reached,
           share * std::fmin(over, model.spread) + kSingular * model.spread);
    }
  }
  return learned;
}

void program(const Model& model, const Ranges& ranges, const SignLayout& layout,
             const std::vector<int>& ends, Pool* pool, double cutoff, double* node,
             Outcome& outcome, void* scratch) {
  Arena arena{aligned(scratch)};
  Solving own(model, layout, arena);
  Program& program = own.program;
  const Set& set = model.set;
  double &bound = *layout.bound(node), &flag = *layout.flag(node);
  const bool root = bound == kInfinity, last = flag == 1.0;
  Ranges box = ranges;
  if (layout.discrete || pool) {
    box = own.part.of(ranges, layout, ends, node);
    if (layout.discrete && !(own.part.clip(model, layout, ends, node) &&
                             own.part.narrow(model, layout.states(node), layout.inputs))) {
      bound = outcome.dropped = outcome.value = -kInfinity;
      outcome.fate = Fate::closed;
      return;
    }
  }
  auto learned = [&] {  // the rows known by now
    if (!pool) return;
    std::copy(ranges.rows, ranges.rows + ranges.count, own.rows);
    const int first = layout.neurons + ranges.count;
    box.rows = own.rows;
    box.count = ranges.count + pool->copy(own.rows + ranges.count, own.part.high + first);
    std::fill(own.part.low + first, own.part.low + layout.neurons + box.count, 0.0);
  };
  learned();
  double pivots = -std::fmin(flag, 0.0);
  int place = -1;
  bool full = false;
  for (int round = 0;; ++round) {
    program.take(box);
    bound = std::fmin(bound, program.solve(layout.states(node), cutoff));
    pivots += program.pivots;
    if (bound <= cutoff || !program.done) break;
    place = program.costliest(!last);
    // Where all neurons are on ReLU only weightings are left to learn.
    const bool leaf = place < 0;
    if (!pool || !model.several() || round == (leaf ? kLeafRounds : kLearnRounds)) break;
    if (!teach(model, program, *pool, bound - cutoff, leaf ? kLeafShare : kLearnShare,
               own.weights, full))
      break;
    learned();
  }
  for (int k = ranges.count; k < box.count; ++k)
    if (program.lambda[layout.neurons + k] != 0.0) pool->use(k - ranges.count);
  if (outcome.multipliers)  // half-spaces are the first rows
    std::copy(program.lambda, program.lambda + model.neurons + ranges.count,
              outcome.multipliers);
  if (outcome.hidden) std::copy(program.y, program.y + model.neurons, outcome.hidden);
  for (int p = 0; p < model.inputs; ++p)
    outcome.point[p] = std::fmin(std::fmax(program.x[p], box.lower[p]), box.upper[p]);
  // In programs of boxes only discrete inputs have ends: such a box is split instead.
  if (!set.near.empty() && layout.discrete == model.inputs) {
    double middle = 0.0;
    const int p = near_place(set, own.part, model.inputs, outcome.point, middle);
    if (p >= 0) place = model.neurons + p, outcome.middle = middle;
  }
  if (place < 0) {
    place = discrete_place(set, box, outcome.point, last, outcome.middle);
    if (place >= 0) place += model.neurons;
  }
  for (int p : set.places) outcome.point[p] = set.nearest(p, outcome.point[p]);
  outcome.value = evaluate(model, outcome.point, program.slots);
  const double waited = std::fmax(flag - 1.0, 0.0);
  outcome.wanted = set.outer;
  const bool learns = set.outer && pool && pool->awaits_half_spaces();
  if (bound <= cutoff) {
    outcome.fate = Fate::closed;
    outcome.dropped = bound;
  } else if (!program.done && flag <= 0.0 && pivots < program.most_pivots()) {
    outcome.fate = Fate::again;
    outcome.whole = false;
    flag = -pivots;
  } else if (learns && !last && place >= 0 && (root || waited > 0.0) && waited < kRootWaits) {
    outcome.fate = Fate::again;
    outcome.waits = true;
    flag = 2.0 + waited;
  } else if (place >= 0) {
    outcome.fate = Fate::split;
    outcome.place = place;
    flag = 0.0;
  } else if ((learns || full) && !last && waited < kMostWaits) {
    outcome.fate = Fate::again;
    outcome.waits = true;
    flag = 2.0 + waited;
  } else {
    // If all went well the point is the node's maximum and, known by now, closes it.
    outcome.fate = last ? Fate::stuck : Fate::again;
    flag = 1.0;
  }
}

}  // namespace

extern const BoundTable ENNOPT_TABLE;
const BoundTable ENNOPT_TABLE{ENNOPT_NAME, kLanes, scratch_bytes,
                              bound<Bounder, Majorant>, bound_single, ENNOPT_SMOOTH,
                              ENNOPT_FUNCTIONS, program_bytes, program};

}  // namespace ennopt
