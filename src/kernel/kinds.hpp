// Activations, number by number: value, slope, error of the value. The specification is
// src/ennopt/activations/kinds.py, which says where the errors come from.
#pragma once

constexpr double kUnit = 0x1p-53, kTiny = 1e-300;
constexpr double kUlps = 64.0 * 2.0 * kUnit;
constexpr double kGeluFactor = 0.7978845608028654, kGeluCubic = 0.044715;  // its tanh form
constexpr double kRoot2 = 1.4142135623730951, kRoot2Pi = 2.5066282746310002;

inline double logistic(double x) {
  const double e = std::exp(-std::fabs(x));
  return (x >= 0.0 ? 1.0 : e) / (1.0 + e);
}
inline double logistic_slope(double x) {
  const double e = std::exp(-std::fabs(x));
  return e / ((1.0 + e) * (1.0 + e));
}
inline double near_zero(double x) { return std::fmin(std::fmax(x, -40.0), 40.0); }
inline double gelu_inner(double x) {
  const double near = near_zero(x);
  return 2.0 * kGeluFactor * (near * (1.0 + kGeluCubic * near * near));
}
inline double normal_share(double x) { return 0.5 * std::erfc(near_zero(x) / -kRoot2); }

// Convex between its bends, concave outside of them.
struct Curve {
  Activation kind = Activation::relu;
  double alpha = 1.0;  // of ELU

  double first_bend() const {
    switch (kind) {
      case Activation::silu: return -2.3993572805154677;
      case Activation::gelu: return -kRoot2;
      case Activation::gelu_tanh: return -1.4185040087908283;
      default: return -kInfinity;
    }
  }
  double second_bend() const {
    switch (kind) {
      case Activation::tanh:
      case Activation::sigmoid: return 0.0;
      case Activation::silu:
      case Activation::gelu:
      case Activation::gelu_tanh: return -first_bend();
      default: return kInfinity;
    }
  }
  double value(double x) const {
    switch (kind) {
      case Activation::tanh: return std::tanh(x);
      case Activation::sigmoid: return logistic(x);
      case Activation::softplus: return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
      case Activation::elu: return x > 0.0 ? x : alpha * std::expm1(x);
      case Activation::silu: return x * logistic(x);
      case Activation::gelu: return x * normal_share(x);
      case Activation::gelu_tanh: return x * logistic(gelu_inner(x));
      default: return x > 0.0 ? x : 0.0;
    }
  }
  double slope(double x) const {
    const double near = near_zero(x);
    switch (kind) {
      case Activation::tanh: return 4.0 * logistic_slope(2.0 * x);
      case Activation::sigmoid: return logistic_slope(x);
      case Activation::softplus: return logistic(x);
      case Activation::elu: return x > 0.0 ? 1.0 : alpha * std::exp(x);
      case Activation::silu: return logistic(x) + x * logistic_slope(x);
      case Activation::gelu:
        return normal_share(x) + near * (std::exp(-0.5 * near * near) / kRoot2Pi);
      case Activation::gelu_tanh: {
        const double inner = gelu_inner(x);
        const double steep = 2.0 * kGeluFactor * (1.0 + 3.0 * kGeluCubic * near * near);
        return logistic(inner) + near * steep * logistic_slope(inner);
      }
      default: return x > 0.0 ? 1.0 : 0.0;
    }
  }
  double error(double x, double value) const {
    double ulps = kUlps;
    if (kind == Activation::relu) return 0.0;
    if (kind == Activation::gelu) {
      const double z = std::fmin(std::fmax(x, -40.0), 0.0);
      ulps += 8.0 * kUnit * z * z;
    }
    if (kind == Activation::gelu_tanh) ulps += 16.0 * kUnit * std::fmax(-gelu_inner(x), 0.0);
    return ulps * std::fabs(value) + kTiny;
  }
};

// The activation of a row.
inline Curve curve_of(const Layer& layer, int row) {
  if (layer.kinds.empty()) return {};
  return {layer.kinds[row], layer.alphas[row]};
}
