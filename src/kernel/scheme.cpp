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

// An item of a program for half-space k: a x - s is not negative, and no larger than
// `high` on a box. A limit above the largest value there is as good; it is the unit in which
// the program measures the half-space. True if points of the box are outside.
bool row_range(const Model& model, int k, const double* lower, const double* upper,
               double& low, double& high) {
  const double* a = model.set.slopes.data() + std::size_t(k) * model.inputs;
  const double side = model.set.sides[k];
  double most = -side, width = 0.0, size = std::fabs(side);
  for (int p = 0; p < model.inputs; ++p) {
    most += std::max(a[p] * lower[p], a[p] * upper[p]);
    width += std::fabs(a[p]) * (upper[p] - lower[p]);
    size += std::fabs(a[p]) * model.reach[p];
  }
  most += 2.0 * model.unit * size;
  low = 0.0;
  high = std::max(most, width);
  if (!(high > 0.0)) high = size > 0.0 ? size : 1.0;
  return most < width + 4.0 * model.unit * size;
}

SignLayout layout_of(const Model& model) {
  const Set& set = model.set;
  return {model.inputs, model.neurons, set.half_spaces(), int(set.places.size())};
}

// The root of the signs. Nothing is tied yet: the program finds its own first basis.
void plant(const Set& set, const SignLayout& layout, const Ranges& ranges, double* node) {
  *layout.bound(node) = kInfinity;
  *layout.flag(node) = 0.0;
  for (int k = 0; k < layout.discrete; ++k) {
    layout.lower(node)[k] = ranges.lower[set.places[k]];
    layout.upper(node)[k] = ranges.upper[set.places[k]];
  }
  std::uint8_t* states = layout.states(node);
  for (int p = 0; p < layout.inputs; ++p) *states++ = SignLayout::state(0, kO | kU);
  for (int i = 0; i < layout.neurons; ++i)
    *states++ = SignLayout::state(0, ranges.low[i] >= 0.0    ? kO | kU
                                     : ranges.high[i] <= 0.0 ? kO | kL
                                                             : kAll);
  for (int k = 0; k < layout.rows; ++k) *states++ = SignLayout::state(0, kO | kU);
}

// The neuron held on in `node`, and held off in its copy `other`; or the discrete input up
// to a value, and from the next one on.
void branch(const Set& set, const SignLayout& layout, const Outcome& outcome, double* node,
            double* other) {
  if (outcome.place >= layout.neurons) {
    const int p = outcome.place - layout.neurons;
    const auto k = std::lower_bound(set.places.begin(), set.places.end(), p) -
                   set.places.begin();
    layout.upper(node)[k] = outcome.middle;
    layout.lower(other)[k] = set.above(p, outcome.middle);
    return;
  }
  const int at = layout.inputs + outcome.place;
  const int ties = layout.states(node)[at] & kAll;
  layout.states(node)[at] = SignLayout::state(ties, kO | kU);
  layout.states(other)[at] = SignLayout::state(ties, kO | kL);
}

}  // namespace

// What `finish` needs, at the front of a thread's scratch.
struct Boxes::Finisher {
  SignLayout layout;
  double *copy, *point, *low, *high, *scores, *open;
  int* rows;

  // Programs are taken from a stack; each leaves at most one node more there.
  static std::size_t doubles(const Model& model, std::size_t stride, int programs) {
    const SignLayout layout = layout_of(model);
    return stride + 2 * std::size_t(model.inputs) + 2 * std::size_t(model.neurons) +
           3 * std::size_t(layout.rows) + (std::size_t(programs) + 1) * layout.stride();
  }
  Finisher(const Model& model, std::size_t stride, void* scratch)
      : layout(layout_of(model)), copy(static_cast<double*>(scratch)),
        point(copy + stride), low(point + model.inputs), high(low + model.neurons + layout.rows),
        scores(high + model.neurons + layout.rows), open(scores + model.inputs + layout.rows),
        rows(reinterpret_cast<int*>(scores + model.inputs)) {}
};

Boxes::Boxes(std::shared_ptr<Model> model, const BoundTable* table, Settings settings)
    : Scheme(std::move(model), table), settings_(settings),
      layout_(BoxLayout::of(*model_)) {}

void Boxes::root(double* node) const {
  const Set& set = model_->set;
  *layout_.bound(node) = *layout_.constant(node) = kInfinity;
  std::copy(set.lower.begin(), set.lower.end(), layout_.lower(node));
  std::copy(set.upper.begin(), set.upper.end(), layout_.upper(node));
  for (int j = 1; j < layout_.cuts; ++j) *layout_.constant(node, j) = kInfinity;
  std::memset(layout_.states(node), kFresh, layout_.neurons);
}

std::size_t Boxes::scratch_bytes() const {
  return sizeof(double) * Finisher::doubles(*model_, stride(), settings_.programs) +
         std::max(table_->scratch_bytes(*model_), table_->program_bytes(*model_));
}

double Boxes::bound(double cutoff, double* const* nodes, int count, Outcome* outcomes,
                    void* scratch) const {
  Finisher own(*model_, stride(), scratch);
  void* rest = static_cast<double*>(scratch) +
               Finisher::doubles(*model_, stride(), settings_.programs);
  double before[kMostLanes];
  for (int i = 0; i < count; ++i) before[i] = nodes[i][0];
  const double operations = table_->bound(*model_)(*model_, settings_, layout_, cutoff,
                                                   nodes, count, outcomes, rest, nullptr);
  if (model_->smooth || model_->several()) return operations;
  for (int i = 0; i < count; ++i) {
    if (outcomes[i].fate != Fate::split || !std::isfinite(before[i] - cutoff)) continue;
    if (outcomes[i].doubted || settings_.programs == 0) continue;
    const bool slow = nodes[i][0] - cutoff > kSlow * (before[i] - cutoff);
    const int few = slow ? kFewNeurons : kVeryFewNeurons;
    if (unstable(nodes[i]) <= few) finish(cutoff, nodes[i], outcomes[i], own, rest);
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
void Boxes::finish(double cutoff, double* node, Outcome& outcome, Finisher& own,
                   void* scratch) const {
  // The bounds of its neurons, once more.
  std::copy(node, node + stride(), own.copy);
  const Trace trace{own.low, own.high, own.scores};
  Outcome again;
  again.point = own.point;
  table_->relu(*model_, settings_, layout_, cutoff, &own.copy, 1, &again, scratch, &trace);
  // Ranges hold under the cut of the box only: what it excludes is below the cutoff.
  outcome.dropped = std::max(outcome.dropped, again.dropped);
  if (again.fate == Fate::closed) {
    outcome.fate = Fate::closed;
    node[0] = own.copy[0];
    return;
  }
  if (again.doubted) return;  // what is known of stable neurons is not written down
  const std::uint8_t* states = layout_.states(own.copy);
  for (const Stack& stack : model_->stacks)
    for (std::size_t k = 0; k + 1 < stack.layers.size(); ++k)
      for (int r = 0; r < stack.layers[k].rows; ++r) {
        const int i = stack.layers[k].first + r;
        if (states[i] < kOn) continue;
        own.low[i] = states[i] == kOn ? 0.0 : -stack.layers[k].size[r];
        own.high[i] = states[i] == kOn ? stack.layers[k].size[r] : 0.0;
      }
  Ranges ranges{layout_.lower(node), layout_.upper(node), own.low, own.high, own.rows, 0};
  for (int k = 0; k < model_->set.half_spaces(); ++k) {
    const int at = model_->neurons + ranges.count;
    own.rows[ranges.count] = k;
    ranges.count += row_range(*model_, k, ranges.lower, ranges.upper, own.low[at], own.high[at]);
  }
  own.layout.rows = ranges.count;
  double most;
  if (!solved(cutoff, ranges, outcome, own, scratch, most)) return;
  node[0] = std::min(node[0], most);
  outcome.fate = Fate::closed;
  outcome.dropped = std::max(outcome.dropped, node[0]);
}

// Whether few programs close every node of signs: then no point is better than `most`. A
// better point that they meet becomes the outcome's.
bool Boxes::solved(double cutoff, const Ranges& ranges, Outcome& outcome, Finisher& own,
                   void* scratch, double& most) const {
  const std::size_t width = own.layout.stride();
  plant(model_->set, own.layout, ranges, own.open);
  most = -kInfinity;
  int open = 1;
  for (int programs = 0; open > 0; ++programs) {
    if (programs == settings_.programs) return false;
    double* top = own.open + (open - 1) * width;
    Outcome part;
    part.point = own.point;
    table_->program(*model_, ranges, own.layout, cutoff, top, part, scratch);
    if (part.value > outcome.value) {
      outcome.value = part.value;
      std::copy(own.point, own.point + model_->inputs, outcome.point);
    }
    if (part.fate == Fate::stuck) return false;
    if (part.fate == Fate::closed) {
      most = std::max(most, part.dropped);
      --open;
    }
    if (part.fate != Fate::split) continue;
    std::copy(top, top + width, top + width);
    branch(model_->set, own.layout, part, top, top + width);
    ++open;
  }
  return true;
}

void Boxes::split(double* node, double* other, const Outcome& outcome) const {
  layout_.upper(node)[outcome.place] = outcome.middle;
  layout_.lower(other)[outcome.place] =
      model_->set.above(outcome.place, outcome.middle);
}

void Boxes::clips(const double* before, const double* after,
                  const std::function<void(int, double, double)>& told) const {
  double *old = const_cast<double*>(before), *now = const_cast<double*>(after);
  for (int p = 0; p < model_->inputs; ++p) {
    const double low = layout_.lower(now)[p], high = layout_.upper(now)[p];
    if (low > layout_.lower(old)[p] || high < layout_.upper(old)[p]) told(p, low, high);
  }
}

Signs::Signs(std::shared_ptr<Model> model, const BoundTable* table,
             std::vector<double> low, std::vector<double> high)
    : Scheme(std::move(model), table), low_(std::move(low)), high_(std::move(high)),
      layout_(layout_of(*model_)) {
  const double *lower = model_->set.lower.data(), *upper = model_->set.upper.data();
  for (int k = 0; k < layout_.rows; ++k) {
    rows_.push_back(k);
    low_.push_back(0.0), high_.push_back(0.0);
    row_range(*model_, k, lower, upper, low_.back(), high_.back());
  }
  ranges_ = {lower, upper, low_.data(), high_.data(), rows_.data(), layout_.rows};
}

void Signs::root(double* node) const { plant(model_->set, layout_, ranges_, node); }

double Signs::bound(double cutoff, double* const* nodes, int count, Outcome* outcomes,
                    void* scratch) const {
  for (int i = 0; i < count; ++i)
    table_->program(*model_, ranges_, layout_, cutoff, nodes[i], outcomes[i], scratch);
  return 0.0;
}

void Signs::split(double* node, double* other, const Outcome& outcome) const {
  branch(model_->set, layout_, outcome, node, other);
}

}  // namespace ennopt
