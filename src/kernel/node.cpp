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
#include "program.hpp"
#include "node.hpp"

std::size_t scratch_bytes(const Model& model) {
  Arena arena{nullptr};
  Work work(model, arena);
  return arena.used + 64;
}

// The part of a set where discrete inputs are between the ends of a node, and neurons on
// it: by intervals, from layer to layer, between what is known of them on the whole set.
struct Part {
  double *lower, *upper, *low, *high;

  Part(const Model& model, int rows, Arena& arena) {
    const std::size_t items = std::size_t(model.neurons) + rows;
    lower = arena.take<double>(model.inputs), upper = arena.take<double>(model.inputs);
    low = arena.take<double>(items), high = arena.take<double>(items);
  }
  Ranges of(const Model& model, const Ranges& whole, const SignLayout& layout, double* node) {
    const std::size_t items = std::size_t(model.neurons) + whole.count;
    std::copy(whole.lower, whole.lower + model.inputs, lower);
    std::copy(whole.upper, whole.upper + model.inputs, upper);
    std::copy(whole.low, whole.low + items, low);
    std::copy(whole.high, whole.high + items, high);
    for (int k = 0; k < layout.discrete; ++k) {
      lower[model.set.places[k]] = layout.lower(node)[k];
      upper[model.set.places[k]] = layout.upper(node)[k];
    }
    return {lower, upper, low, high, whole.rows, whole.count};
  }
  // False if a neuron cannot have the sign that it is held at.
  bool narrow(const Model& model, const std::uint8_t* states) {
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
          const int i = layer.first + r, held = states[model.inputs + i] >> 3;
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

std::size_t program_bytes(const Model& model) {
  Arena arena{nullptr};
  Ranges all;
  all.count = model.set.half_spaces();
  if (model.set.any_discrete()) Part part(model, all.count, arena);
  Program program(model, all, arena);
  return arena.used + 64;
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

void program(const Model& model, const Ranges& ranges, const SignLayout& layout,
             double cutoff, double* node, Outcome& outcome, void* scratch) {
  Arena arena{aligned(scratch)};
  const Set& set = model.set;
  Ranges box = ranges;
  double &bound = *layout.bound(node), &flag = *layout.flag(node);
  if (layout.discrete) {
    Part part(model, ranges.count, arena);
    box = part.of(model, ranges, layout, node);
    if (!part.narrow(model, layout.states(node))) {
      bound = outcome.dropped = outcome.value = -kInfinity;
      outcome.fate = Fate::closed;
      return;
    }
  }
  Program program(model, box, arena);
  bound = std::fmin(bound, program.solve(layout.states(node), cutoff));
  if (outcome.multipliers) {
    std::copy(program.lambda, program.lambda + model.neurons, outcome.multipliers);
    for (int k = 0; k < box.count; ++k)
      if (box.rows[k] < set.half_spaces())
        outcome.multipliers[model.neurons + box.rows[k]] = program.lambda[model.neurons + k];
  }
  const double pivots = program.pivots - std::fmin(flag, 0.0);
  for (int p = 0; p < model.inputs; ++p)
    outcome.point[p] = std::fmin(std::fmax(program.x[p], box.lower[p]), box.upper[p]);
  int place = program.costliest(flag <= 0.0);
  if (place < 0) {
    place = discrete_place(set, box, outcome.point, flag > 0.0, outcome.middle);
    if (place >= 0) place += model.neurons;
  }
  for (int p : set.places) outcome.point[p] = set.nearest(p, outcome.point[p]);
  outcome.value = evaluate(model, outcome.point, program.slots);
  if (bound <= cutoff) {
    outcome.fate = Fate::closed;
    outcome.dropped = bound;
  } else if (!program.done && flag <= 0.0 && pivots < program.most_pivots()) {
    outcome.fate = Fate::again;
    outcome.whole = false;
    flag = -pivots;
  } else if (place >= 0) {
    outcome.fate = Fate::split;
    outcome.place = place;
    flag = 0.0;
  } else {
    // If all went well the point is the node's maximum and, known by now, closes it.
    outcome.fate = flag <= 0.0 ? Fate::again : Fate::stuck;
    flag = 1.0;
  }
}

}  // namespace

extern const BoundTable ENNOPT_TABLE;
const BoundTable ENNOPT_TABLE{ENNOPT_NAME, kLanes, scratch_bytes,
                              bound<Bounder, Majorant>, ENNOPT_SMOOTH, ENNOPT_FUNCTIONS,
                              program_bytes, program};

}  // namespace ennopt
