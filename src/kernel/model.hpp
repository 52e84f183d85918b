// The ensemble and a node as plain arrays, shared by all instruction sets.
//
// The objective is the sum of the members; their factors are folded into the last
// layers. Neurons are numbered member by member, layer by layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ennopt {

struct Layer {
  int rows = 0, cols = 0;
  int first = 0;                // number of this layer's first neuron (hidden layers)
  std::vector<double> weights;  // rows x cols, row by row
  std::vector<double> bias;     // rows
  std::vector<double> margin;   // rounding margin of each row's bounds
  std::vector<double> size;     // bound of |row|, rounding included
};

struct Member {
  std::vector<Layer> layers;  // hidden layers, then the output layer (one row)
};

struct Model {
  int inputs = 0, neurons = 0, widest = 0, deepest = 0;
  std::vector<Member> members;
  std::vector<double> reach;  // largest |x_p|
  double margin = 0.0;        // of the objective
  double unit = 0.0;          // relative rounding of a sum over the inputs
  double spread = 0.0;        // of the objective over many points

  // Neurons of a last hidden layer with a factor <= 0 only ever need the line below
  // ReLU, which holds without bounds.
  std::vector<std::uint8_t> only_below;  // neurons
};

struct Settings {
  int max_steps = 30;        // slope steps of a node close to the cutoff
  bool row_slopes = true;    // deep rule 1
  bool vertex_lines = true;  // deep rule 2
  bool output_lines = true;  // deep rule 2 for the objective
  bool branch_neurons = false;  // for many inputs
  double again = 0.8;        // bound again if the clipped volume is below this share
};

// Branching on neurons: one is preferred if its error exceeds this share of the best
// input's score; nodes with held neurons get so many times the slope steps; multipliers
// take this share of a Polyak step, all of it close to the cutoff, whose aim is a little
// below the cutoff.
constexpr double kNeuronShare = 0.01, kHeldSteps = 6.0, kPull = 0.25, kAim = 5e-4;

// A multiple of a held neuron rounds by so many times its margin.
constexpr double kHeldMargins = 2.0;

// Multiples of a cut beyond this are not used: they would overflow.
constexpr double kLargest = 1e300;

// State of a neuron in one byte: unstable with a slope below ReLU, or none chosen yet;
// held on or off by a branch (the constraint h >= 0 or h <= 0 is part of the node); on or
// off on the whole node.
constexpr std::uint8_t kSlopeMax = 250, kFresh = 251, kHeldOn = 252, kHeldOff = 253;
constexpr std::uint8_t kOn = 254, kOff = 255;

// A node is one block of doubles followed by one byte per neuron: bound, flag, cut
// constant, cut slopes, lower, upper, multipliers of held neurons (only where neurons
// are branched on), states.
struct Layout {
  int inputs = 0, neurons = 0;
  bool holds = false;
  std::size_t doubles() const {
    return 3 + 3 * std::size_t(inputs) + (holds ? neurons : 0);
  }
  double* multipliers(double* n) const { return n + 3 + 3 * inputs; }
  std::size_t stride() const { return doubles() + (std::size_t(neurons) + 7) / 8; }
  double* bound(double* n) const { return n; }
  double* flag(double* n) const { return n + 1; }
  double* constant(double* n) const { return n + 2; }
  double* cut(double* n) const { return n + 3; }
  double* lower(double* n) const { return n + 3 + inputs; }
  double* upper(double* n) const { return n + 3 + 2 * inputs; }
  std::uint8_t* states(double* n) const {
    return reinterpret_cast<std::uint8_t*>(n + doubles());
  }
};

enum class Fate : int { closed = 0, split = 1, again = 2, stuck = 3 };

// What bounding a batch tells besides the new contents of the nodes.
struct Outcome {
  Fate fate = Fate::split;
  int input = -1;         // where to branch
  int neuron = -1;        // or which neuron to hold on and off
  double middle = 0.0;    // and at which value
  double value = 0.0;     // objective at `point`
  double* point = nullptr;
};

// Optional detail for tests: one row per lane.
struct Trace {
  double *lower = nullptr, *upper = nullptr, *scores = nullptr;  // may all be null
};

// One instruction set's implementation: bounds up to `lanes` nodes at once.
struct BoundTable {
  const char* name;
  int lanes;
  std::size_t (*scratch_bytes)(const Model&);
  // Returns the floating-point operations of its matrix products.
  double (*bound)(const Model&, const Settings&, const Layout&, double cutoff,
                  double* const* nodes, int count, Outcome* outcomes, void* scratch,
                  const Trace* trace);
};

}  // namespace ennopt
