// What a tree must know of its nodes: how to begin, to bound them and to branch.
#pragma once

#include <memory>
#include <vector>

#include "model.hpp"

namespace ennopt {

// Objective at one point, through every neuron.
double evaluate(const Model& model, const double* x);

// A node is a block of doubles; the first is its bound.
class Scheme {
 public:
  Scheme(std::shared_ptr<const Model> model, const BoundTable* table, Ranges ranges)
      : model_(std::move(model)), table_(table), ranges_(std::move(ranges)) {}
  virtual ~Scheme() = default;
  virtual std::size_t stride() const = 0;
  virtual int batch() const = 0;  // nodes bounded at once
  virtual std::size_t scratch_bytes() const = 0;
  virtual void root(double* node) const = 0;  // `node` is all zero
  // Returns the floating-point operations of matrix products.
  virtual double bound(double cutoff, double* const* nodes, int count, Outcome* outcomes,
                       void* scratch) const = 0;
  // Both parts of a node, appended; `node` is changed.
  virtual void split(double* node, const Outcome& outcome,
                     std::vector<double>& stack) const = 0;
  const Model& model() const { return *model_; }
  const std::vector<double>& lower() const { return ranges_.lower; }
  const std::vector<double>& upper() const { return ranges_.upper; }

 protected:
  std::shared_ptr<const Model> model_;
  const BoundTable* table_;
  Ranges ranges_;
};

// Boxes of inputs, halved.
class Boxes : public Scheme {
 public:
  Boxes(std::shared_ptr<const Model> model, const BoundTable* table, Settings settings,
        Ranges ranges);
  std::size_t stride() const override { return layout_.stride(); }
  int batch() const override { return table_->lanes; }
  std::size_t scratch_bytes() const override { return table_->scratch_bytes(*model_); }
  void root(double* node) const override;
  double bound(double cutoff, double* const* nodes, int count, Outcome* outcomes,
               void* scratch) const override;
  void split(double* node, const Outcome& outcome, std::vector<double>& stack) const override;

 private:
  Settings settings_;
  BoxLayout layout_;
};

// Signs of neurons on one box, bounded by linear programs.
class Signs : public Scheme {
 public:
  Signs(std::shared_ptr<const Model> model, const BoundTable* table, Ranges ranges);
  std::size_t stride() const override { return layout_.stride(); }
  int batch() const override { return 1; }
  std::size_t scratch_bytes() const override { return table_->program_bytes(*model_); }
  void root(double* node) const override;
  double bound(double cutoff, double* const* nodes, int count, Outcome* outcomes,
               void* scratch) const override;
  void split(double* node, const Outcome& outcome, std::vector<double>& stack) const override;

 private:
  SignLayout layout_;
};

}  // namespace ennopt
