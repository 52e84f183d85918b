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
  void release(std::uint64_t slot) noexcept { free_.push_back(slot); }  // has room

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

// What the journal of a tree tells, six numbers a line: the kind, the node, three numbers,
// and the bound of what the line removes (no point of that is better; minus infinity if it
// removes nothing). So the largest bound of all lines is `Tree::closed`.
//   split    place, split point, number of the first child (the second has the next one)
//   clip     input, its new lower and upper end; what is between old and new is removed
//   close    -1, 0, 0; the node is removed (node 0: something that `Tree::close` was told)
//   exclude  -1, 0, 0; points of the node that its cut excludes are removed
//   add      -1, 0, 0; the node is open from now on: a root, or one that was taken
//   take     -1, 0, 0; the node was handed out
enum class Kind : int { split = 0, clip = 1, close = 2, exclude = 3, add = 4, take = 5 };
constexpr std::size_t kLineNumbers = 6;

class Tree {
 public:
  // With a journal nodes are numbered, from 1 on, and what becomes of them is written down.
  // The number is the last of a node's doubles, here and where nodes are handed in or out;
  // it is kept, but zero means a new node.
  Tree(std::shared_ptr<Scheme> scheme, Tolerance tolerance, bool journal);

  std::size_t stride() const { return stride_; }  // doubles of a node
  void add(const double* node);
  void plant();                      // the root
  // The open nodes of the largest bounds, at most so many; returns how many.
  std::size_t take(std::size_t most, double* nodes);
  bool offer(const double* x);       // a feasible point; true if it is the best so far
  std::int64_t explore(const Budget& budget);

  // What follows is to be asked between two calls of `explore`, not during one.
  double bound() const;              // no point of the nodes given is better: proved
  double closed() const { return closed_; }  // nor of what was closed or left out
  void close(double bound);          // what was proved elsewhere of nodes that were taken
  double value() const { return value_.load(); }
  double cutoff() const { return cutoff_.load(); }
  std::size_t open() const;
  void snapshot(std::vector<double>& nodes);  // all open nodes, which stay
  double operations() const { return operations_; }  // of matrix products so far
  // Incumbents, the best first; points that would be better if they were feasible.
  const std::vector<std::vector<double>>& points() const { return points_; }
  std::vector<std::vector<double>> candidates();
  void number_from(std::uint64_t last) { numbered_ = std::max(numbered_, last); }
  std::vector<double> journal();     // its lines since the last call
  Scheme& scheme() const { return *scheme_; }

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
  // Incumbents that are kept, the best of those that differ by the share kApart of some
  // input's range; as many candidates.
  static constexpr std::size_t kPool = 8;
  static constexpr double kApart = 1e-3;

  // Memory may run out anywhere, and a node that is lost is a wrong bound. So room is made
  // before nodes are moved, and what a thread has not followed up goes back to its stack.
  void work(Crew& crew, Rest& rest);
  void explore_batches(Crew& crew, Worker& worker, Rest& rest);
  void make_room(Worker& worker, std::vector<double>& stack);
  void fill(Crew& crew, Worker& worker, std::vector<double>& stack, double cutoff);
  void meet(Crew& crew, Worker& worker, const Outcome& outcome);
  void suggest(const double* x);  // as a candidate
  void follow(Worker& worker, int lane, std::vector<double>& stack);
  void push(const double* node);
  bool pop(double* node);
  void give_back(std::vector<double>& stack);
  bool offer_locked(const double* x, double value);
  // A line of the journal, if there is one.
  void reserve_lines(std::size_t count);
  void write(Kind kind, double number, double bound, double place = -1.0, double x = 0.0,
             double y = 0.0);
  double number(const double* node) const { return journaling_ ? node[stride_ - 1] : 0.0; }

  std::shared_ptr<Scheme> scheme_;
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
  double guided_ = -kInfinity;  // value of the point that gave risks their weights
  std::atomic<std::size_t> waiting_nodes_{0};
  double closed_ = -kInfinity;
  double operations_ = 0.0;
  std::mutex mutex_;
};

}  // namespace ennopt
