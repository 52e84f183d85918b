// The extension module: plain arrays in and out, the interpreter lock released while
// nodes are explored.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <string>

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

// Members as lists of (weights, bias, margin, size), one entry per affine layer.
using Part = std::tuple<Matrix, Vector, Vector, Vector>;

std::shared_ptr<Model> make_model(const std::vector<std::vector<Part>>& members,
                                  const Vector& reach, double margin, double unit,
                                  double spread) {
  auto model = std::make_shared<Model>();
  model->inputs = int(reach.shape(0));
  model->reach = copied(reach);
  model->margin = margin;
  model->unit = unit;
  model->spread = spread;
  for (const auto& parts : members) {
    Member member;
    int cols = model->inputs;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const auto& [weights, bias, margins, sizes] = parts[k];
      Layer layer;
      layer.rows = int(weights.shape(0));
      layer.cols = int(weights.shape(1));
      const bool last = k + 1 == parts.size();
      if (layer.cols != cols || int(bias.shape(0)) != layer.rows ||
          int(margins.shape(0)) != layer.rows || int(sizes.shape(0)) != layer.rows ||
          (last && layer.rows != 1))
        throw std::invalid_argument("Expected layers that fit together and one output.");
      layer.weights.assign(weights.data(), weights.data() + weights.size());
      layer.transposed.resize(layer.weights.size());
      for (int r = 0; r < layer.rows; ++r)
        for (int c = 0; c < layer.cols; ++c)
          layer.transposed[std::size_t(c) * layer.rows + r] = layer.weights[std::size_t(r) * layer.cols + c];
      layer.bias = copied(bias);
      layer.margin = copied(margins);
      layer.size = copied(sizes);
      if (!last) {
        layer.first = model->neurons;
        model->neurons += layer.rows;
        model->widest = std::max(model->widest, layer.rows);
      }
      cols = layer.rows;
      member.layers.push_back(std::move(layer));
    }
    for (std::size_t k = 0; k + 1 < parts.size(); ++k)
      for (int r = 0; r < member.layers[k].rows; ++r)
        model->only_below.push_back(k > 0 && k + 2 == parts.size() &&
                                    member.layers.back().weights[r] <= 0.0);
    model->deepest = std::max(model->deepest, int(parts.size()));
    model->members.push_back(std::move(member));
  }
  return model;
}

template <class T, std::size_t N>
nb::ndarray<nb::numpy, T> owned(T* data, const std::size_t (&shape)[N]) {
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::ndarray<nb::numpy, T>(data, N, shape, owner);
}

nb::ndarray<nb::numpy, double> vector(const double* data, std::size_t count) {
  double* copy = new double[count];
  std::copy(data, data + count, copy);
  return owned(copy, {count});
}

Ranges ranges_of(const Model& model, const Vector& lower, const Vector& upper) {
  if (int(lower.shape(0)) != model.inputs || int(upper.shape(0)) != model.inputs)
    throw std::invalid_argument("Expected one bound for each input.");
  return {copied(lower), copied(upper), {}, {}};
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
  const BoxLayout layout{model.inputs, model.neurons};
  const std::size_t count = nodes.shape(0), stride = layout.stride();
  check_stride(nodes, stride);
  double* out = new double[count * stride];
  std::copy(nodes.data(), nodes.data() + count * stride, out);
  const std::size_t n = model.neurons, d = model.inputs;
  double* low = new double[(count + table->lanes) * n + 1];
  double* high = new double[(count + table->lanes) * n + 1];
  double* scores = new double[(count + table->lanes) * d];
  double* points = new double[count * d];
  double* told = new double[count * 4];
  std::vector<char> scratch(table->scratch_bytes(model));
  for (std::size_t at = 0; at < count; at += table->lanes) {
    const int some = int(std::min<std::size_t>(table->lanes, count - at));
    std::vector<double*> batch(some);
    std::vector<Outcome> outcomes(some);
    for (int i = 0; i < some; ++i) {
      batch[i] = out + (at + i) * stride;
      outcomes[i].point = points + (at + i) * d;
    }
    const Trace trace{low + at * n, high + at * n, scores + at * d};
    table->bound(model, settings, layout, cutoff, batch.data(), some, outcomes.data(),
                 scratch.data(), &trace);
    for (int i = 0; i < some; ++i) {
      double* row = told + (at + i) * 4;
      row[0] = double(outcomes[i].fate), row[1] = outcomes[i].place;
      row[2] = outcomes[i].middle, row[3] = outcomes[i].value;
    }
  }
  return nb::make_tuple(owned(out, {count, stride}), owned(told, {count, 4}),
                        owned(points, {count, d}), owned(low, {count, n}),
                        owned(high, {count, n}), owned(scores, {count, d}));
}

// Bound each node of signs of a matrix (one row per node); for tests.
nb::tuple bound_signs(const Signs& signs, const Matrix& nodes, double cutoff) {
  const std::size_t count = nodes.shape(0), stride = signs.stride();
  const std::size_t d = signs.model().inputs;
  check_stride(nodes, stride);
  double* out = new double[count * stride];
  std::copy(nodes.data(), nodes.data() + count * stride, out);
  double* points = new double[count * d];
  double* told = new double[count * 3];
  std::vector<char> scratch(signs.scratch_bytes());
  for (std::size_t i = 0; i < count; ++i) {
    Outcome outcome;
    outcome.point = points + i * d;
    double* node = out + i * stride;
    signs.bound(cutoff, &node, 1, &outcome, scratch.data());
    told[i * 3] = double(outcome.fate), told[i * 3 + 1] = outcome.place;
    told[i * 3 + 2] = outcome.value;
  }
  return nb::make_tuple(owned(out, {count, stride}), owned(told, {count, 3}),
                        owned(points, {count, d}));
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
      .def_static("make", &make_model, nb::arg("members"), nb::arg("reach"),
                  nb::arg("margin"), nb::arg("unit"), nb::arg("spread"))
      .def_ro("margin", &Model::margin)
      .def("evaluate", [](const Model& model, const Vector& x) {
        if (int(x.shape(0)) != model.inputs)
          throw std::invalid_argument("Expected one number for each input.");
        return evaluate(model, x.data());
      });
  nb::class_<Settings>(m, "Settings")
      .def(nb::init<>())
      .def_rw("max_steps", &Settings::max_steps)
      .def_rw("row_slopes", &Settings::row_slopes)
      .def_rw("vertex_lines", &Settings::vertex_lines)
      .def_rw("output_lines", &Settings::output_lines)
      .def_rw("again", &Settings::again);
  m.def("bound_boxes", &bound_boxes, nb::arg("model"), nb::arg("settings"),
        nb::arg("nodes"), nb::arg("cutoff"), nb::arg("instruction_set") = "");
  m.def("bound_signs", &bound_signs, nb::arg("signs"), nb::arg("nodes"),
        nb::arg("cutoff"));
  nb::class_<Scheme>(m, "Scheme");
  nb::class_<Boxes, Scheme>(m, "Boxes")
      .def("__init__",
           [](Boxes* self, std::shared_ptr<Model> model, const Settings& settings,
              const Vector& lower, const Vector& upper, const std::string& name) {
             Ranges ranges = ranges_of(*model, lower, upper);
             new (self) Boxes(model, table_named(name), settings, std::move(ranges));
           },
           nb::arg("model"), nb::arg("settings"), nb::arg("lower"), nb::arg("upper"),
           nb::arg("instruction_set") = "");
  nb::class_<Signs, Scheme>(m, "Signs")
      .def("__init__",
           [](Signs* self, std::shared_ptr<Model> model, const Vector& lower,
              const Vector& upper, const Vector& low, const Vector& high,
              const std::string& name) {
             Ranges ranges = ranges_of(*model, lower, upper);
             if (int(low.shape(0)) != model->neurons || int(high.shape(0)) != model->neurons)
               throw std::invalid_argument("Expected one bound for each neuron.");
             ranges.low = copied(low);
             ranges.high = copied(high);
             new (self) Signs(model, table_named(name), std::move(ranges));
           },
           nb::arg("model"), nb::arg("lower"), nb::arg("upper"), nb::arg("low"),
           nb::arg("high"), nb::arg("instruction_set") = "");
  nb::class_<Tree>(m, "Tree")
      .def("__init__",
           [](Tree* self, std::shared_ptr<Scheme> scheme, double gap, double floor,
              double least) {
             new (self) Tree(scheme, Tolerance{gap, floor, least});
           },
           nb::arg("scheme"), nb::arg("gap"), nb::arg("floor"), nb::arg("least"))
      .def("plant", &Tree::plant)
      .def("offer",
           [](Tree& tree, const Vector& x) {
             if (int(x.shape(0)) != tree.scheme().model().inputs)
               throw std::invalid_argument("Expected one number for each input.");
             return tree.offer(x.data());
           })
      .def("add",
           [](Tree& tree, const Matrix& nodes) {
             const std::size_t stride = tree.scheme().stride();
             check_stride(nodes, stride);
             for (std::size_t i = 0; i < nodes.shape(0); ++i)
               tree.add(nodes.data() + i * stride);
           })
      .def("take",
           [](Tree& tree, std::size_t most) {
             const std::size_t stride = tree.scheme().stride();
             const std::size_t count = std::min(most, tree.open());
             double* out = new double[count * stride + 1];
             for (std::size_t i = 0; i < count; ++i) tree.take(out + i * stride);
             return owned(out, {count, stride});
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
      .def("best_point", [](const Tree& tree) {
        return vector(tree.point().data(), tree.point().size());
      });
}
