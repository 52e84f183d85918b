#include "scheme.hpp"

#include <algorithm>
#include <cstring>

namespace ennopt {

Boxes::Boxes(std::shared_ptr<const Model> model, const BoundTable* table, Settings settings)
    : Scheme(std::move(model), table), settings_(settings),
      layout_{model_->inputs, model_->neurons} {}

void Boxes::root(double* node) const {
  const Set& set = model_->set;
  *layout_.bound(node) = *layout_.constant(node) = kInfinity;
  std::copy(set.lower.begin(), set.lower.end(), layout_.lower(node));
  std::copy(set.upper.begin(), set.upper.end(), layout_.upper(node));
  std::memset(layout_.states(node), kFresh, model_->neurons);
}

double Boxes::bound(double cutoff, double* const* nodes, int count, Outcome* outcomes,
                    void* scratch) const {
  return table_->bound(*model_, settings_, layout_, cutoff, nodes, count, outcomes,
                       scratch, nullptr);
}

void Boxes::split(double* node, double* other, const Outcome& outcome) const {
  layout_.upper(node)[outcome.place] = outcome.middle;
  layout_.lower(other)[outcome.place] = outcome.middle;
}

void Boxes::clips(const double* before, const double* after,
                  const std::function<void(int, double, double)>& told) const {
  double *old = const_cast<double*>(before), *now = const_cast<double*>(after);
  for (int p = 0; p < model_->inputs; ++p) {
    const double low = layout_.lower(now)[p], high = layout_.upper(now)[p];
    if (low > layout_.lower(old)[p] || high < layout_.upper(old)[p]) told(p, low, high);
  }
}

Signs::Signs(std::shared_ptr<const Model> model, const BoundTable* table, Ranges ranges)
    : Scheme(std::move(model), table), ranges_(std::move(ranges)),
      layout_{model_->inputs, model_->neurons} {}

// Nothing is tied yet: the program finds its own first basis.
void Signs::root(double* node) const {
  *layout_.bound(node) = kInfinity;
  std::uint8_t* states = layout_.states(node);
  for (int p = 0; p < model_->inputs; ++p) *states++ = SignLayout::state(0, kO | kU);
  for (int i = 0; i < model_->neurons; ++i)
    *states++ = SignLayout::state(0, ranges_.low[i] >= 0.0    ? kO | kU
                                     : ranges_.high[i] <= 0.0 ? kO | kL
                                                              : kAll);
}

double Signs::bound(double cutoff, double* const* nodes, int count, Outcome* outcomes,
                    void* scratch) const {
  for (int i = 0; i < count; ++i)
    table_->program(*model_, ranges_, layout_, cutoff, nodes[i], outcomes[i], scratch);
  return 0.0;
}

void Signs::split(double* node, double* other, const Outcome& outcome) const {
  const int place = model_->inputs + outcome.place;
  const int ties = layout_.states(node)[place] & kAll;
  layout_.states(node)[place] = SignLayout::state(ties, kO | kU);
  layout_.states(other)[place] = SignLayout::state(ties, kO | kL);
}

}  // namespace ennopt
