#include "scheme.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ennopt {

namespace {

constexpr int kMostLanes = 8;

// A box is finished by linear programs if very few of its neurons are unstable, or if few
// are and its bound keeps more than the share kSlow of its parent's distance to the cutoff.
constexpr double kSlow = 0.8;
constexpr int kVeryFewNeurons = 8, kFewNeurons = 32;

}  // namespace

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

std::size_t Boxes::scratch_bytes() const {
  return std::max(table_->scratch_bytes(*model_), table_->program_bytes(*model_));
}

double Boxes::bound(double cutoff, double* const* nodes, int count, Outcome* outcomes,
                    void* scratch) const {
  double before[kMostLanes];
  for (int i = 0; i < count; ++i) before[i] = nodes[i][0];
  const double operations = table_->bound(*model_, settings_, layout_, cutoff, nodes,
                                          count, outcomes, scratch, nullptr);
  for (int i = 0; i < count; ++i) {
    if (outcomes[i].fate != Fate::split || !std::isfinite(before[i] - cutoff)) continue;
    if (outcomes[i].doubted || settings_.programs == 0) continue;
    const bool slow = nodes[i][0] - cutoff > kSlow * (before[i] - cutoff);
    if (unstable(nodes[i]) <= (slow ? kFewNeurons : kVeryFewNeurons))
      finish(cutoff, nodes[i], outcomes[i], scratch);
  }
  return operations;
}

int Boxes::unstable(double* node) const {
  const std::uint8_t* states = layout_.states(node);
  return int(std::count_if(states, states + model_->neurons,
                           [](std::uint8_t state) { return state < kOn; }));
}

// Where the objective is flat along an oblique kink, boxes around it would have to be as
// thin as the tolerance; the linear programs of its few unstable neurons are exact. What
// they find or prove replaces what the relaxation did; if they do not end soon, the box
// is split as it would have been.
void Boxes::finish(double cutoff, double* node, Outcome& outcome, void* scratch) const {
  const int d = model_->inputs, n = model_->neurons;
  std::vector<double> copy(node, node + stride()), scores(d * kMostLanes), point(d);
  Ranges ranges;
  ranges.low.resize(std::size_t(n) * kMostLanes + 1);
  ranges.high.resize(std::size_t(n) * kMostLanes + 1);
  // The bounds of its neurons, once more.
  const Trace trace{ranges.low.data(), ranges.high.data(), scores.data()};
  double* own = copy.data();
  Outcome again;
  again.point = point.data();
  table_->bound(*model_, settings_, layout_, cutoff, &own, 1, &again, scratch, &trace);
  // Ranges hold under the cut of the box only: what it excludes is below the cutoff.
  outcome.dropped = std::max(outcome.dropped, again.dropped);
  if (again.fate == Fate::closed) {
    outcome.fate = Fate::closed;
    node[0] = own[0];
    return;
  }
  if (again.doubted) return;  // what is known of stable neurons is not written down
  ranges.lower.assign(layout_.lower(node), layout_.lower(node) + d);
  ranges.upper.assign(layout_.upper(node), layout_.upper(node) + d);
  const std::uint8_t* states = layout_.states(own);
  for (const Stack& stack : model_->stacks)
    for (std::size_t k = 0; k + 1 < stack.layers.size(); ++k)
      for (int r = 0; r < stack.layers[k].rows; ++r) {
        const int i = stack.layers[k].first + r;
        if (states[i] < kOn) continue;
        ranges.low[i] = states[i] == kOn ? 0.0 : -stack.layers[k].size[r];
        ranges.high[i] = states[i] == kOn ? stack.layers[k].size[r] : 0.0;
      }
  const Signs signs(model_, table_, ranges);
  const std::size_t width = signs.stride();
  std::vector<double> open(width, 0.0), top(width), other(width);
  signs.root(open.data());
  double most = -kInfinity, value = outcome.value;
  for (int programs = 0; !open.empty(); ++programs) {
    if (programs == settings_.programs) return;
    std::copy(open.end() - std::ptrdiff_t(width), open.end(), top.begin());
    open.resize(open.size() - width);
    Outcome part;
    part.point = point.data();
    double* one = top.data();
    signs.bound(cutoff, &one, 1, &part, scratch);
    if (part.value > value) {
      value = outcome.value = part.value;
      std::copy(point.begin(), point.end(), outcome.point);
    }
    if (part.fate == Fate::stuck) return;
    if (part.fate == Fate::closed) most = std::max(most, part.dropped);
    if (part.fate == Fate::again) open.insert(open.end(), top.begin(), top.end());
    if (part.fate != Fate::split) continue;
    other = top;
    signs.split(top.data(), other.data(), part);
    open.insert(open.end(), top.begin(), top.end());
    open.insert(open.end(), other.begin(), other.end());
  }
  node[0] = std::min(node[0], most);
  outcome.fate = Fate::closed;
  outcome.dropped = std::max(outcome.dropped, node[0]);
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

Signs::Signs(std::shared_ptr<const Model> model, const BoundTable* table,
             std::vector<double> low, std::vector<double> high)
    : Signs(model, table, Ranges{model->set.lower, model->set.upper, low, high}) {}

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
