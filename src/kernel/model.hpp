// The problem as plain arrays, shared by all instruction sets.
//
// Stacks of hidden layers, each with an output over it; the objective is the sum of the
// outputs. Or several outputs over a stack, and functions of all outputs: an objective and
// limits. The feasible set is a box and half-spaces. Neurons are numbered stack by
// stack, layer by layer.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace ennopt {

enum class Activation : std::uint8_t {  // as ACTIVATIONS of kinds.py are numbered
  relu, tanh, sigmoid, softplus, elu, silu, gelu, gelu_tanh
};

struct Layer {
  int rows = 0, cols = 0;
  int first = 0;                   // number of this layer's first neuron (hidden layers)
  std::vector<double> weights;     // rows x cols, row by row
  std::vector<float> rounded;      // the same in float32
  std::vector<double> transposed;  // the same, column by column
  std::vector<double> bias;        // rows
  std::vector<double> error;       // rounding of a bound, per unit of the row's coefficient
  std::vector<double> size;        // bound of |row|, rounding included
  std::vector<Activation> kinds;   // activations of the rows; empty if all are ReLU
  std::vector<double> alphas;      // of those that are ELU
};

struct Stack {
  std::vector<Layer> layers;  // hidden layers, then the outputs over them: one row for sums
  const Layer& output() const { return layers.back(); }
};

// Points in at least `count` of the boxes around rows of data.
struct Near {
  int rows = 0, count = 1;
  std::vector<double> lower, upper;  // rows x inputs, row by row
};

// The feasible set: lower <= x <= upper, slopes . x >= sides, slack included, and inputs
// that take whole numbers or the values of a list only, near data.
struct Set {
  std::vector<double> lower, upper;
  std::vector<double> slopes, sides;  // half-spaces x inputs, row by row
  std::vector<double> inner;          // sides by which a point is accepted
  std::vector<std::uint8_t> whole;    // inputs
  std::vector<double> listed;         // the lists, one after the other, each ascending
  std::vector<int> first;             // of each input's list, and the end of the last
  std::vector<int> places;            // of the inputs that do not take every value
  std::vector<Near> near;             // regions around data, all of which hold a point
  bool outer = false;  // whether there are convex regions, known by half-spaces only

  int half_spaces() const { return int(sides.size()); }
  // Whether every point of the box with allowed values is in the set.
  bool free() const { return sides.empty() && near.empty() && !outer; }
  void narrow(const double* more, const double* ends, std::size_t count) {
    slopes.insert(slopes.end(), more, more + count * lower.size());
    sides.insert(sides.end(), ends, ends + count);
    inner.insert(inner.end(), ends, ends + count);
  }
  bool has_list(int p) const { return first[p] < first[p + 1]; }
  bool discrete(int p) const { return whole[p] || has_list(p); }
  bool any_discrete() const { return !places.empty(); }

  // The least allowed value at or above x, the largest at or below, the next above, the
  // nearest: x itself on a continuum, infinite if there is none.
  double up(int p, double x) const {
    if (!has_list(p)) return whole[p] ? std::ceil(x) : x;
    const double *end = listed.data() + first[p + 1];
    const double* at = std::lower_bound(listed.data() + first[p], end, x);
    return at == end ? std::numeric_limits<double>::infinity() : *at;
  }
  double down(int p, double x) const {
    if (!has_list(p)) return whole[p] ? std::floor(x) : x;
    const double *begin = listed.data() + first[p], *end = listed.data() + first[p + 1];
    const double* at = std::upper_bound(begin, end, x);
    return at == begin ? -std::numeric_limits<double>::infinity() : at[-1];
  }
  double above(int p, double x) const {
    if (!has_list(p)) return whole[p] ? std::floor(x) + 1.0 : x;
    const double* end = listed.data() + first[p + 1];
    const double* at = std::upper_bound(listed.data() + first[p], end, x);
    return at == end ? std::numeric_limits<double>::infinity() : *at;
  }
  double nearest(int p, double x) const {
    const double low = down(p, x), high = up(p, x);
    return x - low <= high - x ? low : high;
  }
};

// An output, or minus an output: what functions are sums of with weights of at least zero.
struct Piece {
  int stack = 0, row = 0, output = 0;
  double sign = 1.0;
};

// Outputs whose weights are those of a risk, as in src/ennopt/risk.py: between zero and a
// cap, or mean / count less kappa times the direction of a deviation.
enum class Risk : std::uint8_t { capped, deviation, absolute };
struct Group {
  std::vector<int> outputs;
  Risk kind = Risk::capped;
  double amount = 1.0, mean = 1.0;  // the cap, or kappa; the mean's factor
};

// The least of many weighted sums of outputs; a limit is that it is at least `least`.
struct Function {
  std::vector<double> weights;  // of all outputs; zero for those of groups
  std::vector<Group> groups;
  double least = 0.0, accepted = 0.0, relaxed = 0.0;  // with parts of the slack
  double spread = 0.0, rounding = 0.0;  // over many points; of weights in their set
  std::vector<double> guide;  // weights at a good point, if one is known
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
  double gamma = 0.0;         // relative rounding of a sum over a layer
  float sum_error = 0.0f;     // relative rounding of a pass's constants in float32
  bool fits_single = false;   // whether passes in float32 are possible
  bool smooth = false;        // whether there are activations other than ReLU

  // Neurons of a last hidden layer that no output rewards only ever need the line below
  // ReLU, which holds without bounds.
  std::vector<std::uint8_t> only_below;  // neurons

  // Without functions the objective is the sum of the outputs.
  int outputs = 0, largest = 0;     // of all stacks; most neurons of a stack
  std::vector<double> goal;         // weights of outputs in the objective, but for risks
  std::vector<Piece> pieces;        // by output
  std::vector<Function> functions;  // the objective, then the limits
  bool several() const { return !functions.empty(); }
  int limits() const { return several() ? int(functions.size()) - 1 : 0; }
  int risks() const { return several() ? int(functions[0].groups.size()) : 0; }
};

// Objective at one point, through every neuron; `buffer` holds `forward_doubles` numbers.
double evaluate(const Model& model, const double* x, double* buffer);
inline std::size_t forward_doubles(const Model& model) {
  return 2 * (std::size_t(model.widest) + 1) + 2 * std::size_t(model.outputs);
}

// Weights of all outputs that are the least for a function, given the outputs.
void respond(const Function& function, const double* outputs, double* weights);

// Tells functions which weights they have at a good point.
void guide(Model& model, const double* x);

// A condition of a linear program: slopes . x + shares . outputs, less an extra input if it
// has one, is at least `side`. Proofs use `side`; the points of programs keep to `edge`, a
// little further inside: a point there still counts as feasible when it was rounded.
// A line above a neuron has minus the output of this neuron, and `slopes` if it is in the
// first layer, else plus `before` . the `width` outputs of the layer before, from neuron `first`.
struct Row {
  const double *slopes = nullptr, *shares = nullptr;  // null if all are zero
  int extra = -1;
  double side = 0.0, edge = 0.0;
  int neuron = -1, first = 0, width = 0;
  const double* before = nullptr;
};

// A box of inputs, the rows that count there, and bounds of the neurons, then of what is left
// of each row above its side; somebody else's arrays. Behind the inputs of the model there
// are extra inputs that no network sees: what each risk of the objective may be at most.
struct Ranges {
  const double *lower = nullptr, *upper = nullptr, *low = nullptr, *high = nullptr;
  const Row* rows = nullptr;
  int count = 0, extras = 0;
};

class Pool;  // of rows that programs learn: pool.hpp

struct Settings {
  int max_steps = 30;        // slope steps of a node close to the cutoff
  bool row_slopes = true;    // deep rule 1
  bool vertex_lines = true;  // deep rule 2
  bool output_lines = true;  // deep rule 2 for the objective
  double again = 0.8;        // bound again if the clipped volume is below this share
  int programs = 64;         // linear programs that may finish a box
  bool single = false;       // bounds of neurons behind the first layers in float32
};

// Slopes, constants and multiples of half-spaces beyond this are not used: their sums and
// products would overflow.
constexpr double kLargest = 1e300;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// State of a neuron of a box in one byte: unstable with a slope below ReLU, or none
// chosen yet; on or off on the whole box.
constexpr std::uint8_t kSlopeMax = 250, kFresh = 251, kOn = 254, kOff = 255;

// What a box remembers of itself and its parents, as one number.
struct Past {
  int again = 0;        // one if it was bounded once already and only clipped since
  int generations = 0;  // in a row in which only rounding kept it open
  static Past of(double packed) {
    const auto bits = std::int64_t(packed);
    return {int(bits & 1), int(bits >> 1)};
  }
  double packed() const { return double(again + 2 * generations); }
};

// A box is one block of doubles followed by one byte per neuron: bound, past, the constant
// and the slopes of each cut that it inherits, lower, upper, states.
struct BoxLayout {
  int inputs = 0, neurons = 0, cuts = 1;
  std::size_t doubles() const { return 2 + cuts * (1 + std::size_t(inputs)) + 2 * inputs; }
  std::size_t stride() const { return doubles() + (std::size_t(neurons) + 7) / 8; }
  double* bound(double* n) const { return n; }
  double* past(double* n) const { return n + 1; }
  double* constant(double* n, int k = 0) const { return n + 2 + k * (1 + inputs); }
  double* cut(double* n, int k = 0) const { return constant(n, k) + 1; }
  double* lower(double* n) const { return constant(n, cuts); }
  double* upper(double* n) const { return lower(n) + inputs; }
  std::uint8_t* states(double* n) const {
    return reinterpret_cast<std::uint8_t*>(n + doubles());
  }
  // Other neurons than ReLU have no states.
  static BoxLayout of(const Model& model) {
    return {model.inputs, model.smooth ? 0 : model.neurons, 1 + model.limits()};
  }
};

// Corners of an item of a linear program (program.hpp): a neuron's h = 0, its upper and
// its lower bound; an input's lower and upper bound are the first two.
constexpr std::uint8_t kO = 1, kU = 2, kL = 4, kAll = kO | kU | kL;

// A node of signs: bound, flag, lower and upper ends of the inputs that have ends of their
// own, one byte for each input (extra ones, too), neuron and row, which says what corners are
// tied in the last basis and, three bits up, which are allowed. The flag is one if there was
// nothing worth branching on the last time, minus the number of pivots of a program that
// paused, or one more than the times that the node waited for rows.
struct SignLayout {
  int inputs = 0, neurons = 0, rows = 0, discrete = 0;
  std::size_t doubles() const { return 2 + 2 * std::size_t(discrete); }
  std::size_t stride() const {
    return doubles() + (std::size_t(inputs) + neurons + rows + 7) / 8;
  }
  double* bound(double* n) const { return n; }
  double* flag(double* n) const { return n + 1; }
  double* lower(double* n) const { return n + 2; }
  double* upper(double* n) const { return n + 2 + discrete; }
  std::uint8_t* states(double* n) const {
    return reinterpret_cast<std::uint8_t*>(n + doubles());
  }
  static constexpr std::uint8_t state(int ties, int allowed) {
    return std::uint8_t(ties | allowed << 3);
  }
};

enum class Fate : int { closed = 0, split = 1, again = 2, stuck = 3 };

// What bounding a node tells besides its new contents.
struct Outcome {
  Fate fate = Fate::split;
  int place = -1;               // the input of a box to branch on; the neuron of a node
                                // of signs, or, behind all neurons, the input
  double middle = 0.0;          // and at which value of the input
  double dropped = -kInfinity;  // no point that was closed or left out is better
  bool whole = true;            // false if the work on the node only paused
  bool doubted = false;         // true if the signs of a box were forgotten
  bool waits = false;           // true if the node needs rows that cut off its point
  bool wanted = false;          // true if such rows would help
  double value = 0.0;           // objective at `point`
  double* point = nullptr;
  double* multipliers = nullptr;  // of a node of signs: neurons, then fixed rows; or null
  double* hidden = nullptr;       // outputs of the neurons in the program's point; or null
};

// Optional detail: one row per lane; the share of the neurons' widths that margins of float32
// have on the first node.
struct Trace {
  double *lower = nullptr, *upper = nullptr, *scores = nullptr;  // may all be null
  double* loosest = nullptr;
};

// One instruction set's implementation.
struct BoundTable {
  const char* name;
  int lanes;
  std::size_t (*scratch_bytes)(const Model&);
  // Bounds up to `batch` boxes at once. Returns the floating-point operations of its
  // matrix products.
  using Bound = double (*)(const Model&, const Settings&, const BoxLayout&, double cutoff,
                           double* const* nodes, int count, Outcome* outcomes,
                           void* scratch, const Trace* trace);
  Bound relu, single, smooth, functions;
  static bool in_single(const Model& model, const Settings& settings) {
    return settings.single && model.fits_single && !model.set.half_spaces();
  }
  Bound bound(const Model& model, const Settings& settings) const {
    if (in_single(model, settings)) return single;
    return model.several() ? functions : model.smooth ? smooth : relu;
  }
  int batch(const Model& model, const Settings& settings) const {
    return in_single(model, settings) ? 2 * lanes : lanes;
  }
  std::size_t (*program_bytes)(const Model&, const SignLayout&);
  // Solves the linear program of one node of signs, with the inputs that have ends of their
  // own and, if there is one, a pool of rows.
  void (*program)(const Model&, const Ranges&, const SignLayout&, const std::vector<int>& ends,
                  Pool* pool, double cutoff, double* node, Outcome& outcome, void* scratch);
};

}  // namespace ennopt
