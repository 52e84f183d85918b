#include "tree.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <thread>

namespace ennopt {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Forward pass; with `gradient` also the slopes at x (those of the off side at kinks).
double forward(const Model& model, const double* x, double* gradient) {
  double sum = 0.0;
  std::vector<std::vector<double>> values;
  std::vector<double> back, before;
  if (gradient) std::fill(gradient, gradient + model.inputs, 0.0);
  for (const Member& member : model.members) {
    values.assign(member.layers.size(), {});
    const double* y = x;
    for (std::size_t k = 0; k < member.layers.size(); ++k) {
      const Layer& layer = member.layers[k];
      values[k].resize(layer.rows);
      for (int r = 0; r < layer.rows; ++r) {
        double h = layer.bias[r];
        const double* w = layer.weights.data() + std::size_t(r) * layer.cols;
        for (int c = 0; c < layer.cols; ++c) h += w[c] * y[c];
        values[k][r] = k + 1 < member.layers.size() ? std::max(h, 0.0) : h;
      }
      y = values[k].data();
    }
    sum += y[0];
    if (!gradient) continue;
    back.assign(1, 1.0);
    for (std::size_t k = member.layers.size(); k-- > 0;) {
      const Layer& layer = member.layers[k];
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
    for (int p = 0; p < model.inputs; ++p) gradient[p] += back[p];
  }
  return sum;
}

}  // namespace

double evaluate(const Model& model, const double* x) { return forward(model, x, nullptr); }

double ascend(const Model& model, const double* lower, const double* upper, double* x) {
  const int d = model.inputs;
  std::vector<double> slope(d), trial(d);
  double value = forward(model, x, slope.data());
  for (double step = 0.1; step > 1e-7;) {
    for (int p = 0; p < d; ++p) {
      const double move = step * (upper[p] - lower[p]);
      const double to = x[p] + (slope[p] > 0 ? move : slope[p] < 0 ? -move : 0.0);
      trial[p] = std::clamp(to, lower[p], upper[p]);
    }
    const double reached = evaluate(model, trial.data());
    if (reached > value) {
      std::copy(trial.begin(), trial.end(), x);
      value = forward(model, x, slope.data());
    } else {
      step *= 0.5;
    }
  }
  return value;
}

double Tolerance::cutoff(double value) const {
  if (!std::isfinite(value)) return -kInfinity;
  return value + std::max(gap * std::max(std::fabs(value), floor), least);
}

std::uint64_t Store::put(const double* node) {
  std::uint64_t slot;
  if (!free_.empty()) {
    slot = free_.back();
    free_.pop_back();
  } else {
    slot = next_++;
    if (slot / kChunk >= chunks_.size())
      chunks_.push_back(std::make_unique<double[]>(kChunk * stride_));
  }
  std::memcpy(at(slot), node, stride_ * sizeof(double));
  return slot;
}

double* Store::at(std::uint64_t slot) {
  return chunks_[slot / kChunk].get() + (slot % kChunk) * stride_;
}

// What the threads of one `explore` share.
struct Tree::Crew {
  Budget budget;
  std::chrono::steady_clock::time_point deadline;
  bool timed = false;
  std::atomic<std::int64_t> nodes{0};
  std::atomic<int> idle{0};
  std::atomic<bool> stop{false};
};

Tree::Tree(std::shared_ptr<const Scheme> scheme, Tolerance tolerance)
    : scheme_(std::move(scheme)), model_(scheme_->model()), tolerance_(tolerance),
      store_(scheme_->stride()), value_(-kInfinity), cutoff_(-kInfinity) {}

void Tree::push(const double* node) {
  heap_.emplace_back(node[0], store_.put(node));
  std::push_heap(heap_.begin(), heap_.end());
}

bool Tree::pop(double* node) {
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end());
  const std::uint64_t slot = heap_.back().second;
  heap_.pop_back();
  waiting_nodes_ = heap_.size();
  std::memcpy(node, store_.at(slot), scheme_->stride() * sizeof(double));
  store_.release(slot);
  return true;
}

void Tree::give_back(std::vector<double>& stack) {
  const std::size_t stride = scheme_->stride();
  for (std::size_t at = 0; at < stack.size(); at += stride) push(stack.data() + at);
  stack.clear();
  waiting_nodes_ = heap_.size();
}

void Tree::add(const double* node) {
  std::lock_guard lock(mutex_);
  push(node);
}

bool Tree::take(double* node) {
  std::lock_guard lock(mutex_);
  for (Rest& rest : rests_) give_back(rest.stack);
  return pop(node);
}

void Tree::plant() {
  std::vector<double> node(scheme_->stride(), 0.0);
  scheme_->root(node.data());
  add(node.data());
}

bool Tree::offer_locked(const double* x, double value) {
  if (!(value > value_.load())) return false;
  value_ = value;
  cutoff_ = tolerance_.cutoff(value);
  point_.assign(x, x + model_.inputs);
  return true;
}

bool Tree::offer(const double* x) {
  const double value = evaluate(model_, x);
  std::lock_guard lock(mutex_);
  return offer_locked(x, value);
}

double Tree::bound() const {
  double bound = std::max(stuck_, cutoff_.load());
  if (!heap_.empty()) bound = std::max(bound, heap_.front().first);
  for (const Rest& rest : rests_)
    for (std::size_t at = 0; at < rest.stack.size(); at += scheme_->stride())
      bound = std::max(bound, rest.stack[at]);
  return bound;
}

std::size_t Tree::open() const {
  std::size_t count = heap_.size();
  for (const Rest& rest : rests_) count += rest.stack.size() / scheme_->stride();
  return count;
}

// One thread: bound batches of nodes from the top of a private stack, so that a batch
// holds close relatives and memory stays small; give the stack back to the shared list
// after `dive` nodes, which keeps the search close to best-first.
void Tree::work(Crew& crew, Rest& rest) {
  const std::size_t stride = scheme_->stride();
  const int lanes = scheme_->batch(), d = model_.inputs;
  const std::vector<double>&lower = scheme_->lower(), &upper = scheme_->upper();
  std::vector<char> scratch(scheme_->scratch_bytes());
  std::vector<double>& stack = rest.stack;
  std::vector<double> batch(stride * lanes), points(std::size_t(lanes) * d), x(d);
  std::vector<double*> nodes(lanes);
  std::vector<Outcome> outcomes(lanes);
  for (int i = 0; i < lanes; ++i) nodes[i] = batch.data() + i * stride;
  bool idle = false;
  double stuck = -kInfinity, operations = 0.0;

  while (!crew.stop.load(std::memory_order_relaxed)) {
    int count = 0;
    const double cutoff = cutoff_.load();
    while (count < lanes && !stack.empty()) {
      const double* top = stack.data() + stack.size() - stride;
      if (top[0] > cutoff) std::copy(top, top + stride, nodes[count++]);
      stack.resize(stack.size() - stride);
    }
    if (count < lanes) {
      std::lock_guard lock(mutex_);
      while (count < lanes && pop(nodes[count])) {
        if (idle) crew.idle--, idle = false;
        if (nodes[count][0] <= cutoff) {  // so are all the others
          heap_.clear();
          waiting_nodes_ = 0;
          store_ = Store(stride);
          break;
        }
        ++count;
      }
      if (count == 0 && !idle) crew.idle++, idle = true;
    }
    if (count == 0) {
      if (crew.idle.load() == crew.budget.threads) break;
      if (crew.timed && std::chrono::steady_clock::now() >= crew.deadline) crew.stop = true;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      continue;
    }
    for (int i = 0; i < count; ++i) {
      outcomes[i] = Outcome{};
      outcomes[i].point = points.data() + std::size_t(i) * d;
    }
    operations +=
        scheme_->bound(cutoff, nodes.data(), count, outcomes.data(), scratch.data());
    for (int i = 0; i < count; ++i) {
      Outcome& out = outcomes[i];
      if (out.value > value_.load()) {
        for (int p = 0; p < d; ++p)
          x[p] = std::clamp(out.point[p], lower[p], upper[p]);
        const double value = ascend(model_, lower.data(), upper.data(), x.data());
        std::lock_guard lock(mutex_);
        if (offer_locked(x.data(), value) && crew.budget.eager) crew.stop = true;
      }
      double* node = nodes[i];
      if (out.fate == Fate::stuck) stuck = std::max(stuck, node[0]);
      if (out.fate == Fate::again) stack.insert(stack.end(), node, node + stride);
      if (out.fate == Fate::split) scheme_->split(node, out, stack);
    }
    int whole = 0;
    for (int i = 0; i < count; ++i) whole += outcomes[i].whole;
    rest.dived += count;
    const std::int64_t total = crew.nodes += whole;
    if (double(total) >= crew.budget.nodes) crew.stop = true;
    if (crew.timed && std::chrono::steady_clock::now() >= crew.deadline) crew.stop = true;
    const bool hungry = crew.idle.load(std::memory_order_relaxed) > 0;
    const bool full = double(waiting_nodes_.load()) * stride * 8 > crew.budget.bytes;
    if ((rest.dived >= crew.budget.dive && !full) || hungry) {
      std::lock_guard lock(mutex_);
      give_back(stack);
      rest.dived = 0;
    }
  }
  std::lock_guard lock(mutex_);
  stuck_ = std::max(stuck_, stuck);
  operations_ += operations;
}

std::int64_t Tree::explore(const Budget& budget) {
  Crew crew;
  crew.budget = budget;
  crew.timed = budget.seconds < 1e9;  // a longer time does not fit the clock
  if (crew.timed)
    crew.deadline = std::chrono::steady_clock::now() +
                    std::chrono::nanoseconds(std::int64_t(budget.seconds * 1e9));
  while (rests_.size() > std::size_t(budget.threads)) {
    give_back(rests_.back().stack);
    rests_.pop_back();
  }
  rests_.resize(budget.threads);
  std::vector<std::exception_ptr> errors(budget.threads);
  auto guarded = [&](int t) {
    try {
      work(crew, rests_[t]);
    } catch (...) {  // out of memory
      errors[t] = std::current_exception();
      crew.stop = true;
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < budget.threads; ++t) others.emplace_back(guarded, t);
  guarded(0);
  for (std::thread& thread : others) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return crew.nodes.load();
}

}  // namespace ennopt
