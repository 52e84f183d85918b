#include "scheme.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "forward.hpp"

namespace ennopt {

namespace {

constexpr int kMostLanes = 16;

// Margins of float32, as a share of the neurons' widths, beyond which float64 is used.
constexpr double kLoosest = 0.01;
// Nodes so close to the cutoff, by the objective's spread plus its noise, are bounded in
// float64.
constexpr double kClose = 1e-6, kCloseNoise = 0x1p16;
constexpr double kSmallShare = 0x1p-10;  // of the root's sides


// A box is finished by linear programs if very few of its neurons are unstable, or if few
// are and its bound keeps more than the share kSlow of its parent's distance to the cutoff.
constexpr double kSlow = 0.8;
constexpr int kVeryFewNeurons = 8, kFewNeurons = 32;

// Half-space k of the set.
Row half_space(const Set& set, int k) {
  Row row;
  row.slopes = set.slopes.data() + std::size_t(k) * set.lower.size();
  row.side = set.sides[k];
  row.edge = row.side + 1.5 * (set.inner[k] - row.side);
  return row;
}

// A limit whose outputs have one weight each.
Row limit_row(const Model& model, const Function& limit) {
  Row row;
  row.shares = limit.weights.data();
  row.edge = limit.least - kRowEdge * (limit.least - limit.relaxed);
  row.side = limit.relaxed;
  int o = 0;
  for (const Stack& stack : model.stacks)
    for (double error : stack.output().error) row.side -= std::fabs(row.shares[o++]) * error;
  return row;
}

// Half-spaces of the set, and limits whose outputs have one weight each.
int fixed_rows(const Model& model) {
  int count = model.set.half_spaces();
  for (int j = 1; j <= model.limits(); ++j) count += model.functions[j].groups.empty();
  return count;
}

// Nodes of signs on a box, with room for so many rows that are learned.
SignLayout layout_of(const Model& model, int learned) {
  return {model.inputs + model.risks(), model.neurons, fixed_rows(model) + learned,
          int(model.set.places.size())};
}

// What a risk can be: a share of the largest output, or of what deviations can be.
double largest_risk(const Group& group, const OutputRanges& outputs) {
  double most = 0.0;
  for (int o : group.outputs)
    most = std::max({most, std::fabs(outputs.low[o]), std::fabs(outputs.high[o])});
  const double share =
      group.kind == Risk::capped ? 1.0 : std::fabs(group.mean) + 2.0 * group.amount;
  return most * share * (1.0 + 0x1p-40) + 0x1p-900;
}

// Ranges of the risks of the objective, behind those of the inputs.
void add_risks(const Model& model, const OutputRanges& outputs, std::vector<double>& lower,
               std::vector<double>& upper) {
  for (int g = 0; g < model.risks(); ++g) {
    const double most = largest_risk(model.functions[0].groups[g], outputs);
    lower.push_back(-most), upper.push_back(most);
  }
}

// A pool learns the weightings at a good point: they are those that a proof needs.
void learn_guides(const Model& model, Pool& pool) {
  for (int function = 0; function <= model.limits(); ++function) {
    const Function& own = model.functions[function];
    const int risks = function ? 0 : model.risks();
    if (own.groups.empty()) continue;
    for (int g = function ? -1 : 0; g < risks; ++g) {
      pool.settle();
      pool.learn_weights(function, g, own.guide.data());
    }
  }
}

// The root of the signs. Nothing is tied yet: the program finds its own first basis.
void plant(const SignLayout& layout, const std::vector<int>& ends, const Ranges& ranges,
           double* node) {
  *layout.bound(node) = kInfinity;
  *layout.flag(node) = 0.0;
  for (int k = 0; k < layout.discrete; ++k) {
    layout.lower(node)[k] = ranges.lower[ends[k]];
    layout.upper(node)[k] = ranges.upper[ends[k]];
  }
  std::uint8_t* states = layout.states(node);
  for (int p = 0; p < layout.inputs; ++p) *states++ = SignLayout::state(0, kO | kU);
  for (int i = 0; i < layout.neurons; ++i)
    *states++ = SignLayout::state(0, ranges.low[i] >= 0.0    ? kO | kU
                                     : ranges.high[i] <= 0.0 ? kO | kL
                                                             : kAll);
  for (int k = 0; k < layout.rows; ++k) *states++ = SignLayout::state(0, kO | kU);
}

// The neuron held on in `node`, and held off in its copy `other`; or an input up to a value,
// and from the next one on, which on a continuum is the next number.
void branch(const Set& set, const SignLayout& layout, const std::vector<int>& ends,
            const Outcome& outcome, double* node, double* other) {
  if (outcome.place >= layout.neurons) {
    const int p = outcome.place - layout.neurons;
    const auto k = std::lower_bound(ends.begin(), ends.end(), p) - ends.begin();
    layout.upper(node)[k] = outcome.middle;
    layout.lower(other)[k] = set.discrete(p) ? set.above(p, outcome.middle)
                                             : std::nextafter(outcome.middle, kInfinity);
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
  double *copy, *point, *low, *high, *scores, *open, *lower, *upper, *forward;
  Row* rows;

  // Programs are taken from a stack; each leaves at most one node more there.
  static constexpr std::size_t kDoubles = (sizeof(Row) + sizeof(double) - 1) / sizeof(double);
  static std::size_t doubles(const Model& model, std::size_t stride, int programs,
                             int learned) {
    const SignLayout layout = layout_of(model, learned);
    return stride + 2 * std::size_t(model.inputs) + 2 * std::size_t(model.neurons) +
           (2 + kDoubles) * std::size_t(layout.rows) + 2 * std::size_t(layout.inputs) +
           forward_doubles(model) + (std::size_t(programs) + 1) * layout.stride();
  }
  Finisher(const Model& model, std::size_t stride, int learned, void* scratch)
      : layout(layout_of(model, learned)), copy(static_cast<double*>(scratch)),
        point(copy + stride), low(point + model.inputs), high(low + model.neurons + layout.rows),
        scores(high + model.neurons + layout.rows),
        lower(scores + model.inputs + kDoubles * layout.rows), upper(lower + layout.inputs),
        forward(upper + layout.inputs), rows(reinterpret_cast<Row*>(scores + model.inputs)) {
    open = forward + forward_doubles(model);
  }
};

Boxes::Boxes(std::shared_ptr<Model> model, const BoundTable* table, Settings settings,
             OutputRanges outputs, int learned)
    : Scheme(std::move(model), table), settings_(settings), layout_(BoxLayout::of(*model_)),
      outputs_(std::move(outputs)), learned_(learned) {
  const bool known = !model_->several() || int(outputs_.low.size()) == model_->outputs;
  settings_.single = settings_.single && tight();
  if (model_->smooth || !known) settings_.programs = 0;
  if (settings_.programs == 0) learned_ = 0;
  if (!learned_) return;
  std::vector<double> lower = model_->set.lower, upper = model_->set.upper;
  add_risks(*model_, outputs_, lower, upper);
  risks_low_.assign(lower.begin() + model_->inputs, lower.end());
  risks_high_.assign(upper.begin() + model_->inputs, upper.end());
  pool_ = std::make_unique<Pool>(*model_, outputs_, std::move(lower), std::move(upper),
                                 learned_, 0.0);
}

// Whether float32 is precise enough: its margins are small beside the widths of neurons on
// the root, and on boxes of all sizes around its centre. On small ones lines are tight and
// slopes may cancel; on those between bounds of neurons that are stable are loose.
bool Boxes::tight() const {
  if (!BoundTable::in_single(*model_, settings_)) return false;
  std::vector<double> node(stride()), point(model_->inputs);
  std::vector<char> scratch(table_->scratch_bytes(*model_));
  double* nodes = node.data();
  for (double share = 1.0; share >= kSmallShare; share *= 0.25) {
    std::fill(node.begin(), node.end(), 0.0);
    root(nodes);
    for (int p = 0; p < model_->inputs; ++p) {
      double &low = layout_.lower(nodes)[p], &high = layout_.upper(nodes)[p];
      const double middle = 0.5 * (low + high), radius = 0.5 * share * (high - low);
      low = std::max(low, middle - radius), high = std::min(high, middle + radius);
    }
    Outcome outcome;
    outcome.point = point.data();
    Trace trace;
    double loosest = kInfinity;
    trace.loosest = &loosest;
    table_->single(*model_, settings_, layout_, -kInfinity, &nodes, 1, &outcome,
                   scratch.data(), &trace);
    if (!(loosest <= kLoosest)) return false;
  }
  return true;
}

void Boxes::guide(const double* x) {
  ennopt::guide(*model_, x);
  if (pool_) learn_guides(*model_, *pool_);
}

void Boxes::root(double* node) const {
  const Set& set = model_->set;
  *layout_.bound(node) = *layout_.constant(node) = kInfinity;
  std::copy(set.lower.begin(), set.lower.end(), layout_.lower(node));
  std::copy(set.upper.begin(), set.upper.end(), layout_.upper(node));
  for (int j = 1; j < layout_.cuts; ++j) *layout_.constant(node, j) = kInfinity;
  std::memset(layout_.states(node), kFresh, layout_.neurons);
}

std::size_t Boxes::scratch_bytes() const {
  return sizeof(double) * Finisher::doubles(*model_, stride(), settings_.programs, learned_) +
         std::max(table_->scratch_bytes(*model_),
                  table_->program_bytes(*model_, layout_of(*model_, learned_)));
}

double Boxes::bound(double cutoff, double* const* nodes, int count, Outcome* outcomes,
                    void* scratch) const {
  Finisher own(*model_, stride(), learned_, scratch);
  void* rest = static_cast<double*>(scratch) +
               Finisher::doubles(*model_, stride(), settings_.programs, learned_);
  double before[kMostLanes];
  for (int i = 0; i < count; ++i) before[i] = nodes[i][0];
  const double operations = relax(cutoff, nodes, count, outcomes, rest);
  if (settings_.programs == 0) return operations;
  for (int i = 0; i < count; ++i) {
    if (outcomes[i].fate != Fate::split || !std::isfinite(before[i] - cutoff)) continue;
    if (outcomes[i].doubted) continue;
    const bool slow = nodes[i][0] - cutoff > kSlow * (before[i] - cutoff);
    const int few = slow ? kFewNeurons : kVeryFewNeurons;
    if (unstable(nodes[i]) <= few) finish(cutoff, nodes[i], outcomes[i], own, rest);
  }
  return operations;
}

// By float32, and by float64 where what is left is so little that its margins could decide.
double Boxes::relax(double cutoff, double* const* nodes, int count, Outcome* outcomes,
                    void* scratch) const {
  if (!BoundTable::in_single(*model_, settings_))
    return table_->bound(*model_, settings_)(*model_, settings_, layout_, cutoff, nodes,
                                             count, outcomes, scratch, nullptr);
  double operations = 0.0;
  int places[2][kMostLanes], counts[2] = {0, 0};
  for (int i = 0; i < count; ++i) {
    const double near = kClose * model_->spread + kCloseNoise * model_->noise;
    const int close = nodes[i][0] - cutoff <= near;
    places[close][counts[close]++] = i;
  }
  Settings settings = settings_;
  for (int close : {0, 1}) {
    settings.single = !close;
    const int most = table_->batch(*model_, settings);
    for (int from = 0; from < counts[close]; from += most) {
      const int* own = places[close] + from;
      const int some = std::min(most, counts[close] - from);
      double* boxes[kMostLanes];
      Outcome found[kMostLanes];
      for (int i = 0; i < some; ++i) boxes[i] = nodes[own[i]], found[i] = outcomes[own[i]];
      operations += table_->bound(*model_, settings)(
          *model_, settings, layout_, cutoff, boxes, some, found, scratch, nullptr);
      for (int i = 0; i < some; ++i) outcomes[own[i]] = found[i];
    }
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
  Settings one = settings_;
  one.single = false;
  table_->bound(*model_, one)(*model_, one, layout_, cutoff, &own.copy, 1, &again, scratch,
                              &trace);
  // Ranges hold under the cut of the box only: what it excludes is below the cutoff. What
  // majorants of limits exclude is infeasible.
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
  std::copy(layout_.lower(node), layout_.lower(node) + model_->inputs, own.lower);
  std::copy(layout_.upper(node), layout_.upper(node) + model_->inputs, own.upper);
  std::copy(risks_low_.begin(), risks_low_.end(), own.lower + model_->inputs);
  std::copy(risks_high_.begin(), risks_high_.end(), own.upper + model_->inputs);
  Ranges ranges{own.lower, own.upper, own.low, own.high, own.rows, 0, model_->risks()};
  auto add = [&](const Row& row) {  // unless it holds on all of the box
    const int at = model_->neurons + ranges.count;
    bool missed;
    own.rows[ranges.count] = row;
    own.low[at] = 0.0;
    own.high[at] = largest_excess(*model_, outputs_, row, own.lower, own.upper, missed);
    ranges.count += missed;
  };
  for (int k = 0; k < model_->set.half_spaces(); ++k) add(half_space(model_->set, k));
  for (int j = 1; j <= model_->limits(); ++j)
    if (model_->functions[j].groups.empty()) add(limit_row(*model_, model_->functions[j]));
  own.layout.rows = ranges.count + learned_;
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
  const std::vector<int>& ends = model_->set.places;
  plant(own.layout, ends, ranges, own.open);
  most = -kInfinity;
  int open = 1;
  for (int programs = 0; open > 0; ++programs) {
    if (programs == settings_.programs) return false;
    double* top = own.open + (open - 1) * width;
    Outcome part;
    part.point = own.point;
    table_->program(*model_, ranges, own.layout, ends, pool_.get(), cutoff, top, part,
                    scratch);
    // The value of a box with limits says what missing them costs, this one does not.
    if (part.value > outcome.value &&
        (model_->limits() == 0 || feasible(*model_, own.point, own.forward))) {
      outcome.value = part.value;
      std::copy(own.point, own.point + model_->inputs, outcome.point);
    }
    // While boxes are bounded no place of the pool is freed: waiting would be in vain.
    if (part.fate == Fate::stuck || part.waits) return false;
    if (part.fate == Fate::closed) {
      most = std::max(most, part.dropped);
      --open;
    }
    if (part.fate != Fate::split) continue;
    std::copy(top, top + width, top + width);
    branch(model_->set, own.layout, ends, part, top, top + width);
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
             std::vector<double> low, std::vector<double> high, OutputRanges outputs,
             int learned, double room, std::vector<LineAbove> lines)
    : Scheme(std::move(model), table), lower_(model_->set.lower), upper_(model_->set.upper),
      low_(std::move(low)), high_(std::move(high)), lines_(std::move(lines)) {
  const Set& set = model_->set;
  add_risks(*model_, outputs, lower_, upper_);
  for (int k = 0; k < set.half_spaces(); ++k) rows_.push_back(half_space(set, k));
  for (int j = 1; j <= model_->limits(); ++j)
    if (model_->functions[j].groups.empty())
      rows_.push_back(limit_row(*model_, model_->functions[j]));
  for (const Row& row : rows_) {
    bool missed;
    low_.push_back(0.0);
    high_.push_back(
        largest_excess(*model_, outputs, row, lower_.data(), upper_.data(), missed));
  }
  for (const LineAbove& line : lines_) add(line);
  // Near data every input has ends of its own.
  ends_ = set.places;
  if (!set.near.empty()) {
    ends_.resize(model_->inputs);
    std::iota(ends_.begin(), ends_.end(), 0);
  }
  ranges_ = {lower_.data(), upper_.data(), low_.data(), high_.data(),
             rows_.data(), int(rows_.size()), model_->risks()};
  layout_ = {int(lower_.size()), model_->neurons, int(rows_.size()) + learned,
             int(ends_.size())};
  if (learned)
    pool_ = std::make_unique<Pool>(*model_, std::move(outputs), lower_, upper_, learned,
                                   room);
}

// The row of a line, and its largest excess, as `largest_excess` has it.
void Signs::add(const LineAbove& line) {
  Row row;
  row.neuron = line.neuron;
  row.side = row.edge = -line.constant;
  double most = line.constant, width = 0.0, size = std::fabs(line.constant);
  auto add = [&](double a, double low, double high, double reach) {
    most += std::max(a * low, a * high);
    width += std::fabs(a) * (high - low);
    size += std::fabs(a) * reach;
  };
  for (const Stack& stack : model_->stacks)
    for (std::size_t s = 0; s + 1 < stack.layers.size(); ++s) {
      const Layer& layer = stack.layers[s];
      if (line.neuron < layer.first || line.neuron >= layer.first + layer.rows) continue;
      if (int(line.slopes.size()) != layer.cols)
        throw std::invalid_argument("Expected a slope for each neuron before.");
      if (s) {
        row.first = stack.layers[s - 1].first;
        row.width = layer.cols;
        row.before = line.slopes.data();
      } else {
        row.slopes = line.slopes.data();
      }
      for (int c = 0; c < layer.cols; ++c) {
        const double from = s ? std::max(low_[row.first + c], 0.0) : lower_[c];
        const double to = s ? std::max(high_[row.first + c], 0.0) : upper_[c];
        add(line.slopes[c], from, to, s ? to : model_->reach[c]);
      }
    }
  const double up = std::max(high_[line.neuron], 0.0);
  add(-1.0, std::max(low_[line.neuron], 0.0), up, up);
  most += 2.0 * (model_->unit + 0x1p-51 * (model_->outputs + 2 + model_->neurons)) * size;
  rows_.push_back(row);
  low_.push_back(0.0);
  const double high = std::max(most, width);
  high_.push_back(high > 0.0 ? high : size > 0.0 ? size : 1.0);
}

void Signs::root(double* node) const { plant(layout_, ends_, ranges_, node); }

void Signs::narrow(const double* slopes, const double* sides, std::size_t count) {
  for (std::size_t k = 0; k < count; ++k) {
    pool_->settle();
    pool_->learn(slopes + k * model_->inputs, sides[k]);
  }
}

void Signs::guide(const double* x) {
  ennopt::guide(*model_, x);
  if (pool_) learn_guides(*model_, *pool_);
}

double Signs::bound(double cutoff, double* const* nodes, int count, Outcome* outcomes,
                    void* scratch) const {
  for (int i = 0; i < count; ++i)
    table_->program(*model_, ranges_, layout_, ends_, pool_.get(), cutoff, nodes[i],
                    outcomes[i], scratch);
  return 0.0;
}

void Signs::split(double* node, double* other, const Outcome& outcome) const {
  branch(model_->set, layout_, ends_, outcome, node, other);
}

}  // namespace ennopt
