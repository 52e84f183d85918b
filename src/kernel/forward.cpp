#include <algorithm>
#include <cmath>
#include <vector>

#include "forward.hpp"

namespace ennopt {
namespace {

#include "kinds.hpp"

}  // namespace

double evaluate(const Model& model, const double* x, double* buffer) {
  double sum = 0.0;
  for (const Stack& stack : model.stacks) {
    const double* y = x;
    double *next = buffer, *other = buffer + model.widest + 1;
    for (std::size_t k = 0; k < stack.layers.size(); ++k) {
      const Layer& layer = stack.layers[k];
      const bool hidden = k + 1 < stack.layers.size();
      for (int r = 0; r < layer.rows; ++r) {
        double h = layer.bias[r];
        const double* w = layer.weights.data() + std::size_t(r) * layer.cols;
        for (int c = 0; c < layer.cols; ++c) h += w[c] * y[c];
        next[r] = !hidden ? h : layer.kinds.empty() ? std::max(h, 0.0)
                                                    : curve_of(layer, r).value(h);
      }
      y = next;
      std::swap(next, other);
    }
    sum += y[0];
  }
  return sum;
}

namespace {

// Along a ridge an ascent may gain its last digit for ever.
constexpr int kMostSteps = 1000;

// What an ascent needs, in one block.
struct Scratch {
  std::size_t wide, longest;
  double *buffer, *slope, *trial, *values, *steep, *back, *before;

  Scratch(const Model& model, double* block)
      : wide(model.widest + 1), longest(std::max<std::size_t>(wide, model.inputs)),
        buffer(block), slope(buffer + 2 * wide), trial(slope + model.inputs),
        values(trial + model.inputs), steep(values + wide * model.deepest),
        back(steep + wide * model.deepest), before(back + longest) {}
};

// Slopes at x, those of the off side at kinks.
void gradient(const Model& model, const double* x, Scratch& at) {
  std::fill(at.slope, at.slope + model.inputs, 0.0);
  for (const Stack& stack : model.stacks) {
    const double* y = x;
    const std::size_t hidden = stack.layers.size() - 1;
    for (std::size_t k = 0; k < hidden; ++k) {
      const Layer& layer = stack.layers[k];
      double* values = at.values + k * at.wide;
      for (int r = 0; r < layer.rows; ++r) {
        double h = layer.bias[r];
        const double* w = layer.weights.data() + std::size_t(r) * layer.cols;
        for (int c = 0; c < layer.cols; ++c) h += w[c] * y[c];
        const Curve curve = curve_of(layer, r);
        values[r] = curve.value(h);
        at.steep[k * at.wide + r] = curve.slope(h);
      }
      y = values;
    }
    at.back[0] = 1.0;
    for (std::size_t k = hidden + 1; k-- > 0;) {
      const Layer& layer = stack.layers[k];
      std::fill(at.before, at.before + layer.cols, 0.0);
      for (int r = 0; r < layer.rows; ++r) {
        const double* w = layer.weights.data() + std::size_t(r) * layer.cols;
        if (at.back[r] != 0.0)
          for (int c = 0; c < layer.cols; ++c) at.before[c] += at.back[r] * w[c];
      }
      if (k > 0)
        for (int c = 0; c < layer.cols; ++c)
          at.before[c] *= at.steep[(k - 1) * at.wide + c];
      std::swap(at.back, at.before);
    }
    for (int p = 0; p < model.inputs; ++p) at.slope[p] += at.back[p];
  }
}

}  // namespace

std::size_t ascent_doubles(const Model& model) {
  const Scratch at(model, nullptr);
  return 2 * at.wide + 2 * model.inputs + 2 * at.wide * model.deepest + 2 * at.longest;
}

double ascend(const Model& model, double* x, double* scratch) {
  const int d = model.inputs;
  const std::vector<double>&lower = model.set.lower, &upper = model.set.upper;
  Scratch at(model, scratch);
  double value = evaluate(model, x, at.buffer);
  gradient(model, x, at);
  double step = 0.1;
  for (int tried = 0; step > 1e-7 && tried < kMostSteps; ++tried) {
    for (int p = 0; p < d; ++p) {
      const double width = model.set.discrete(p) ? 0.0 : upper[p] - lower[p];
      const double move = step * width, slope = at.slope[p];
      const double to = x[p] + (slope > 0 ? move : slope < 0 ? -move : 0.0);
      at.trial[p] = std::clamp(to, lower[p], upper[p]);
    }
    const double reached = evaluate(model, at.trial, at.buffer);
    if (reached > value) {
      std::copy(at.trial, at.trial + d, x);
      value = reached;
      gradient(model, x, at);
    } else {
      step *= 0.5;
    }
  }
  return value;
}

bool feasible(const Model& model, const double* x) {
  if (model.set.outer) return false;  // not decided here
  for (int k = 0; k < model.set.half_spaces(); ++k) {
    const double* slopes = model.set.slopes.data() + std::size_t(k) * model.inputs;
    double value = 0.0;
    for (int p = 0; p < model.inputs; ++p) value += slopes[p] * x[p];
    if (!(value >= model.set.inner[k])) return false;
  }
  for (const Near& near : model.set.near) {
    int met = 0;
    for (int r = 0; r < near.rows && met < near.count; ++r) {
      const double* low = near.lower.data() + std::size_t(r) * model.inputs;
      const double* high = near.upper.data() + std::size_t(r) * model.inputs;
      int p = 0;
      while (p < model.inputs && low[p] <= x[p] && x[p] <= high[p]) ++p;
      met += p == model.inputs;
    }
    if (met < near.count) return false;
  }
  return true;
}

}  // namespace ennopt
