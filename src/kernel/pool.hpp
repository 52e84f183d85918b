// Rows that linear programs of signs learn on the way, and that hold for all of them.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "model.hpp"

namespace ennopt {

// The points of programs keep to limits less this share of their slack: a point that was
// rounded then still counts as one that meets them.
constexpr double kRowEdge = 0.25;
// The same for half-spaces, of how much wider they are than their region.
constexpr double kRegionEdge = 0.5;

// Bounds of all outputs on the set.
struct OutputRanges {
  std::vector<double> low, high;
};

// The largest value of a row above its side, on a box and with outputs in their ranges; also
// the unit in which a program measures it, so it is positive and no less than the range of
// what the row says of the inputs. `missed` tells whether points of the box may miss the row.
double largest_excess(const Model& model, const OutputRanges& outputs, const Row& row,
                      const double* lower, const double* upper, bool& missed);

// Weightings of a risk are rows: an extra input, the risk, is no larger than any of them; or
// a limit on a risk is one on all of them. Half-spaces around a convex region are rows, too.
// Programs take copies, and learn while others take theirs.
class Pool {
 public:
  Pool(const Model& model, OutputRanges outputs, std::vector<double> lower,
       std::vector<double> upper, std::size_t places, double room);
  // Whether half-spaces are told to it at all: programs of boxes learn weightings only.
  bool awaits_half_spaces() const { return room_ > 0.0; }
  // A half-space slopes . x >= side. False if there is no place; true, too, if it is known.
  bool learn(const double* slopes, double side);
  // The weights of all outputs in a function: the objective, for one of its risks, or a limit.
  bool learn_weights(int function, int risk, const double* weights);
  // Copies rows and their largest excesses; returns how many places they take. A free place
  // has a row that holds everywhere.
  int copy(Row* rows, double* highs) const;
  void use(int place) const;  // a program ended with this row in its proof
  // Frees the places that were not used for longest if all are taken. Not while programs are
  // being solved.
  void settle();

 private:
  bool put(Row row, const double* slopes, const double* shares);
  bool known(const Row& row, const double* slopes, const double* shares) const;

  const Model& model_;
  OutputRanges outputs_;
  std::vector<double> lower_, upper_;  // of inputs, extra ones, too
  double room_;  // how much wider than their region half-spaces are, 0 if there are none
  std::vector<Row> rows_;
  std::vector<double> highs_, slopes_, shares_;
  mutable std::vector<std::uint64_t> used_;
  mutable std::uint64_t clock_ = 1;
  int count_ = 0;  // places below are taken, or free in between
  mutable std::mutex mutex_;
};

}  // namespace ennopt
