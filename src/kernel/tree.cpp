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
    if (next_ / kChunk >= chunks_.size()) {
      free_.reserve((chunks_.size() + 1) * kChunk);
      chunks_.push_back(std::make_unique<double[]>(kChunk * stride_));
    }
    slot = next_++;
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

Tree::Tree(std::shared_ptr<Scheme> scheme, Tolerance tolerance, bool journal)
    : scheme_(std::move(scheme)), model_(scheme_->model()), tolerance_(tolerance),
      journaling_(journal), stride_(scheme_->stride() + (journal ? 1 : 0)), store_(stride_),
      value_(-kInfinity), cutoff_(-kInfinity) {
  values_.reserve(kPool + 1);
  points_.reserve(kPool + 1);
}

void Tree::push(const double* node) {
  if (heap_.size() == heap_.capacity()) heap_.reserve(2 * heap_.size() + 1);
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
  std::size_t at = 0;
  try {
    for (; at < stack.size(); at += stride_) push(stack.data() + at);
  } catch (...) {  // out of memory: the others stay
    stack.erase(stack.begin(), stack.begin() + std::ptrdiff_t(at));
    throw;
  }
  stack.clear();
  waiting_nodes_ = heap_.size();
}

void Tree::add(const double* node) {
  std::lock_guard lock(mutex_);
  std::vector<double> own(node, node + stride_);
  if (journaling_ && own.back() == 0.0) own.back() = double(numbered_ + 1);
  reserve_lines(1);
  push(own.data());
  if (journaling_) numbered_ = std::max(numbered_, std::uint64_t(own.back()));
  write(Kind::add, number(own.data()), -kInfinity);
}

std::size_t Tree::take(std::size_t most, double* nodes) {
  std::lock_guard lock(mutex_);
  for (Rest& rest : rests_) give_back(rest.stack);
  const std::size_t count = std::min(most, heap_.size());
  reserve_lines(count);
  for (std::size_t i = 0; i < count; ++i) {
    pop(nodes + i * stride_);
    write(Kind::take, number(nodes + i * stride_), -kInfinity);
  }
  return count;
}

void Tree::close(double bound) {
  closed_ = std::max(closed_, bound);
  write(Kind::close, 0.0, bound);
}

void Tree::plant() {
  std::vector<double> node(stride_, 0.0);
  scheme_->root(node.data());
  add(node.data());
}

bool Tree::offer_locked(const double* x, double value) {
  if (!(value > -kInfinity)) return false;
  const bool best = value > value_.load();
  auto near = [&](const std::vector<double>& other) {
    for (int p = 0; p < model_.inputs; ++p) {
      const double width = model_.set.upper[p] - model_.set.lower[p];
      if (std::fabs(x[p] - other[p]) > kApart * (width > 0.0 ? width : 1.0)) return false;
    }
    return true;
  };
  for (std::size_t i = 0; i < points_.size(); ++i)
    if (values_[i] >= value && near(points_[i])) return false;
  std::vector<double> own(x, x + model_.inputs);
  for (std::size_t i = points_.size(); i-- > 0;)
    if (near(points_[i])) points_.erase(points_.begin() + i), values_.erase(values_.begin() + i);
  const auto place = std::upper_bound(values_.begin(), values_.end(), value,
                                      [](double a, double b) { return a > b; });
  const auto at = place - values_.begin();
  values_.insert(place, value);
  points_.insert(points_.begin() + at, std::move(own));
  if (points_.size() > kPool) points_.pop_back(), values_.pop_back();
  if (!best) return false;
  value_ = value;
  cutoff_ = tolerance_.cutoff(value);
  return true;
}

bool Tree::offer(const double* x) {
  std::vector<double> buffer(forward_doubles(model_));
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
  nodes.clear();
  for (const auto& [bound, slot] : heap_)
    nodes.insert(nodes.end(), store_.at(slot), store_.at(slot) + stride_);
  for (const Rest& rest : rests_)
    nodes.insert(nodes.end(), rest.stack.begin(), rest.stack.end());
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

void Tree::reserve_lines(std::size_t count) {
  const std::size_t size = lines_.size() + count * kLineNumbers;
  if (journaling_ && size > lines_.capacity()) lines_.reserve(2 * size);
}

void Tree::write(Kind kind, double number, double bound, double place, double x, double y) {
  if (journaling_)
    lines_.insert(lines_.end(), {double(int(kind)), number, place, x, y, bound});
}

// Everything a thread needs, allocated once.
struct Tree::Worker {
  int lanes, count = 0, followed = 0;  // nodes of the batch; those followed up so far
  bool idle = false, copied = false;  // whether `before` is the batch as it was taken
  double closed = -kInfinity, operations = 0.0;
  std::vector<char> scratch;
  std::vector<double> batch, before, points, x, start, other, ascent;
  std::vector<double*> nodes;
  std::vector<Outcome> outcomes;

  Worker(const Scheme& scheme, std::size_t stride, bool journal)
      : lanes(scheme.batch()), scratch(scheme.scratch_bytes()), batch(stride * lanes),
        before(journal ? stride * lanes : 0),
        points(std::size_t(lanes) * scheme.model().inputs), x(scheme.model().inputs),
        start(x.size()), other(stride), ascent(ascent_doubles(scheme.model())),
        nodes(lanes), outcomes(lanes) {
    for (int i = 0; i < lanes; ++i) nodes[i] = batch.data() + i * stride;
  }
};

// The next batch: from the private stack, then from the open list. Nodes that cannot
// beat the cutoff any more are closed with the bound they have.
void Tree::fill(Crew& crew, Worker& worker, std::vector<double>& stack, double cutoff) {
  auto close = [&](const double* node) {
    reserve_lines(1);
    worker.closed = std::max(worker.closed, node[0]);
    write(Kind::close, number(node), node[0]);
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
    double* node = worker.nodes[worker.count++];
    if (node[0] > cutoff) continue;
    close(node);  // so are all the others
    --worker.count;
    if (journaling_) continue;
    heap_.clear();
    waiting_nodes_ = 0;
    store_ = Store(stride_);
    break;
  }
  if (worker.count == 0 && !worker.idle) crew.idle++, worker.idle = true;
}

void Tree::suggest(const double* x) {
  std::lock_guard lock(mutex_);
  std::vector<double> own;
  if (candidates_.size() == kPool) {  // the oldest makes room
    own = std::move(candidates_.front());
    candidates_.erase(candidates_.begin());
  }
  own.assign(x, x + model_.inputs);
  candidates_.push_back(std::move(own));
}

// A point that looks better: climb from it; what is not feasible is a candidate.
void Tree::meet(Crew& crew, Worker& worker, const Outcome& outcome) {
  const Set& set = model_.set;
  for (int p = 0; p < model_.inputs; ++p)
    worker.start[p] =
        set.nearest(p, std::clamp(outcome.point[p], set.lower[p], set.upper[p]));
  worker.x = worker.start;
  double value, *scratch = worker.ascent.data();
  auto missed = [&] {
    return !(set.free() && model_.limits() == 0) && !feasible(model_, worker.x.data(), scratch);
  };
  if (!model_.several()) value = ascend(model_, worker.x.data(), scratch);
  if (model_.several() || missed()) {
    worker.x = worker.start;
    value = evaluate(model_, worker.x.data(), scratch);
    if (model_.several() && !(value > value_.load())) return;
    if (missed()) {
      suggest(worker.x.data());
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
  const bool ends = out.fate == Fate::closed || out.fate == Fate::stuck;
  const double removed = out.fate == Fate::stuck ? std::max(out.dropped, node[0]) : out.dropped;
  std::unique_lock lock(mutex_, std::defer_lock);
  if (journaling_) {
    lock.lock();
    reserve_lines(std::size_t(model_.inputs) + 2);
    const double own = number(node);
    const std::function<void(int, double, double)> clipped =
        [&](int p, double low, double high) {
          write(Kind::clip, own, removed, p, low, high);
        };
    if (ends) write(Kind::close, own, removed);
    if (!ends && removed > -kInfinity) write(Kind::exclude, own, removed);
    if (!ends) scheme_->clips(worker.before.data() + lane * stride_, node, clipped);
    if (out.fate == Fate::split)
      write(Kind::split, own, -kInfinity, out.place, out.middle, double(numbered_ + 1));
  }
  worker.closed = std::max(worker.closed, removed);
  if (out.fate == Fate::again) stack.insert(stack.end(), node, node + stride_);
  if (out.fate != Fate::split) return;
  std::copy(node, node + stride_, worker.other.begin());
  scheme_->split(node, worker.other.data(), out);
  for (double* part : {node, worker.other.data()}) {
    if (journaling_) part[stride_ - 1] = double(++numbered_);
    stack.insert(stack.end(), part, part + stride_);
  }
}

// Room on the stack for all parts of a batch, and for the batch itself.
void Tree::make_room(Worker& worker, std::vector<double>& stack) {
  const std::size_t size = stack.size() + 2 * std::size_t(worker.lanes) * stride_;
  if (size > stack.capacity()) stack.reserve(2 * size);
}

void Tree::work(Crew& crew, Rest& rest) {
  Worker worker(*scheme_, stride_, journaling_);
  auto settle = [&] {
    std::lock_guard lock(mutex_);
    closed_ = std::max(closed_, worker.closed);
    operations_ += worker.operations;
  };
  try {
    explore_batches(crew, worker, rest);
  } catch (...) {  // out of memory
    for (int i = worker.followed; i < worker.count; ++i) {
      // As it was taken, or as it is by now, and no point that it lost beats `dropped`.
      const double* node = worker.copied ? worker.before.data() + i * stride_ : worker.nodes[i];
      rest.stack.insert(rest.stack.end(), node, node + stride_);
      if (!worker.copied) worker.closed = std::max(worker.closed, worker.outcomes[i].dropped);
    }
    settle();
    throw;
  }
  settle();
}

// One thread: bound batches of nodes from the top of a private stack, so that a batch
// holds close relatives and memory stays small; give the stack back to the shared list
// after `dive` nodes, which keeps the search close to best-first.
void Tree::explore_batches(Crew& crew, Worker& worker, Rest& rest) {
  const int d = model_.inputs;
  std::vector<double>& stack = rest.stack;
  while (!crew.stop.load(std::memory_order_relaxed)) {
    const double cutoff = cutoff_.load();
    worker.count = worker.followed = 0;
    worker.copied = false;
    make_room(worker, stack);
    for (int i = 0; i < worker.lanes; ++i) {
      worker.outcomes[i] = Outcome{};
      worker.outcomes[i].point = worker.points.data() + std::size_t(i) * d;
    }
    fill(crew, worker, stack, cutoff);
    if (worker.count == 0) {
      if (crew.idle.load() == crew.budget.threads) break;
      if (crew.timed && std::chrono::steady_clock::now() >= crew.deadline) crew.stop = true;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      continue;
    }
    if (journaling_) worker.before = worker.batch;
    worker.copied = journaling_;
    worker.operations += scheme_->bound(cutoff, worker.nodes.data(), worker.count,
                                        worker.outcomes.data(), worker.scratch.data());
    int whole = 0;
    if (model_.several()) {  // limits are missed nearly everywhere: the most promising one
      const auto most = std::max_element(
          worker.outcomes.begin(), worker.outcomes.begin() + worker.count,
          [](const Outcome& one, const Outcome& two) { return one.value < two.value; });
      meet(crew, worker, *most);
    }
    for (int i = 0; i < worker.count; ++i) {
      if (!model_.several() && worker.outcomes[i].value > value_.load())
        meet(crew, worker, worker.outcomes[i]);
      else if (worker.outcomes[i].wanted)
        suggest(worker.outcomes[i].point);
      if (worker.outcomes[i].waits) crew.stop = true;
      follow(worker, i, stack);
      worker.followed = i + 1;
      whole += worker.outcomes[i].whole;
    }
    rest.dived += worker.count;
    worker.count = worker.followed = 0;
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
}

std::int64_t Tree::explore(const Budget& budget) {
  if (model_.several() && value() > guided_) {
    scheme_->guide(points_.front().data());
    guided_ = value();
  }
  scheme_->settle();
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
  try {
    others.reserve(budget.threads);
    for (int t = 1; t < budget.threads; ++t) others.emplace_back(guarded, t);
  } catch (...) {  // no thread to be had
    errors[0] = std::current_exception();
    crew.stop = true;
  }
  guarded(0);
  for (std::thread& thread : others) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return crew.nodes.load();
}

}  // namespace ennopt
