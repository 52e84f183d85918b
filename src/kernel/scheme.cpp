#include "scheme.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace ennopt {

Boxes::Boxes(std::shared_ptr<const Model> model, const BoundTable* table,
             Settings settings, Ranges ranges)
    : Scheme(std::move(model), table, std::move(ranges)), settings_(settings),
      layout_{model_->inputs, model_->neurons} {}

void Boxes::root(double* node) const {
  *layout_.bound(node) = *layout_.constant(node) = std::numeric_limits<double>::infinity();
  std::copy(ranges_.lower.begin(), ranges_.lower.end(), layout_.lower(node));
  std::copy(ranges_.upper.begin(), ranges_.upper.end(), layout_.upper(node));
  std::memset(layout_.states(node), kFresh, model_->neurons);
}

double Boxes::bound(double cutoff, double* const* nodes, int count, Outcome* outcomes,
                    void* scratch) const {
  return table_->bound(*model_, settings_, layout_, cutoff, nodes, count, outcomes,
                       scratch, nullptr);
}

void Boxes::split(double* node, const Outcome& outcome, std::vector<double>& stack) const {
  double* upper = layout_.upper(node) + outcome.place;
  double* lower = layout_.lower(node) + outcome.place;
  const double high = *upper;
  *upper = outcome.middle;
  stack.insert(stack.end(), node, node + stride());
  *upper = high;
  *lower = outcome.middle;
  stack.insert(stack.end(), node, node + stride());
}

Signs::Signs(std::shared_ptr<const Model> model, const BoundTable* table, Ranges ranges)
    : Scheme(std::move(model), table, std::move(ranges)),
      layout_{model_->inputs, model_->neurons} {}

// Nothing is tied yet: the program finds its own first basis.
void Signs::root(double* node) const {
  *layout_.bound(node) = std::numeric_limits<double>::infinity();
  std::uint8_t* states = layout_.states(node);
  for (int p = 0; p < model_->inputs; ++p) *states++ = SignLayout::state(0, kO | kU);
  for (int i = 0; i < model_->neurons; ++i)
    *states++ = SignLayout::state(0, ranges_.low[i] >= 0.0    ? kO | kU
                                     : ranges_.high[i] <= 0.0 ? kO | kL
                                                              : kAll);
}

double Signs::bound(double cutoff, double* const* nodes, int count, Outcome* outcomes,
                    void* scratch) const {
  for (int i = 0; i < count; ++i) {
    table_->program(*model_, ranges_, layout_, cutoff, nodes[i], outcomes[i], scratch);
    outcomes[i].value = evaluate(*model_, outcomes[i].point);
  }
  return 0.0;
}

void Signs::split(double* node, const Outcome& outcome, std::vector<double>& stack) const {
  std::uint8_t& state = layout_.states(node)[model_->inputs + outcome.place];
  const int ties = state & kAll;
  for (const int allowed : {kO | kU, kO | kL}) {
    state = SignLayout::state(ties, allowed);
    stack.insert(stack.end(), node, node + stride());
  }
}

}  // namespace ennopt
