#include <algorithm>
#include <cmath>
#include <vector>

#include "forward.hpp"

namespace ennopt {
namespace {

#include "kinds.hpp"

}  // namespace

namespace {

// The outputs of a stack, at the end of a forward pass.
const double* pass(const Model& model, const Stack& stack, const double* x, double* buffer) {
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
  return y;
}

// All outputs at x, behind the first part of a buffer; room for as many weights follows.
double* outputs_at(const Model& model, const double* x, double* buffer) {
  double *found = buffer + 2 * (std::size_t(model.widest) + 1), *at = found;
  for (const Stack& stack : model.stacks) {
    const double* y = pass(model, stack, x, buffer);
    at = std::copy(y, y + stack.output().rows, at);
  }
  return found;
}

double value_of(const Model& model, const Function& function, double* outputs) {
  double *weights = outputs + model.outputs, sum = 0.0;
  respond(function, outputs, weights);
  for (int o = 0; o < model.outputs; ++o) sum += weights[o] * outputs[o];
  return sum;
}

}  // namespace

// Least sums over the weights of a risk.
void respond(const Function& function, const double* outputs, double* weights) {
  std::copy(function.weights.begin(), function.weights.end(), weights);
  for (const Group& group : function.groups) {
    const std::vector<int>& at = group.outputs;
    const double count = double(at.size());
    if (group.kind == Risk::capped) {
      for (std::size_t i = 0; i < at.size(); ++i) {
        int rank = 0;
        for (std::size_t j = 0; j < at.size(); ++j)
          rank += outputs[at[j]] < outputs[at[i]] ||
                  (outputs[at[j]] == outputs[at[i]] && j < i);
        weights[at[i]] = std::clamp(1.0 - rank * group.amount, 0.0, group.amount);
      }
      continue;
    }
    // What is off the mean: a direction, whose sum must be zero however short it is; so it
    // is centred once more. Absolute deviations have its signs.
    const bool signs = group.kind == Risk::absolute;
    double mean = 0.0, rest = 0.0, most = 0.0, length = 0.0;
    for (int o : at) mean += outputs[o];
    mean /= count;
    for (int o : at) {
      const double off = outputs[o] - mean;
      weights[o] = signs ? double(off > 0.0) - double(off < 0.0) : off;
      rest += weights[o];
    }
    rest /= count;
    for (int o : at) weights[o] -= rest, most = std::max(most, std::fabs(weights[o]));
    if (signs || !(most > 0.0)) most = 1.0;
    for (int o : at) weights[o] /= most, length += weights[o] * weights[o];
    length = signs ? count : std::sqrt(length) * std::sqrt(count);
    for (int o : at)
      weights[o] = group.mean / count -
                   (length > 0.0 ? group.amount * weights[o] / length : 0.0);
  }
}

void guide(Model& model, const double* x) {
  std::vector<double> buffer(forward_doubles(model));
  const double* outputs = outputs_at(model, x, buffer.data());
  for (Function& function : model.functions) {
    function.guide.resize(model.outputs);
    respond(function, outputs, function.guide.data());
  }
}

double evaluate(const Model& model, const double* x, double* buffer) {
  if (model.several())
    return value_of(model, model.functions[0], outputs_at(model, x, buffer));
  double sum = 0.0;
  for (const Stack& stack : model.stacks) sum += *pass(model, stack, x, buffer);
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
  return std::max(forward_doubles(model), 2 * at.wide + 2 * model.inputs +
                                              2 * at.wide * model.deepest + 2 * at.longest);
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

bool feasible(const Model& model, const double* x, double* buffer) {
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
  if (model.limits() == 0) return true;
  double* outputs = outputs_at(model, x, buffer);
  for (int j = 1; j <= model.limits(); ++j) {
    const Function& limit = model.functions[j];
    if (!(value_of(model, limit, outputs) >= limit.accepted)) return false;
  }
  return true;
}

}  // namespace ennopt
