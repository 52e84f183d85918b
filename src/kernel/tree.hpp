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

// What the journal of a tree tells, five numbers a line: the kind, the node and
//   split  place, split point, number of the first child (the second has the next one)
//   clip   input, its new lower and upper end
//   close  -1, the bound, 0
enum class Kind : int { split = 0, clip = 1, close = 2 };

class Tree {
 public:
  // With a journal nodes are numbered, from 1 on, and what becomes of them is written down.
  Tree(std::shared_ptr<const Scheme> scheme, Tolerance tolerance, bool journal);

  void add(const double* node);      // a node of the scheme
  void plant();                      // the root
  bool take(double* node);           // the open node of the largest bound
  bool offer(const double* x);       // a feasible point; true if it is the best so far
  std::int64_t explore(const Budget& budget);

  // What follows is to be asked between two calls of `explore`, not during one.
  double bound() const;              // no point of the nodes given is better: proved
  double closed() const { return closed_; }  // nor of what was closed or left out
  void close(double bound) { closed_ = bound > closed_ ? bound : closed_; }  // elsewhere
  double value() const { return value_.load(); }
  double cutoff() const { return cutoff_.load(); }
  std::size_t open() const;
  void snapshot(std::vector<double>& nodes);  // all open nodes, which stay
  double operations() const { return operations_; }  // of matrix products so far
  // Incumbents, the best first; points that would be better if they were feasible.
  const std::vector<std::vector<double>>& points() const { return points_; }
  std::vector<std::vector<double>> candidates();
  std::vector<double> journal();     // its lines since the last call
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
  // Scratch of one thread.
  struct Worker;
  static constexpr std::size_t kPool = 8;

  void work(Crew& crew, Rest& rest);
  void fill(Crew& crew, Worker& worker, std::vector<double>& stack, double cutoff);
  void meet(Crew& crew, Worker& worker, const Outcome& outcome);
  void follow(Worker& worker, int lane, std::vector<double>& stack);
  void push(const double* node);
  bool pop(double* node);
  void give_back(std::vector<double>& stack);
  bool offer_locked(const double* x, double value);
  void write(Kind kind, const double* node, double place, double x, double y);
  double number(const double* node) const { return journaling_ ? node[stride_ - 1] : 0.0; }

  std::shared_ptr<const Scheme> scheme_;
  const Model& model_;
  Tolerance tolerance_;
  bool journaling_;
  std::size_t stride_;  // of the scheme's nodes, and their number if there is a journal
  std::vector<std::vector<double>> points_, candidates_;
  std::vector<double> values_;  // of the incumbents
  std::vector<double> lines_;
  std::uint64_t numbered_ = 0;
  Store store_;
  std::vector<std::pair<double, std::uint64_t>> heap_;
  std::vector<Rest> rests_;  // one for each thread
  std::atomic<double> value_, cutoff_;
  std::atomic<std::size_t> waiting_nodes_{0};
  double closed_ = -kInfinity;
  double operations_ = 0.0;
  std::mutex mutex_;
};

}  // namespace ennopt
