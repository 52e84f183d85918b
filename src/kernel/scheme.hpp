// What a tree must know of its nodes: how to begin, to bound them and to branch.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "model.hpp"

namespace ennopt {

// A node is a block of doubles; the first is its bound.
class Scheme {
 public:
  Scheme(std::shared_ptr<const Model> model, const BoundTable* table)
      : model_(std::move(model)), table_(table) {}
  virtual ~Scheme() = default;
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

 protected:
  std::shared_ptr<const Model> model_;
  const BoundTable* table_;
};

// Boxes of inputs, halved.
class Boxes : public Scheme {
 public:
  Boxes(std::shared_ptr<const Model> model, const BoundTable* table, Settings settings);
  std::size_t stride() const override { return layout_.stride(); }
  int batch() const override { return table_->lanes; }
  std::size_t scratch_bytes() const override;
  void root(double* node) const override;
  double bound(double cutoff, double* const* nodes, int count, Outcome* outcomes,
               void* scratch) const override;
  void split(double* node, double* other, const Outcome& outcome) const override;
  void clips(const double* before, const double* after,
             const std::function<void(int, double, double)>& told) const override;

 private:
  // Close a box by linear programs that branch on its few unstable neurons.
  void finish(double cutoff, double* node, Outcome& outcome, void* scratch) const;
  int unstable(double* node) const;

  Settings settings_;
  BoxLayout layout_;
};

// Signs of neurons on the whole set, bounded by linear programs.
class Signs : public Scheme {
 public:
  // Neurons between `low` and `high`, on the whole set or on a box of it.
  Signs(std::shared_ptr<const Model> model, const BoundTable* table, std::vector<double> low,
        std::vector<double> high);
  Signs(std::shared_ptr<const Model> model, const BoundTable* table, Ranges ranges);
  std::size_t stride() const override { return layout_.stride(); }
  int batch() const override { return 1; }
  std::size_t scratch_bytes() const override { return table_->program_bytes(*model_); }
  void root(double* node) const override;
  double bound(double cutoff, double* const* nodes, int count, Outcome* outcomes,
               void* scratch) const override;
  void split(double* node, double* other, const Outcome& outcome) const override;
  void clips(const double*, const double*,
             const std::function<void(int, double, double)>&) const override {}
  const Ranges& ranges() const { return ranges_; }

 private:
  Ranges ranges_;
  SignLayout layout_;
};

}  // namespace ennopt
