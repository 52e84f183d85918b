// The extension module: plain arrays in and out, the interpreter lock released while
// nodes are explored.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "tree.hpp"

namespace nb = nanobind;

namespace ennopt {

#if defined(ENNOPT_PLAIN)
extern const BoundTable table_plain;
#else
extern const BoundTable table_v1, table_v3, table_v4;
#endif

namespace {

using Matrix = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

#include "duality.hpp"
#include "kinds.hpp"
#include "envelope.hpp"

std::vector<const BoundTable*> supported() {
#if defined(ENNOPT_PLAIN)
  return {&table_plain};
#else
  __builtin_cpu_init();
  std::vector<const BoundTable*> tables{&table_v1};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2"))
    tables.push_back(&table_v3);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd"))
    tables.push_back(&table_v4);
  return tables;
#endif
}

const BoundTable* table_named(const std::string& name) {
  const auto tables = supported();
  if (name.empty()) return tables.back();
  for (const BoundTable* table : tables)
    if (name == table->name) return table;
  throw std::invalid_argument("Expected an instruction set of this machine, got '" + name +
                              "'.");
}

std::vector<double> copied(const Vector& v) { return {v.data(), v.data() + v.shape(0)}; }

// Stacks as lists of (weights, bias, error, size), one entry per affine layer.
using Part = std::tuple<Matrix, Vector, Vector, Vector>;

Layer make_layer(const Part& part, int cols) {
  const auto& [weights, bias, errors, sizes] = part;
  Layer layer;
  layer.rows = int(weights.shape(0));
  layer.cols = int(weights.shape(1));
  if (layer.cols != cols || int(bias.shape(0)) != layer.rows ||
      int(errors.shape(0)) != layer.rows || int(sizes.shape(0)) != layer.rows)
    throw std::invalid_argument("Expected layers that fit together.");
  layer.weights.assign(weights.data(), weights.data() + weights.size());
  layer.rounded.assign(layer.weights.begin(), layer.weights.end());
  layer.transposed.resize(layer.weights.size());
  for (int r = 0; r < layer.rows; ++r)
    for (int c = 0; c < layer.cols; ++c)
      layer.transposed[std::size_t(c) * layer.rows + r] =
          layer.weights[std::size_t(r) * layer.cols + c];
  layer.bias = copied(bias);
  layer.error = copied(errors);
  layer.size = copied(sizes);
  return layer;
}

// Of each hidden layer of a stack, one (number of its kind, alpha) for each neuron.
using Activations = std::vector<std::vector<std::tuple<int, double>>>;

void activate(Layer& layer, const Activations& all, std::size_t k) {
  if (k >= all.size() || int(all[k].size()) != layer.rows)
    throw std::invalid_argument("Expected an activation for each neuron.");
  for (const auto& [kind, alpha] : all[k]) {
    if (kind < 0 || kind > int(Activation::gelu_tanh))
      throw std::invalid_argument("Expected a known activation.");
    layer.kinds.push_back(Activation(kind));
    layer.alphas.push_back(alpha);
  }
}

// Functions of the outputs as (weights, groups, least, accepted, relaxed, spread, rounding),
// groups as (outputs, kind, amount, mean), pieces as (stack, row, output, sign).
using GroupPart = std::tuple<std::vector<int>, int, double, double>;
using FunctionPart =
    std::tuple<Vector, std::vector<GroupPart>, double, double, double, double, double>;
using PiecePart = std::tuple<int, int, int, double>;

void add_functions(Model& model, const std::vector<FunctionPart>& functions,
                   const std::vector<PiecePart>& pieces) {
  auto expect = [](bool fits) {
    if (!fits) throw std::invalid_argument("Expected functions of the outputs of all stacks.");
  };
  for (const Stack& stack : model.stacks) {
    model.outputs += stack.output().rows;
    model.widest = std::max(model.widest, stack.output().rows);
    if (stack.layers.size() < 2) continue;
    const Layer& last = stack.layers[stack.layers.size() - 2];
    model.largest = std::max(model.largest, last.first + last.rows - stack.layers[0].first);
  }
  for (const auto& [stack, row, output, sign] : pieces) {
    expect(stack >= 0 && stack < int(model.stacks.size()) && row >= 0 &&
           row < model.stacks[stack].output().rows && output >= 0 && output < model.outputs);
    model.pieces.push_back({stack, row, output, sign});
  }
  for (const auto& [weights, groups, least, accepted, relaxed, spread, rounding] : functions) {
    expect(int(weights.shape(0)) == model.outputs);
    Function function{copied(weights), {}, least, accepted, relaxed, spread, rounding, {}};
    for (const auto& [outputs, kind, amount, mean] : groups) {
      expect(kind >= 0 && kind <= int(Risk::absolute) && !outputs.empty());
      for (int output : outputs) expect(output >= 0 && output < model.outputs);
      function.groups.push_back({outputs, Risk(kind), amount, mean});
    }
    model.functions.push_back(std::move(function));
  }
  // Of a last hidden layer, neurons that no piece rewards.
  for (std::size_t m = 0; m < model.stacks.size(); ++m) {
    const Stack& stack = model.stacks[m];
    const std::size_t hidden = stack.layers.size() - 1;
    if (hidden < 2) continue;
    const Layer &layer = stack.layers[hidden - 1], &out = stack.output();
    for (int r = 0; r < layer.rows; ++r) {
      bool below = true;
      for (const Piece& piece : model.pieces)
        if (piece.stack == int(m))
          below &= piece.sign * out.weights[std::size_t(piece.row) * out.cols + r] <= 0.0;
      model.only_below[layer.first + r] = below;
    }
  }
}

// Whether no number of a pass in float32 overflows or vanishes, and there is a pass at all.
bool fits_single(const Model& model) {
  constexpr double most = 1e15, least = 1e-12, loosest = 1e-3;
  double steepest = 1.0, largest = 0.0, smallest = kInfinity;
  for (const Stack& stack : model.stacks) {
    double steep = 1.0;
    for (std::size_t k = 0; k + 1 < stack.layers.size(); ++k) {
      const Layer& layer = stack.layers[k];
      double size = 0.0, row = 1.0;
      for (int r = 0; r < layer.rows; ++r) {
        double sum = 0.0;
        for (int c = 0; c < layer.cols; ++c)
          sum += std::fabs(layer.weights[std::size_t(r) * layer.cols + c]);
        row = std::max(row, sum), size = std::max(size, layer.size[r]);
      }
      steep *= row;
      largest = std::max(largest, size), smallest = std::min(smallest, size);
    }
    steepest = std::max(steepest, steep);
  }
  return !model.smooth && !model.several() && model.deepest > 2 && steepest < most &&
         largest < most && smallest > least && model.sum_error < loosest;
}

std::shared_ptr<Model> make_model(const std::vector<std::vector<Part>>& stacks,
                                  const Vector& lower, const Vector& upper,
                                  const Matrix& slopes, const Vector& sides,
                                  const Vector& inner, const std::vector<bool>& whole,
                                  const std::vector<std::vector<double>>& lists,
                                  const std::vector<std::tuple<Matrix, Matrix, int>>& near,
                                  bool outer, double unit, double spread, double noise,
                                  double gamma,
                                  const std::vector<Activations>& activations,
                                  const std::vector<FunctionPart>& functions,
                                  const std::vector<PiecePart>& pieces) {
  auto model = std::make_shared<Model>();
  model->inputs = int(lower.shape(0));
  const bool fits = upper.shape(0) == lower.shape(0) && slopes.shape(0) == sides.shape(0) &&
                    inner.shape(0) == sides.shape(0) && whole.size() == lower.shape(0) &&
                    lists.size() == lower.shape(0) &&
                    (sides.shape(0) == 0 || slopes.shape(1) == lower.shape(0));
  if (!fits) throw std::invalid_argument("Expected one bound and one slope for each input.");
  model->set = {copied(lower), copied(upper),
                {slopes.data(), slopes.data() + slopes.size()}, copied(sides),
                copied(inner), {whole.begin(), whole.end()}, {}, {0}, {}, {}, outer};
  for (const std::vector<double>& list : lists) {
    model->set.listed.insert(model->set.listed.end(), list.begin(), list.end());
    model->set.first.push_back(int(model->set.listed.size()));
  }
  for (int p = 0; p < model->inputs; ++p)
    if (model->set.discrete(p)) model->set.places.push_back(p);
  for (const auto& [low, high, count] : near) {
    if (low.shape(1) != lower.shape(0) || high.shape(0) != low.shape(0) ||
        high.shape(1) != lower.shape(0) || count < 1)
      throw std::invalid_argument("Expected boxes around rows of all inputs.");
    model->set.near.push_back({int(low.shape(0)), count,
                               {low.data(), low.data() + low.size()},
                               {high.data(), high.data() + high.size()}});
  }
  for (int p = 0; p < model->inputs; ++p)
    model->reach.push_back(
        std::max(std::fabs(model->set.lower[p]), std::fabs(model->set.upper[p])));
  model->unit = unit;
  model->spread = spread;
  model->noise = noise;
  model->gamma = gamma;
  if (!activations.empty() && activations.size() != stacks.size())
    throw std::invalid_argument("Expected activations for every stack, or for none.");
  for (const auto& parts : stacks) {
    Stack stack;
    int cols = model->inputs;
    for (const Part& part : parts) {
      Layer layer = make_layer(part, cols);
      cols = layer.rows;
      if (stack.layers.size() + 1 < parts.size()) {
        if (!activations.empty())
          activate(layer, activations[model->stacks.size()], stack.layers.size());
        model->smooth = model->smooth || !layer.kinds.empty();
        layer.first = model->neurons;
        model->neurons += layer.rows;
        model->widest = std::max(model->widest, layer.rows);
      }
      stack.layers.push_back(std::move(layer));
    }
    if (stack.output().rows != 1 && functions.empty())
      throw std::invalid_argument("Expected one output over each stack.");
    model->output_error += stack.output().error[0];
    const int hidden = int(parts.size()) - 1;
    for (int k = 0; k < hidden; ++k)
      for (int r = 0; r < stack.layers[k].rows; ++r)
        model->only_below.push_back(k > 0 && k + 1 == hidden &&
                                    stack.output().weights[r] <= 0.0);
    model->deepest = std::max(model->deepest, int(parts.size()));
    model->stacks.push_back(std::move(stack));
  }
  if (!functions.empty() && model->smooth)
    throw std::invalid_argument("Expected ReLU, got another activation.");
  if (!functions.empty()) add_functions(*model, functions, pieces);
  int longest = 0;
  for (const Stack& stack : model->stacks) {
    int sum = 0;
    for (const Layer& layer : stack.layers) sum += layer.rows;
    longest = std::max(longest, sum);
  }
  model->sum_error = 0x1p-24f * float(2 * longest + 16 * model->inputs + 64);
  model->fits_single = fits_single(*model);
  if (functions.empty()) model->outputs = int(model->stacks.size());
  model->goal.assign(model->outputs, 1.0);
  if (functions.empty()) return model;
  model->goal = model->functions[0].weights;
  model->output_error = 0.0;
  int o = 0;
  for (const Stack& stack : model->stacks)
    for (double error : stack.output().error)
      model->output_error += std::fabs(model->goal[o++]) * error;
  return model;
}

template <class T, std::size_t N>
nb::ndarray<nb::numpy, T> owned(T* data, const std::size_t (&shape)[N]) {
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::ndarray<nb::numpy, T>(data, N, shape, owner);
}

nb::ndarray<nb::numpy, double> matrix(const std::vector<double>& numbers,
                                      std::size_t columns) {
  double* copy = new double[numbers.size() + 1];
  std::copy(numbers.begin(), numbers.end(), copy);
  return owned(copy, {numbers.size() / columns, columns});
}

nb::ndarray<nb::numpy, double> points_of(const std::vector<std::vector<double>>& points,
                                         std::size_t inputs) {
  std::vector<double> numbers;
  for (const auto& point : points) numbers.insert(numbers.end(), point.begin(), point.end());
  return matrix(numbers, inputs);
}

void check_stride(const Matrix& nodes, std::size_t stride) {
  if (nodes.shape(1) != stride)
    throw std::invalid_argument("Expected nodes of " + std::to_string(stride) +
                                " numbers each.");
}

// Bound each box of a matrix (one row per node); for tests.
nb::tuple bound_boxes(const Model& model, const Settings& settings, const Matrix& nodes,
                      double cutoff, const std::string& name) {
  const BoundTable* table = table_named(name);
  const BoxLayout layout = BoxLayout::of(model);
  const std::size_t count = nodes.shape(0), stride = layout.stride();
  check_stride(nodes, stride);
  double* out = new double[count * stride];
  std::copy(nodes.data(), nodes.data() + count * stride, out);
  const std::size_t n = model.neurons, d = model.inputs;
  const std::size_t most = table->batch(model, settings);
  double* low = new double[(count + most) * n + 1];
  double* high = new double[(count + most) * n + 1];
  double* scores = new double[(count + most) * d];
  double* points = new double[count * d];
  double* told = new double[count * 5];
  std::vector<char> scratch(table->scratch_bytes(model));
  for (std::size_t at = 0; at < count; at += most) {
    const int some = int(std::min(most, count - at));
    std::vector<double*> batch(some);
    std::vector<Outcome> outcomes(some);
    for (int i = 0; i < some; ++i) {
      batch[i] = out + (at + i) * stride;
      outcomes[i].point = points + (at + i) * d;
    }
    const Trace trace{low + at * n, high + at * n, scores + at * d};
    table->bound(model, settings)(model, settings, layout, cutoff, batch.data(), some,
                                  outcomes.data(), scratch.data(), &trace);
    for (int i = 0; i < some; ++i) {
      double* row = told + (at + i) * 5;
      row[0] = double(outcomes[i].fate), row[1] = outcomes[i].place;
      row[2] = outcomes[i].middle, row[3] = outcomes[i].value;
      row[4] = outcomes[i].dropped;
    }
  }
  return nb::make_tuple(owned(out, {count, stride}), owned(told, {count, 5}),
                        owned(points, {count, d}), owned(low, {count, n}),
                        owned(high, {count, n}), owned(scores, {count, d}));
}

// Lines of an activation on intervals: slope and intercept below, then above; for tests.
nb::ndarray<nb::numpy, double> lines(int kind, double alpha, const Vector& lower,
                                     const Vector& upper) {
  if (kind < 0 || kind > int(Activation::gelu_tanh) || lower.shape(0) != upper.shape(0))
    throw std::invalid_argument("Expected a known activation and both ends.");
  std::vector<double> numbers;
  for (std::size_t i = 0; i < lower.shape(0); ++i) {
    const Lines found = lines_of({Activation(kind), alpha}, lower.data()[i], upper.data()[i]);
    numbers.insert(numbers.end(), {found.low.slope, found.low.shift, found.high.slope,
                                   found.high.shift});
  }
  return matrix(numbers, 4);
}

// Bound each node of signs of a matrix (one row per node); for tests.
nb::tuple bound_signs(const Signs& signs, const Matrix& nodes, double cutoff) {
  const std::size_t count = nodes.shape(0), stride = signs.stride();
  const std::size_t d = signs.model().inputs;
  check_stride(nodes, stride);
  double* out = new double[count * stride];
  std::copy(nodes.data(), nodes.data() + count * stride, out);
  double* points = new double[count * d];
  double* told = new double[count * 4];
  std::vector<char> scratch(signs.scratch_bytes());
  for (std::size_t i = 0; i < count; ++i) {
    Outcome outcome;
    outcome.point = points + i * d;
    double* node = out + i * stride;
    signs.bound(cutoff, &node, 1, &outcome, scratch.data());
    told[i * 4] = double(outcome.fate), told[i * 4 + 1] = outcome.place;
    told[i * 4 + 2] = outcome.value, told[i * 4 + 3] = outcome.middle;
  }
  return nb::make_tuple(owned(out, {count, stride}), owned(told, {count, 4}),
                        owned(points, {count, d}));
}

// The multipliers that prove the bounds of nodes of signs: of the neurons, then of the
// half-spaces. For certificates.
nb::ndarray<nb::numpy, double> sign_multipliers(const Signs& signs, const Matrix& nodes,
                                                double cutoff) {
  const std::size_t count = nodes.shape(0), stride = signs.stride();
  const Model& model = signs.model();
  const std::size_t each = model.neurons + signs.ranges().count;
  check_stride(nodes, stride);
  double* out = new double[count * each + 1]();
  std::vector<double> row(stride), point(model.inputs);
  std::vector<char> scratch(signs.scratch_bytes());
  for (std::size_t i = 0; i < count; ++i) {
    std::copy(nodes.data() + i * stride, nodes.data() + (i + 1) * stride, row.begin());
    Outcome outcome;
    outcome.point = point.data();
    outcome.multipliers = out + i * each;
    double* node = row.data();
    signs.bound(cutoff, &node, 1, &outcome, scratch.data());
  }
  return owned(out, {count, each});
}

// Solves the program of a node of signs, from the first bytes of its basis or, if there are
// none, of the root. Returns the node with its bound and basis, the program's point, outputs of
// the neurons there, and multipliers of the neurons and fixed rows.
nb::tuple sign_solution(const Signs& signs, const Vector& node, double cutoff) {
  const std::size_t stride = signs.stride();
  const Model& model = signs.model();
  if (node.shape(0) > stride) throw std::invalid_argument("Expected a node of this kind.");
  const std::size_t d = model.inputs, n = model.neurons, m = n + signs.ranges().count;
  double *row = new double[stride](), *point = new double[d + 1], *hidden = new double[n + 1],
         *multipliers = new double[m + 1]();
  signs.root(row);
  if (node.shape(0) > 2) std::copy(node.data() + 1, node.data() + node.shape(0), row + 1);
  std::vector<char> scratch(signs.scratch_bytes());
  Outcome outcome;
  outcome.point = point, outcome.hidden = hidden, outcome.multipliers = multipliers;
  signs.bound(cutoff, &row, 1, &outcome, scratch.data());
  return nb::make_tuple(owned(row, {stride}), owned(point, {d}), owned(hidden, {n}),
                        owned(multipliers, {m}));
}

// The bound that any multipliers prove; for tests.
double proved(const Signs& signs, const nb::ndarray<const std::uint8_t, nb::ndim<1>>& allowed,
              const Vector& lambda, double share) {
  const Model& model = signs.model();
  if (int(lambda.shape(0)) != model.neurons + signs.ranges().count ||
      int(allowed.shape(0)) != model.neurons)
    throw std::invalid_argument(
        "Expected a multiplier for each neuron and half-space, a byte for each neuron.");
  std::vector<double> p(model.neurons + 1), q(p), g(model.inputs + signs.ranges().extras), h(g),
      c(model.outputs), e(c);
  return proved_by(model, signs.ranges(), allowed.data(),
                   {lambda.data(), p.data(), g.data(), c.data(), q.data(), h.data(), e.data()},
                   share);
}

}  // namespace
}  // namespace ennopt

NB_MODULE(_kernel, m) {
  using namespace ennopt;
  m.def("instruction_sets", [] {
    std::vector<std::string> names;
    for (const BoundTable* table : supported()) names.push_back(table->name);
    return names;
  });
  nb::class_<Model>(m, "Model")
      .def_static("make", &make_model, nb::arg("stacks"), nb::arg("lower"),
                  nb::arg("upper"), nb::arg("slopes"), nb::arg("sides"), nb::arg("inner"),
                  nb::arg("whole"), nb::arg("lists"), nb::arg("near"), nb::arg("outer"),
                  nb::arg("unit"), nb::arg("spread"), nb::arg("noise"), nb::arg("gamma"),
                  nb::arg("activations"), nb::arg("functions"), nb::arg("pieces"))
      .def("guide",
           [](Model& model, const Vector& x) {
             if (int(x.shape(0)) != model.inputs)
               throw std::invalid_argument("Expected one number for each input.");
             guide(model, x.data());
           })
      .def("evaluate", [](const Model& model, const Vector& x) {
        if (int(x.shape(0)) != model.inputs)
          throw std::invalid_argument("Expected one number for each input.");
        std::vector<double> buffer(forward_doubles(model));
        return evaluate(model, x.data(), buffer.data());
      });
  nb::class_<BoxLayout>(m, "BoxLayout")
      .def("__init__",
           [](BoxLayout* self, int inputs, int neurons, int cuts) {
             new (self) BoxLayout{inputs, neurons, cuts};
           },
           nb::arg("inputs"), nb::arg("neurons"), nb::arg("cuts") = 1)
      .def_prop_ro("stride", &BoxLayout::stride)
      .def("places", [](const BoxLayout& layout) {  // of everything behind bound and past
        std::vector<double> node(layout.stride());
        double* at = node.data();
        std::vector<std::ptrdiff_t> found;
        for (int k = 0; k < layout.cuts; ++k)
          found.insert(found.end(), {layout.constant(at, k) - at, layout.cut(at, k) - at});
        found.insert(found.end(), {layout.lower(at) - at, layout.upper(at) - at,
                                   reinterpret_cast<double*>(layout.states(at)) - at});
        return found;
      });
  nb::class_<Settings>(m, "Settings")
      .def(nb::init<>())
      .def_rw("max_steps", &Settings::max_steps)
      .def_rw("row_slopes", &Settings::row_slopes)
      .def_rw("vertex_lines", &Settings::vertex_lines)
      .def_rw("output_lines", &Settings::output_lines)
      .def_rw("again", &Settings::again)
      .def_rw("programs", &Settings::programs)
      .def_rw("single", &Settings::single);
  m.def("bound_boxes", &bound_boxes, nb::arg("model"), nb::arg("settings"),
        nb::arg("nodes"), nb::arg("cutoff"), nb::arg("instruction_set") = "");
  m.def("lines", &lines, nb::arg("kind"), nb::arg("alpha"), nb::arg("lower"),
        nb::arg("upper"));
  m.def("sign_multipliers", &sign_multipliers, nb::arg("signs"), nb::arg("nodes"),
        nb::arg("cutoff"));
  m.def("sign_solution", &sign_solution, nb::arg("signs"), nb::arg("node"),
        nb::arg("cutoff"));
  m.def("bound_signs", &bound_signs, nb::arg("signs"), nb::arg("nodes"),
        nb::arg("cutoff"));
  nb::class_<Scheme>(m, "Scheme");
  nb::class_<Boxes, Scheme>(m, "Boxes")
      .def("__init__",
           [](Boxes* self, std::shared_ptr<Model> model, const Settings& settings,
              const std::string& name, const std::optional<Matrix>& outputs, int learned) {
             OutputRanges ranges;
             if (outputs) {
               if (outputs->shape(0) != 2 || int(outputs->shape(1)) != model->outputs)
                 throw std::invalid_argument("Expected both ends of each output.");
               const double *from = outputs->data(), *to = from + model->outputs;
               ranges = {{from, to}, {to, to + model->outputs}};
             }
             bool risks = false;
             for (const Function& function : model->functions)
               risks = risks || !function.groups.empty();
             if (learned < 0 || (outputs && risks && !learned))
               throw std::invalid_argument("Expected room for rows to learn, got none.");
             new (self) Boxes(model, table_named(name), settings, std::move(ranges), learned);
           },
           nb::arg("model"), nb::arg("settings"), nb::arg("instruction_set") = "",
           nb::arg("outputs") = nb::none(), nb::arg("learned") = 0);
  nb::class_<Signs, Scheme>(m, "Signs")
      .def("__init__",
           [](Signs* self, std::shared_ptr<Model> model, const Vector& low,
              const Vector& high, const std::string& name, const Matrix& outputs, int learned,
              double room,
              const std::vector<std::tuple<int, double, std::vector<double>>>& lines) {
             if (int(low.shape(0)) != model->neurons || int(high.shape(0)) != model->neurons)
               throw std::invalid_argument("Expected one bound for each neuron.");
             if (outputs.shape(0) != 2 || int(outputs.shape(1)) != model->outputs || learned < 0)
               throw std::invalid_argument("Expected both ends of each output.");
             if (model->smooth)
               throw std::invalid_argument("Expected ReLU, got another activation.");
             bool risks = model->set.outer;
             for (const Function& function : model->functions)
               risks = risks || !function.groups.empty();
             if (risks && !learned)
               throw std::invalid_argument("Expected room for rows to learn, got none.");
             const double *from = outputs.data(), *to = from + model->outputs;
             std::vector<LineAbove> above;
             for (const auto& [neuron, constant, slopes] : lines) {
               if (neuron < 0 || neuron >= model->neurons)
                 throw std::invalid_argument("Expected lines above neurons of the model.");
               above.push_back({neuron, constant, slopes});
             }
             new (self) Signs(model, table_named(name), copied(low), copied(high),
                              {{from, to}, {to, to + model->outputs}}, learned, room,
                              std::move(above));
           },
           nb::arg("model"), nb::arg("low"), nb::arg("high"), nb::arg("instruction_set"),
           nb::arg("outputs"), nb::arg("learned"), nb::arg("room"),
           nb::arg("lines") = std::vector<std::tuple<int, double, std::vector<double>>>());
  m.def("proved_by", &proved, nb::arg("signs"), nb::arg("allowed"), nb::arg("multipliers"),
        nb::arg("share") = 1.0);
  nb::class_<Tree>(m, "Tree")
      .def("__init__",
           [](Tree* self, std::shared_ptr<Scheme> scheme, double gap, double floor,
              double least, bool journal) {
             new (self) Tree(scheme, Tolerance{gap, floor, least}, journal);
           },
           nb::arg("scheme"), nb::arg("gap"), nb::arg("floor"), nb::arg("least"),
           nb::arg("journal") = false)
      .def("plant", &Tree::plant)
      .def("offer",
           [](Tree& tree, const Vector& x) {
             if (int(x.shape(0)) != tree.scheme().model().inputs)
               throw std::invalid_argument("Expected one number for each input.");
             return tree.offer(x.data());
           })
      .def("add",
           [](Tree& tree, const Matrix& nodes) {
             const std::size_t stride = tree.stride();
             check_stride(nodes, stride);
             for (std::size_t i = 0; i < nodes.shape(0); ++i)
               tree.add(nodes.data() + i * stride);
           })
      .def("narrow",
           [](Tree& tree, const Matrix& slopes, const Vector& sides) {
             if (slopes.shape(0) != sides.shape(0) ||
                 (sides.shape(0) && int(slopes.shape(1)) != tree.scheme().model().inputs))
               throw std::invalid_argument("Expected one slope for each input.");
             if (!tree.scheme().narrows())
               throw std::invalid_argument(
                   "Expected a problem with convex regions or risks to narrow, got none.");
             tree.scheme().narrow(slopes.data(), sides.data(), sides.shape(0));
           })
      .def("take",
           [](Tree& tree, std::size_t most) {
             const std::size_t stride = tree.stride();
             const std::size_t count = std::min(most, tree.open());
             double* out = new double[count * stride + 1];
             auto nodes = owned(out, {count, stride});  // first: what is taken is not lost
             tree.take(count, out);
             return nodes;
           })
      .def("explore",
           [](Tree& tree, double nodes, double seconds, double bytes, int dive,
              int threads, bool eager) {
             nb::gil_scoped_release release;
             return tree.explore(Budget{nodes, seconds, bytes, dive, threads, eager});
           },
           nb::arg("nodes"), nb::arg("seconds"), nb::arg("bytes"), nb::arg("dive"),
           nb::arg("threads"), nb::arg("eager") = false)
      .def_prop_ro("bound", &Tree::bound)
      .def_prop_ro("value", &Tree::value)
      .def_prop_ro("cutoff", &Tree::cutoff)
      .def_prop_ro("operations", &Tree::operations)
      .def_prop_ro("open", &Tree::open)
      .def_prop_ro("closed", &Tree::closed)
      .def("close", &Tree::close, nb::arg("bound"))
      .def("points",
           [](const Tree& tree) {
             return points_of(tree.points(), tree.scheme().model().inputs);
           })
      .def("candidates",
           [](Tree& tree) {
             return points_of(tree.candidates(), tree.scheme().model().inputs);
           })
      .def("snapshot",
           [](Tree& tree) {
             std::vector<double> nodes;
             tree.snapshot(nodes);
             return matrix(nodes, tree.stride());
           })
      .def("number_from", &Tree::number_from, nb::arg("last"))
      .def("journal", [](Tree& tree) { return matrix(tree.journal(), kLineNumbers); });
}
