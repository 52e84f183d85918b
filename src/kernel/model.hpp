// The problem as plain arrays, shared by all instruction sets.
//
// Stacks of hidden layers, each with an output over it; the objective is the sum of the
// outputs. The feasible set is a box and half-spaces. Neurons are numbered stack by
// stack, layer by layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace ennopt {

struct Layer {
  int rows = 0, cols = 0;
  int first = 0;                   // number of this layer's first neuron (hidden layers)
  std::vector<double> weights;     // rows x cols, row by row
  std::vector<double> transposed;  // the same, column by column
  std::vector<double> bias;        // rows
  std::vector<double> error;       // rounding of a bound, per unit of the row's coefficient
  std::vector<double> size;        // bound of |row|, rounding included
};

struct Stack {
  std::vector<Layer> layers;  // hidden layers, then the output over them (one row)
  const Layer& output() const { return layers.back(); }
};

// The feasible set: lower <= x <= upper and slopes . x >= sides, slack included.
struct Set {
  std::vector<double> lower, upper;
  std::vector<double> slopes, sides;  // half-spaces x inputs, row by row
  int half_spaces() const { return int(sides.size()); }
};

struct Model {
  int inputs = 0, neurons = 0, widest = 0, deepest = 0;
  std::vector<Stack> stacks;
  Set set;
  std::vector<double> reach;  // largest |x_p|
  double output_error = 0.0;  // rounding of the outputs' own rows and of their sum
  double unit = 0.0;          // relative rounding of a sum over the inputs
  double spread = 0.0;        // of the objective over many points
  double noise = 0.0;         // rounding of a bound where all signs are decided, about

  // Neurons of a last hidden layer that no output rewards only ever need the line below
  // ReLU, which holds without bounds.
  std::vector<std::uint8_t> only_below;  // neurons
};

// Objective at one point, through every neuron; `buffer` holds 2 * (widest + 1) numbers.
double evaluate(const Model& model, const double* x, double* buffer);

// A box of inputs, and bounds of the neurons on it.
struct Ranges {
  std::vector<double> lower, upper, low, high;
};

struct Settings {
  int max_steps = 30;        // slope steps of a node close to the cutoff
  bool row_slopes = true;    // deep rule 1
  bool vertex_lines = true;  // deep rule 2
  bool output_lines = true;  // deep rule 2 for the objective
  double again = 0.8;        // bound again if the clipped volume is below this share
  int programs = 64;         // linear programs that may finish a box
};

// Multiples of a half-space beyond this are not used: they would overflow.
constexpr double kLargest = 1e300;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// State of a neuron of a box in one byte: unstable with a slope below ReLU, or none
// chosen yet; on or off on the whole box.
constexpr std::uint8_t kSlopeMax = 250, kFresh = 251, kOn = 254, kOff = 255;

// A box is one block of doubles followed by one byte per neuron: bound, flag, cut
// constant, cut slopes, lower, upper, states. The flag is one if the box was bounded once
// already and only clipped since, else minus the number of generations in which only
// rounding kept it open.
struct BoxLayout {
  int inputs = 0, neurons = 0;
  std::size_t doubles() const { return 3 + 3 * std::size_t(inputs); }
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

// Corners of an item of a linear program (program.hpp): a neuron's h = 0, its upper and
// its lower bound; an input's lower and upper bound are the first two.
constexpr std::uint8_t kO = 1, kU = 2, kL = 4, kAll = kO | kU | kL;

// A node of signs: bound, flag, one byte for each input and neuron, which says what
// corners are tied in the last basis and, three bits up, which are allowed. The flag is
// one if no neuron was worth holding the last time, or minus the number of pivots of a
// program that paused.
struct SignLayout {
  int inputs = 0, neurons = 0;
  std::size_t stride() const { return 2 + (std::size_t(inputs) + neurons + 7) / 8; }
  double* bound(double* n) const { return n; }
  double* flag(double* n) const { return n + 1; }
  std::uint8_t* states(double* n) const { return reinterpret_cast<std::uint8_t*>(n + 2); }
  static constexpr std::uint8_t state(int ties, int allowed) {
    return std::uint8_t(ties | allowed << 3);
  }
};

enum class Fate : int { closed = 0, split = 1, again = 2, stuck = 3 };

// What bounding a node tells besides its new contents.
struct Outcome {
  Fate fate = Fate::split;
  int place = -1;               // the input to branch on, or the neuron
  double middle = 0.0;          // and at which value
  double dropped = -kInfinity;  // no point that was closed or left out is better
  bool whole = true;            // false if the work on the node only paused
  bool doubted = false;         // true if the signs of a box were forgotten
  double value = 0.0;           // objective at `point`
  double* point = nullptr;
};

// Optional detail for tests: one row per lane.
struct Trace {
  double *lower = nullptr, *upper = nullptr, *scores = nullptr;  // may all be null
};

// One instruction set's implementation.
struct BoundTable {
  const char* name;
  int lanes;
  std::size_t (*scratch_bytes)(const Model&);
  // Bounds up to `lanes` boxes at once. Returns the floating-point operations of its
  // matrix products.
  double (*bound)(const Model&, const Settings&, const BoxLayout&, double cutoff,
                  double* const* nodes, int count, Outcome* outcomes, void* scratch,
                  const Trace* trace);
  std::size_t (*program_bytes)(const Model&);
  // Solves the linear program of one node of signs.
  void (*program)(const Model&, const Ranges&, const SignLayout&, double cutoff,
                  double* node, Outcome& outcome, void* scratch);
};

}  // namespace ennopt
