#include "pool.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ennopt {

namespace {

// A free place: nothing is at least minus one, always.
constexpr Row kNothing{nullptr, nullptr, -1, -1.0, -1.0, -1, 0, 0, nullptr};
constexpr double kNothingHigh = 2.0;

}  // namespace

double largest_excess(const Model& model, const OutputRanges& outputs, const Row& row,
                      const double* lower, const double* upper, bool& missed) {
  double most = -row.side, width = 0.0, size = std::fabs(row.side);
  auto add = [&](double a, double low, double high, double reach) {
    most += std::max(a * low, a * high);
    width += std::fabs(a) * (high - low);
    size += std::fabs(a) * reach;
  };
  for (int p = 0; row.slopes && p < model.inputs; ++p)
    add(row.slopes[p], lower[p], upper[p], model.reach[p]);
  for (int o = 0; row.shares && o < model.outputs; ++o)
    add(row.shares[o], outputs.low[o], outputs.high[o],
        std::max(std::fabs(outputs.low[o]), std::fabs(outputs.high[o])));
  if (row.extra >= 0) {
    const int p = model.inputs + row.extra;
    add(-1.0, lower[p], upper[p], std::max(std::fabs(lower[p]), std::fabs(upper[p])));
  }
  const double rounding = model.unit + 0x1p-51 * (model.outputs + 2);
  most += 2.0 * rounding * size;
  missed = most < width + 4.0 * rounding * size;
  const double high = std::max(most, width);
  return high > 0.0 ? high : size > 0.0 ? size : 1.0;
}

Pool::Pool(const Model& model, OutputRanges outputs, std::vector<double> lower,
           std::vector<double> upper, std::size_t places, double room)
    : model_(model), outputs_(std::move(outputs)), lower_(std::move(lower)),
      upper_(std::move(upper)), room_(room), rows_(places, kNothing),
      highs_(places, kNothingHigh), slopes_(places * model.inputs),
      shares_(places * model.outputs), used_(places, 0) {}

int Pool::copy(Row* rows, double* highs) const {
  std::lock_guard lock(mutex_);
  std::copy(rows_.begin(), rows_.begin() + count_, rows);
  std::copy(highs_.begin(), highs_.begin() + count_, highs);
  return count_;
}

void Pool::use(int place) const {
  std::lock_guard lock(mutex_);
  used_[place] = ++clock_;
}

bool Pool::known(const Row& row, const double* slopes, const double* shares) const {
  for (int k = 0; k < count_; ++k) {
    const Row& other = rows_[k];
    if (used_[k] == 0 || other.extra != row.extra || other.side != row.side) continue;
    if (!other.slopes != !slopes || !other.shares != !shares) continue;
    if (slopes && !std::equal(slopes, slopes + model_.inputs, other.slopes)) continue;
    if (shares && !std::equal(shares, shares + model_.outputs, other.shares)) continue;
    return true;
  }
  return false;
}

bool Pool::put(Row row, const double* slopes, const double* shares) {
  std::lock_guard lock(mutex_);
  if (known(row, slopes, shares)) return true;
  const auto k = std::size_t(std::find(used_.begin(), used_.end(), 0u) - used_.begin());
  if (k == used_.size()) return false;
  if (slopes) {
    double* at = slopes_.data() + k * model_.inputs;
    std::copy(slopes, slopes + model_.inputs, at);
    row.slopes = at;
  }
  if (shares) {
    double* at = shares_.data() + k * model_.outputs;
    std::copy(shares, shares + model_.outputs, at);
    row.shares = at;
  }
  bool missed;
  highs_[k] = largest_excess(model_, outputs_, row, lower_.data(), upper_.data(), missed);
  rows_[k] = row;
  used_[k] = ++clock_;
  count_ = std::max(count_, int(k) + 1);
  return true;
}

bool Pool::learn(const double* slopes, double side) {
  Row row;
  row.side = side;
  row.edge = side + kRegionEdge * room_;
  return put(row, slopes, nullptr);
}

// Of a risk of the objective only its own outputs count. Weights are in their set up to
// rounding, and values are rounded.
bool Pool::learn_weights(int function, int risk, const double* weights) {
  const Function& own = model_.functions[function];
  std::vector<double> shares(model_.outputs, 0.0);
  if (risk < 0) shares.assign(weights, weights + model_.outputs);
  else
    for (int o : own.groups[risk].outputs) shares[o] = weights[o];
  double rounding = own.rounding;
  int o = 0;
  for (const Stack& stack : model_.stacks)
    for (double error : stack.output().error) rounding += std::fabs(shares[o++]) * error;
  Row row;
  row.extra = risk;
  row.edge = risk < 0 ? own.least - kRowEdge * (own.least - own.relaxed) : 0.0;
  row.side = (risk < 0 ? own.relaxed : 0.0) - rounding;
  return put(row, nullptr, shares.data());
}

void Pool::settle() {
  if (std::find(used_.begin(), used_.end(), 0u) != used_.end()) return;
  std::vector<std::size_t> order(rows_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return used_[a] < used_[b]; });
  for (std::size_t i = 0; i < order.size() / 2; ++i) {
    rows_[order[i]] = kNothing;
    highs_[order[i]] = kNothingHigh;
    used_[order[i]] = 0;
  }
}

}  // namespace ennopt
