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

struct Work {
  double products = 0.0;  // multiply-adds of matrix products, per lane
  // The batch: boxes, the cut, and half-spaces with their multipliers for a tile.
  Vec *lower, *upper, *centre, *radius, *cut, *slopes_of_set, *scaled, *inverse;
  Vec *multipliers, *moved_by, *tied_by, *way;
  HalfSpace *half_spaces, *others;
  double *depths, *ranked;  // how deep half-spaces of the set cut
  Vec *lowest, *highest;  // of a region around data: its first few ends, input by input
  double *forward, *at;  // for one point, through every neuron, and the point
  // Every neuron: bounds, lines, status, dependence on the inputs for the smear.
  Vec *low, *high, *slope, *shift, *under, *under_shift, *alpha, *coefficient, *smear;
  Mask *unstable, *on;
  // Rule 1: alpha = clip(middle + scale * deviation).
  Vec *middle, *scale;
  // First layer of each stack: wr, hc, T, Lb, Ub, unstable and on neurons.
  Vec *slopes, *hc, *total, *lb, *ub;
  int *open, *opens, *fixed, *fixeds;
  // Sensitivities of the current stack's deeper layers; slopes times sensitivities.
  Vec *jacobian, *moved;
  // Active neurons of each layer, and the packed weights between active neurons.
  int *active, *actives;  // lists; counts per stack and layer
  double *packed, *packed_bias;
  std::size_t* packed_at;
  // A tile of rows.
  Vec *rows, *next, *deviation, *coef, *anchor, *range, *first, *second, *third;
  Vec *g, *gnew, *gopen, *stable, *signs, *undecided, *lean;
  // The objective.
  Vec *form, *base, *best, *point, *ahead, *trial, *score;
  // Limits that are inherited; functions of several outputs (functions.hpp).
  Vec *limit_slopes, *limit_constants;
  Vec *piece_slopes, *piece_centre, *piece_base, *piece_base_centre, *piece_margin;
  Vec *piece_coefficient, *piece_error, *shares, *weights, *kept, *target, *tried, *heard;
  Vec *outputs, *reached, *over, *tried_form, *tried_point;
  double* alone;  // outputs and weights of one lane
  int* every;     // 0, 1, 2 and so on

  Work(const Model& m, Arena& arena) {
    const std::size_t d = m.inputs, n = m.neurons, w = m.widest + 1, deep = m.deepest + 1;
    auto vec = [&](std::size_t count) { return arena.take<Vec>(count + 1); };
    lower = vec(d), upper = vec(d), centre = vec(d), radius = vec(d), cut = vec(d);
    const std::size_t halves = 1 + m.limits() + m.set.half_spaces();
    slopes_of_set = vec(d), scaled = vec(halves * d), inverse = vec(halves * d);
    multipliers = vec(kTile * halves), moved_by = vec(d), tied_by = vec(d), way = vec(d);
    half_spaces = arena.take<HalfSpace>(halves), others = arena.take<HalfSpace>(halves);
    depths = arena.take<double>(halves), ranked = arena.take<double>(halves);
    std::size_t few = 0;
    for (const Near& near : m.set.near) few = few > near.count ? few : near.count;
    lowest = vec(few * d), highest = vec(few * d);
    forward = arena.take<double>(forward_doubles(m)), at = arena.take<double>(d);
    low = vec(n), high = vec(n), slope = vec(n), shift = vec(n), under = vec(n);
    under_shift = vec(m.smooth ? n : 0), alpha = vec(n), coefficient = vec(n), smear = vec(n * d);
    unstable = arena.take<Mask>(n + 1), on = arena.take<Mask>(n + 1);
    middle = vec(n), scale = vec(n);
    const std::size_t e = m.stacks.size();
    slopes = vec(e * w * d), moved = vec(w * d), jacobian = vec(deep * w * d);
    hc = vec(e * w), total = vec(e * w), lb = vec(e * w), ub = vec(e * w);
    open = arena.take<int>(e * w), opens = arena.take<int>(e);
    fixed = arena.take<int>(e * w), fixeds = arena.take<int>(e);
    active = arena.take<int>(e * deep * w), actives = arena.take<int>(e * deep);
    packed = arena.take<double>(deep * w * (w > d ? w : d));
    packed_bias = arena.take<double>(deep * w);
    packed_at = arena.take<std::size_t>(deep + 1);
    const std::size_t tile = kTile * (w > d ? w : d);
    rows = vec(tile), next = vec(tile), deviation = vec(tile), coef = vec(tile);
    anchor = vec(tile), range = vec(tile);
    first = vec(tile), second = vec(tile), third = vec(tile);
    g = vec(d * kTile), gnew = vec(d * kTile), gopen = vec(d * kTile);
    stable = vec(d * kTile), signs = vec(d * kTile), undecided = vec(d * kTile);
    lean = vec(d * kTile);
    form = vec(d), base = vec(d), best = vec(d), point = vec(d), score = vec(d);
    ahead = vec(2 * w), trial = vec(2 * (w > d ? w : d));
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
