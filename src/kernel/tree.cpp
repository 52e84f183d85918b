#include "tree.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <thread>

#include "forward.hpp"

namespace ennopt {

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

Tree::Tree(std::shared_ptr<const Scheme> scheme, Tolerance tolerance, bool journal)
    : scheme_(std::move(scheme)), model_(scheme_->model()), tolerance_(tolerance),
      journaling_(journal), stride_(scheme_->stride() + (journal ? 1 : 0)), store_(stride_),
      value_(-kInfinity), cutoff_(-kInfinity) {}

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
  std::memcpy(node, store_.at(slot), stride_ * sizeof(double));
  store_.release(slot);
  return true;
}

void Tree::give_back(std::vector<double>& stack) {
  for (std::size_t at = 0; at < stack.size(); at += stride_) push(stack.data() + at);
  stack.clear();
  waiting_nodes_ = heap_.size();
}

void Tree::add(const double* node) {
  std::lock_guard lock(mutex_);
  std::vector<double> own(node, node + scheme_->stride());
  if (journaling_) own.push_back(double(++numbered_));
  push(own.data());
}

bool Tree::take(double* node) {
  std::lock_guard lock(mutex_);
  for (Rest& rest : rests_) give_back(rest.stack);
  std::vector<double> own(stride_);
  if (!pop(own.data())) return false;
  std::copy(own.begin(), own.begin() + scheme_->stride(), node);
  return true;
}

void Tree::plant() {
  std::vector<double> node(scheme_->stride(), 0.0);
  scheme_->root(node.data());
  add(node.data());
}

bool Tree::offer_locked(const double* x, double value) {
  const bool best = value > value_.load();
  if (!best && !(points_.size() < kPool && value > -kInfinity)) return false;
  const auto place = std::upper_bound(values_.begin(), values_.end(), value,
                                      [](double a, double b) { return a > b; });
  const auto at = place - values_.begin();
  values_.insert(place, value);
  points_.insert(points_.begin() + at, std::vector<double>(x, x + model_.inputs));
  if (points_.size() > kPool) points_.pop_back(), values_.pop_back();
  if (!best) return false;
  value_ = value;
  cutoff_ = tolerance_.cutoff(value);
  return true;
}

bool Tree::offer(const double* x) {
  std::vector<double> buffer(2 * (model_.widest + 1));
  const double value = evaluate(model_, x, buffer.data());
  std::lock_guard lock(mutex_);
  return offer_locked(x, value);
}

double Tree::bound() const {
  double bound = closed_;
  if (!heap_.empty()) bound = std::max(bound, heap_.front().first);
  for (const Rest& rest : rests_)
    for (std::size_t at = 0; at < rest.stack.size(); at += stride_)
      bound = std::max(bound, rest.stack[at]);
  return bound;
}

std::size_t Tree::open() const {
  std::size_t count = heap_.size();
  for (const Rest& rest : rests_) count += rest.stack.size() / stride_;
  return count;
}

void Tree::snapshot(std::vector<double>& nodes) {
  const std::size_t width = scheme_->stride();
  nodes.clear();
  for (const auto& [bound, slot] : heap_)
    nodes.insert(nodes.end(), store_.at(slot), store_.at(slot) + width);
  for (const Rest& rest : rests_)
    for (std::size_t at = 0; at < rest.stack.size(); at += stride_)
      nodes.insert(nodes.end(), rest.stack.data() + at, rest.stack.data() + at + width);
}

std::vector<std::vector<double>> Tree::candidates() {
  std::vector<std::vector<double>> found;
  found.swap(candidates_);
  return found;
}

std::vector<double> Tree::journal() {
  std::vector<double> found;
  found.swap(lines_);
  return found;
}

void Tree::write(Kind kind, const double* node, double place, double x, double y) {
  lines_.insert(lines_.end(), {double(int(kind)), number(node), place, x, y});
}

// Everything a thread needs, allocated once.
struct Tree::Worker {
  int lanes, count = 0;
  bool idle = false;
  double closed = -kInfinity, operations = 0.0;
  std::vector<char> scratch;
  std::vector<double> batch, before, points, x, start, other;
  std::vector<double*> nodes;
  std::vector<Outcome> outcomes;

  Worker(const Scheme& scheme, std::size_t stride, bool journal)
      : lanes(scheme.batch()), scratch(scheme.scratch_bytes()), batch(stride * lanes),
        before(journal ? stride * lanes : 0),
        points(std::size_t(lanes) * scheme.model().inputs), x(scheme.model().inputs),
        start(x.size()), other(stride), nodes(lanes), outcomes(lanes) {
    for (int i = 0; i < lanes; ++i) nodes[i] = batch.data() + i * stride;
  }
};

// The next batch: from the private stack, then from the open list. Nodes that cannot
// beat the cutoff any more are closed with the bound they have.
void Tree::fill(Crew& crew, Worker& worker, std::vector<double>& stack, double cutoff) {
  worker.count = 0;
  auto close = [&](const double* node) {
    worker.closed = std::max(worker.closed, node[0]);
    if (journaling_) write(Kind::close, node, -1.0, node[0], 0.0);
  };
  std::unique_lock lock(mutex_, std::defer_lock);
  if (journaling_) lock.lock();
  while (worker.count < worker.lanes && !stack.empty()) {
    const double* top = stack.data() + stack.size() - stride_;
    if (top[0] > cutoff)
      std::copy(top, top + stride_, worker.nodes[worker.count++]);
    else
      close(top);
    stack.resize(stack.size() - stride_);
  }
  if (worker.count == worker.lanes) return;
  if (!lock.owns_lock()) lock.lock();
  while (worker.count < worker.lanes && pop(worker.nodes[worker.count])) {
    if (worker.idle) crew.idle--, worker.idle = false;
    double* node = worker.nodes[worker.count];
    if (node[0] > cutoff) {
      ++worker.count;
      continue;
    }
    close(node);  // so are all the others
    if (journaling_) continue;
    heap_.clear();
    waiting_nodes_ = 0;
    store_ = Store(stride_);
    break;
  }
  if (worker.count == 0 && !worker.idle) crew.idle++, worker.idle = true;
}

// A point that looks better: climb from it; what is not feasible is a candidate.
void Tree::meet(Crew& crew, Worker& worker, const Outcome& outcome) {
  const Set& set = model_.set;
  for (int p = 0; p < model_.inputs; ++p)
    worker.start[p] = std::clamp(outcome.point[p], set.lower[p], set.upper[p]);
  worker.x = worker.start;
  double value = ascend(model_, worker.x.data());
  if (set.half_spaces() && !feasible(model_, worker.x.data())) {
    worker.x = worker.start;
    std::vector<double> buffer(2 * (model_.widest + 1));
    value = evaluate(model_, worker.x.data(), buffer.data());
    if (!feasible(model_, worker.x.data())) {
      std::lock_guard lock(mutex_);
      if (candidates_.size() == kPool) candidates_.erase(candidates_.begin());
      candidates_.push_back(worker.x);
      return;
    }
  }
  std::lock_guard lock(mutex_);
  if (offer_locked(worker.x.data(), value) && crew.budget.eager) crew.stop = true;
}

// Keep the open parts of a bounded node, and what is proved of the rest.
void Tree::follow(Worker& worker, int lane, std::vector<double>& stack) {
  const Outcome& out = worker.outcomes[lane];
  double* node = worker.nodes[lane];
  worker.closed = std::max(worker.closed, out.dropped);
  if (out.fate == Fate::stuck) worker.closed = std::max(worker.closed, node[0]);
  std::unique_lock lock(mutex_, std::defer_lock);
  if (journaling_) {
    lock.lock();
    if (out.fate == Fate::closed) write(Kind::close, node, -1.0, out.dropped, 0.0);
    if (out.fate == Fate::stuck)
      write(Kind::close, node, -1.0, std::max(out.dropped, node[0]), 0.0);
    if (out.fate == Fate::split || out.fate == Fate::again)
      scheme_->clips(worker.before.data() + lane * stride_, node,
                     [&](int p, double low, double high) {
                       write(Kind::clip, node, p, low, high);
                     });
  }
  if (out.fate == Fate::again) stack.insert(stack.end(), node, node + stride_);
  if (out.fate != Fate::split) return;
  if (journaling_)
    write(Kind::split, node, out.place, out.middle, double(numbered_ + 1));
  std::copy(node, node + stride_, worker.other.begin());
  scheme_->split(node, worker.other.data(), out);
  for (double* part : {node, worker.other.data()}) {
    if (journaling_) part[stride_ - 1] = double(++numbered_);
    stack.insert(stack.end(), part, part + stride_);
  }
}

// One thread: bound batches of nodes from the top of a private stack, so that a batch
// holds close relatives and memory stays small; give the stack back to the shared list
// after `dive` nodes, which keeps the search close to best-first.
void Tree::work(Crew& crew, Rest& rest) {
  Worker worker(*scheme_, stride_, journaling_);
  const int d = model_.inputs;
  std::vector<double>& stack = rest.stack;
  while (!crew.stop.load(std::memory_order_relaxed)) {
    const double cutoff = cutoff_.load();
    fill(crew, worker, stack, cutoff);
    if (worker.count == 0) {
      if (crew.idle.load() == crew.budget.threads) break;
      if (crew.timed && std::chrono::steady_clock::now() >= crew.deadline) crew.stop = true;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      continue;
    }
    for (int i = 0; i < worker.count; ++i) {
      worker.outcomes[i] = Outcome{};
      worker.outcomes[i].point = worker.points.data() + std::size_t(i) * d;
    }
    if (journaling_) worker.before = worker.batch;
    worker.operations += scheme_->bound(cutoff, worker.nodes.data(), worker.count,
                                        worker.outcomes.data(), worker.scratch.data());
    int whole = 0;
    for (int i = 0; i < worker.count; ++i) {
      if (worker.outcomes[i].value > value_.load()) meet(crew, worker, worker.outcomes[i]);
      follow(worker, i, stack);
      whole += worker.outcomes[i].whole;
    }
    rest.dived += worker.count;
    const std::int64_t total = crew.nodes += whole;
    if (double(total) >= crew.budget.nodes) crew.stop = true;
    if (crew.timed && std::chrono::steady_clock::now() >= crew.deadline) crew.stop = true;
    const bool hungry = crew.idle.load(std::memory_order_relaxed) > 0;
    const bool full = double(waiting_nodes_.load()) * stride_ * 8 > crew.budget.bytes;
    if ((rest.dived >= crew.budget.dive && !full) || hungry) {
      std::lock_guard lock(mutex_);
      give_back(stack);
      rest.dived = 0;
    }
  }
  std::lock_guard lock(mutex_);
  closed_ = std::max(closed_, worker.closed);
  operations_ += worker.operations;
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
