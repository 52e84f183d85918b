// What a tree must know of its nodes: how to begin, to bound them and to branch.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "model.hpp"
#include "pool.hpp"

namespace ennopt {

// A node is a block of doubles; the first is its bound.
class Scheme {
 public:
  Scheme(std::shared_ptr<Model> model, const BoundTable* table)
      : model_(std::move(model)), table_(table) {}
  virtual ~Scheme() = default;
  Scheme(const Scheme&) = delete;  // some point into themselves
  Scheme& operator=(const Scheme&) = delete;
  virtual std::size_t stride() const = 0;
  virtual int batch() const = 0;  // nodes bounded at once
  virtual std::size_t scratch_bytes() const = 0;
  virtual void root(double* node) const = 0;  // `node` is all zero
  // Returns the floating-point operations of matrix products.
  virtual double bound(double cutoff, double* const* nodes, int count, Outcome* outcomes,
                       void* scratch) const = 0;
  // Both parts of a node, which becomes the first; `other` is a copy of it.
  virtual void split(double* node, double* other, const Outcome& outcome) const = 0;
  // Calls told(input, low, high) for each input whose range became smaller.
  virtual void clips(const double* before, const double* after,
                     const std::function<void(int, double, double)>& told) const = 0;
  const Model& model() const { return *model_; }
  // Half-spaces slopes.x >= sides that hold on the feasible set. Not while nodes are being
  // bounded.
  virtual bool narrows() const = 0;
  virtual void narrow(const double* slopes, const double* sides, std::size_t count) = 0;
  // Functions learn their weights at a good point. Not while nodes are being bounded.
  virtual void guide(const double* x) { ennopt::guide(*model_, x); }
  // Called before nodes are bounded.
  virtual void settle() {}

 protected:
  std::shared_ptr<Model> model_;
  const BoundTable* table_;
};

// Boxes of inputs, halved.
class Boxes : public Scheme {
 public:
  // Programs of limits and risks need bounds of the outputs on the whole set, and room for
  // the weightings that they learn.
  Boxes(std::shared_ptr<Model> model, const BoundTable* table, Settings settings,
        OutputRanges outputs, int learned);
  std::size_t stride() const override { return layout_.stride(); }
  int batch() const override { return table_->batch(*model_, settings_); }
  std::size_t scratch_bytes() const override;
  void root(double* node) const override;
  bool narrows() const override { return true; }
  void narrow(const double* slopes, const double* sides, std::size_t count) override {
    model_->set.narrow(slopes, sides, count);
  }
  void guide(const double* x) override;
  void settle() override {
    if (pool_) pool_->settle();
  }
  double bound(double cutoff, double* const* nodes, int count, Outcome* outcomes,
               void* scratch) const override;
  void split(double* node, double* other, const Outcome& outcome) const override;
  void clips(const double* before, const double* after,
             const std::function<void(int, double, double)>& told) const override;

 private:
  struct Finisher;
  // Close a box by linear programs that branch on its few unstable neurons.
  void finish(double cutoff, double* node, Outcome& outcome, Finisher& own,
              void* scratch) const;
  bool solved(double cutoff, const Ranges& ranges, Outcome& outcome, Finisher& own,
              void* scratch, double& most) const;
  int unstable(double* node) const;
  bool tight() const;
  double relax(double cutoff, double* const* nodes, int count, Outcome* outcomes,
               void* scratch) const;

  Settings settings_;
  BoxLayout layout_;
  OutputRanges outputs_;
  int learned_;
  std::vector<double> risks_low_, risks_high_;
  std::unique_ptr<Pool> pool_;
};

// What holds of a neuron on the whole set: its output is at most `constant` plus `slopes` .
// the outputs of the layer before, or the inputs (lines_above.py).
struct LineAbove {
  int neuron;
  double constant;
  std::vector<double> slopes;
};

// Signs of neurons on the whole set, bounded by linear programs.
class Signs : public Scheme {
 public:
  // Neurons between `low` and `high` on the whole set, and outputs; with room for so many
  // rows that are learned on the way, half-spaces so much wider than their regions; and
  // lines above neurons.
  Signs(std::shared_ptr<Model> model, const BoundTable* table, std::vector<double> low,
        std::vector<double> high, OutputRanges outputs, int learned,
        double room, std::vector<LineAbove> lines = {});
  std::size_t stride() const override { return layout_.stride(); }
  int batch() const override { return 1; }
  std::size_t scratch_bytes() const override {
    return table_->program_bytes(*model_, layout_);
  }
  void root(double* node) const override;
  bool narrows() const override { return pool_ != nullptr; }
  void narrow(const double* slopes, const double* sides, std::size_t count) override;
  void guide(const double* x) override;
  void settle() override {
    if (pool_) pool_->settle();
  }
  double bound(double cutoff, double* const* nodes, int count, Outcome* outcomes,
               void* scratch) const override;
  void split(double* node, double* other, const Outcome& outcome) const override;
  void clips(const double*, const double*,
             const std::function<void(int, double, double)>&) const override {}
  const Ranges& ranges() const { return ranges_; }

 private:
  std::vector<double> lower_, upper_, low_, high_;
  void add(const LineAbove& line);
  std::vector<LineAbove> lines_;
  std::vector<Row> rows_;
  std::vector<int> ends_;
  Ranges ranges_;
  SignLayout layout_;
  std::unique_ptr<Pool> pool_;
};

}  // namespace ennopt
