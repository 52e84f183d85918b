// The open nodes of a search and the threads that explore them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "scheme.hpp"

namespace ennopt {

// Local search from x inside a box: steps along the signs of the gradient, shorter
// when they do not help. Changes x, returns its value.
double ascend(const Model& model, const double* lower, const double* upper, double* x);

// What counts as proved: a bound of value + max(gap * max(|value|, floor), least).
struct Tolerance {
  double gap = 1e-4, floor = 0.0, least = 0.0;
  double cutoff(double value) const;
};

// Blocks of equal size from chunks that are never moved.
class Store {
 public:
  explicit Store(std::size_t stride) : stride_(stride) {}
  std::uint64_t put(const double* node);
  double* at(std::uint64_t slot);
  void release(std::uint64_t slot) { free_.push_back(slot); }

 private:
  static constexpr std::size_t kChunk = 1024;
  std::size_t stride_;
  std::vector<std::unique_ptr<double[]>> chunks_;
  std::vector<std::uint64_t> free_;
  std::uint64_t next_ = 0;
};

// When `explore` returns: nodes bounded, seconds, bytes of open nodes beyond which it
// dives instead of going best-first, nodes of one dive, threads; `eager` returns at a
// better point, so that what the caller makes of it comes at the same node every time.
struct Budget {
  double nodes = std::numeric_limits<double>::infinity();
  double seconds = std::numeric_limits<double>::infinity();
  double bytes = 2e9;
  int dive = 256;
  int threads = 1;
  bool eager = false;
};

class Tree {
 public:
  Tree(std::shared_ptr<const Scheme> scheme, Tolerance tolerance);

  void add(const double* node);      // a node of the scheme
  void plant();                      // the root
  bool take(double* node);           // the open node of the largest bound
  bool offer(const double* x);       // a point; true if it beats the incumbent
  std::int64_t explore(const Budget& budget);

  // What follows is to be asked between two calls of `explore`, not during one.
  double bound() const;              // no point of the nodes given is better: proved
  double value() const { return value_.load(); }
  double cutoff() const { return cutoff_.load(); }
  std::size_t open() const;
  double operations() const { return operations_; }  // of matrix products so far
  const std::vector<double>& point() const { return point_; }
  const Scheme& scheme() const { return *scheme_; }

 private:
  struct Crew;
  // The stack of a thread whose time was over, and how far it had dived: the next call
  // goes on there, so that the clock does not change the order of a single thread, and
  // several do not fill the open list at the end of each call.
  struct Rest {
    std::vector<double> stack;
    std::int64_t dived = 0;
  };
  void work(Crew& crew, Rest& rest);
  void push(const double* node);
  bool pop(double* node);
  void give_back(std::vector<double>& stack);
  bool offer_locked(const double* x, double value);

  std::shared_ptr<const Scheme> scheme_;
  const Model& model_;
  Tolerance tolerance_;
  std::vector<double> point_;
  Store store_;
  std::vector<std::pair<double, std::uint64_t>> heap_;
  std::vector<Rest> rests_;  // one for each thread
  std::atomic<double> value_, cutoff_;
  std::atomic<std::size_t> waiting_nodes_{0};
  double stuck_ = -std::numeric_limits<double>::infinity();  // leaves too thin to split
  double operations_ = 0.0;
  std::mutex mutex_;
};

}  // namespace ennopt
