#include <algorithm>
#include <vector>

#include "forward.hpp"

namespace ennopt {

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
        next[r] = hidden ? std::max(h, 0.0) : h;
      }
      y = next;
      std::swap(next, other);
    }
    sum += y[0];
  }
  return sum;
}

namespace {

// Slopes at x, those of the off side at kinks; `values` and `back` are scratch.
void gradient(const Model& model, const double* x, double* slopes,
              std::vector<std::vector<double>>& values, std::vector<double>& back,
              std::vector<double>& before) {
  std::fill(slopes, slopes + model.inputs, 0.0);
  for (const Stack& stack : model.stacks) {
    const double* y = x;
    const std::size_t hidden = stack.layers.size() - 1;
    for (std::size_t k = 0; k < hidden; ++k) {
      const Layer& layer = stack.layers[k];
      values[k].resize(layer.rows);
      for (int r = 0; r < layer.rows; ++r) {
        double h = layer.bias[r];
        const double* w = layer.weights.data() + std::size_t(r) * layer.cols;
        for (int c = 0; c < layer.cols; ++c) h += w[c] * y[c];
        values[k][r] = std::max(h, 0.0);
      }
      y = values[k].data();
    }
    back.assign(1, 1.0);
    for (std::size_t k = hidden + 1; k-- > 0;) {
      const Layer& layer = stack.layers[k];
      before.assign(layer.cols, 0.0);
      for (int r = 0; r < layer.rows; ++r) {
        const double* w = layer.weights.data() + std::size_t(r) * layer.cols;
        if (back[r] != 0.0)
          for (int c = 0; c < layer.cols; ++c) before[c] += back[r] * w[c];
      }
      if (k > 0)
        for (int c = 0; c < layer.cols; ++c)
          if (!(values[k - 1][c] > 0.0)) before[c] = 0.0;
      back.swap(before);
    }
    for (int p = 0; p < model.inputs; ++p) slopes[p] += back[p];
  }
}

}  // namespace

double ascend(const Model& model, double* x) {
  const int d = model.inputs;
  const std::vector<double>&lower = model.set.lower, &upper = model.set.upper;
  std::vector<double> slope(d), trial(d), buffer(2 * (model.widest + 1)), back, before;
  std::vector<std::vector<double>> values(model.deepest);
  double value = evaluate(model, x, buffer.data());
  gradient(model, x, slope.data(), values, back, before);
  for (double step = 0.1; step > 1e-7;) {
    for (int p = 0; p < d; ++p) {
      const double move = step * (upper[p] - lower[p]);
      const double to = x[p] + (slope[p] > 0 ? move : slope[p] < 0 ? -move : 0.0);
      trial[p] = std::clamp(to, lower[p], upper[p]);
    }
    const double reached = evaluate(model, trial.data(), buffer.data());
    if (reached > value) {
      std::copy(trial.begin(), trial.end(), x);
      value = reached;
      gradient(model, x, slope.data(), values, back, before);
    } else {
      step *= 0.5;
    }
  }
  return value;
}

bool feasible(const Model& model, const double* x) {
  for (int k = 0; k < model.set.half_spaces(); ++k) {
    const double* slopes = model.set.slopes.data() + std::size_t(k) * model.inputs;
    double value = 0.0, size = 0.0;
    for (int p = 0; p < model.inputs; ++p) {
      value += slopes[p] * x[p];
      size += (slopes[p] < 0 ? -slopes[p] : slopes[p]) * model.reach[p];
    }
    if (!(value - model.set.sides[k] >= 1e-12 * size)) return false;
  }
  return true;
}

}  // namespace ennopt
