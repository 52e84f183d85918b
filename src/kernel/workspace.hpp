// Scratch of one thread: everything a batch of nodes needs, allocated once.
#pragma once

// Hands out aligned arrays from one block; with a null block it only counts bytes.
struct Arena {
  char* block;
  std::size_t used = 0;
  template <class T>
  T* take(std::size_t count) {
    used = (used + 63) & ~std::size_t(63);
    T* array = reinterpret_cast<T*>(block + used);
    used += count * sizeof(T);
    return array;
  }
};

// What bounding the rows of a layer works on, with doubles or floats.
template <class V>
struct Arrays {
  double products = 0.0;  // multiply-adds of matrix products, per lane
  // Every neuron: lines above and below, status; rule 1: the slope below ReLU is
  // clip(middle + scale * deviation).
  V *slope, *shift, *under, *middle, *scale;
  FlagsOf<V> *unstable, *on;
  // Of floats: values at the reference point, what lines below ReLU have there beside
  // slope times value, and rounding per unit of a coefficient (single.hpp).
  V *reference, *floor, *error;
  // First layer of each stack: wr, hc, T, Lb, Ub, unstable and on neurons.
  V *slopes, *hc, *total, *lb, *ub;
  int *open, *opens, *fixed, *fixeds;
  // Sensitivities of the current stack's deeper layers; slopes times sensitivities.
  V *jacobian, *moved;
  // Active neurons of each layer, and the packed weights between active neurons.
  int *active, *actives;  // lists; counts per stack and layer
  RealOf<V> *packed, *packed_bias;
  std::size_t* packed_at;
  // A tile of rows, and multipliers of half-spaces for it.
  V *rows, *next, *deviation, *coef, *anchor, *range, *first, *second, *third;
  V *g, *gnew, *gopen, *stable, *signs, *undecided, *lean, *trial, *multipliers;

  Arrays(const Model& m, std::size_t halves, Arena& arena) {
    const std::size_t d = m.inputs, n = m.neurons, w = m.widest + 1, deep = m.deepest + 1;
    auto vec = [&](std::size_t count) { return arena.take<V>(count + 1); };
    const std::size_t e = m.stacks.size(), tile = kTile * (w > d ? w : d);
    slope = vec(n), shift = vec(n), under = vec(n), middle = vec(n), scale = vec(n);
    unstable = arena.take<FlagsOf<V>>(n + 1), on = arena.take<FlagsOf<V>>(n + 1);
    const std::size_t own = kIsSingle<V> ? n : 0;
    reference = vec(own), floor = vec(own), error = vec(own);
    slopes = vec(e * w * d), moved = vec(w * d), jacobian = vec(deep * w * d);
    hc = vec(e * w), total = vec(e * w), lb = vec(e * w), ub = vec(e * w);
    open = arena.take<int>(e * w), opens = arena.take<int>(e);
    fixed = arena.take<int>(e * w), fixeds = arena.take<int>(e);
    active = arena.take<int>(e * deep * w), actives = arena.take<int>(e * deep);
    packed = arena.take<RealOf<V>>(deep * w * (w > d ? w : d));
    packed_bias = arena.take<RealOf<V>>(deep * w);
    packed_at = arena.take<std::size_t>(deep + 1);
    rows = vec(tile), next = vec(tile), deviation = vec(tile), coef = vec(tile);
    anchor = vec(tile), range = vec(tile);
    first = vec(tile), second = vec(tile), third = vec(tile);
    g = vec(d * kTile), gnew = vec(d * kTile), gopen = vec(d * kTile);
    stable = vec(d * kTile), signs = vec(d * kTile), undecided = vec(d * kTile);
    lean = vec(d * kTile), trial = vec(2 * (w > d ? w : d));
    multipliers = vec(kTile * halves);
  }
};

struct Work : Arrays<Vec> {
  // The batch: boxes, the cut, and half-spaces.
  Vec *lower, *upper, *centre, *radius, *cut, *slopes_of_set, *scaled, *inverse;
  Vec *moved_by, *tied_by, *way;
  HalfSpace *half_spaces, *others;
  double *depths, *ranked;  // how deep half-spaces of the set cut
  Vec *lowest, *highest;  // of a region around data: its first few ends, input by input
  double *forward, *at;  // for one point, through every neuron, and the point
  // Every neuron: bounds, slopes below ReLU in the majorant, what multiplies its output,
  // dependence on the inputs for the smear.
  Vec *low, *high, *under_shift, *alpha, *coefficient, *smear;
  // The objective.
  Vec *form, *base, *best, *point, *ahead, *score;
  // Limits that are inherited; functions of several outputs (functions.hpp).
  Vec *limit_slopes, *limit_constants;
  Vec *piece_slopes, *piece_centre, *piece_base, *piece_base_centre, *piece_margin;
  Vec *piece_coefficient, *piece_error, *shares, *weights, *kept, *target, *tried, *heard;
  Vec *outputs, *reached, *over, *tried_form, *tried_point;
  double* alone;  // outputs and weights of one lane
  int* every;     // 0, 1, 2 and so on

  static std::size_t most_half_spaces(const Model& m) {
    return std::size_t(1) + m.limits() + m.set.half_spaces();
  }
  Work(const Model& m, Arena& arena) : Arrays(m, most_half_spaces(m), arena) {
    const std::size_t d = m.inputs, n = m.neurons, w = m.widest + 1;
    auto vec = [&](std::size_t count) { return arena.take<Vec>(count + 1); };
    lower = vec(d), upper = vec(d), centre = vec(d), radius = vec(d), cut = vec(d);
    const std::size_t halves = most_half_spaces(m);
    slopes_of_set = vec(d), scaled = vec(halves * d), inverse = vec(halves * d);
    moved_by = vec(d), tied_by = vec(d), way = vec(d);
    half_spaces = arena.take<HalfSpace>(halves), others = arena.take<HalfSpace>(halves);
    depths = arena.take<double>(halves), ranked = arena.take<double>(halves);
    std::size_t few = 0;
    for (const Near& near : m.set.near) few = few > near.count ? few : near.count;
    lowest = vec(few * d), highest = vec(few * d);
    forward = arena.take<double>(forward_doubles(m)), at = arena.take<double>(d);
    low = vec(n), high = vec(n), under_shift = vec(m.smooth ? n : 0);
    alpha = vec(n), coefficient = vec(n), smear = vec(n * d);
    form = vec(d), base = vec(d), best = vec(d), point = vec(d), score = vec(d);
    ahead = vec(2 * w);
    if (!m.several()) return;
    const std::size_t k = m.pieces.size(), o = m.outputs, limits = m.limits();
    limit_slopes = vec(limits * d), limit_constants = vec(limits);
    piece_slopes = vec(k * d), piece_centre = vec(k), piece_margin = vec(k);
    piece_base = vec(k * d), piece_base_centre = vec(k);
    piece_coefficient = vec(k * m.largest), piece_error = vec(k), shares = vec(k);
    weights = vec((1 + limits) * o), kept = vec(o), target = vec(o), tried = vec(o);
    heard = vec(o), outputs = vec(o), reached = vec(limits), over = vec(limits);
    tried_form = vec(d), tried_point = vec(d), alone = arena.take<double>(2 * o);
    every = arena.take<int>(w > d ? w : d);
  }
};
