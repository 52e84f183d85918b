// The linear program of a node on which neurons are held on or off, solved by a dual
// simplex method that knows the network.
//
// Every neuron is a point (h, y) of the triangle with the corners O = (0, 0), U = (u, u)
// and L = (l, 0); held on, of the side OU, held off, of the side OL. Where bounds leave no
// choice, O is the end of that side, (l, l) or (u, 0). An input is a point between its
// bounds, here called O and U as well. Multipliers lambda of the equations
// h = W y + b give a bound whatever they are:
//
//   B = sum lambda b + sum_inputs max_v g x_v + sum_neurons max_v (p y_v - lambda h_v)
//
// with p = W' lambda from the layer above (the output's weights for the last one) and
// g the same for the inputs. A basis says which corners of each item are tied in their
// maximum. Two tied corners of a neuron make lambda a multiple of p, three ("a face")
// make both zero, and two of an input make g zero. So only neurons in a single corner
// have multipliers of their own, as many as there are inputs between their bounds and
// faces: a small system of equations. A pivot unties a corner whose weight in the point
// is negative (or that is not allowed) and moves the multipliers down to a new tie.
//
// A row of the feasible set, a x + G f >= s with the outputs f, is one item more, like a
// neuron that is held on: h = a x + G f - s on the side OU, with no layer above that takes
// its y, so that p = 0. Its corner O is the row's edge. Its multiplier adds to the weights of
// the outputs, which the networks' last layers pass down. Here s is a little larger than what
// the proof uses: a point on the edge then still counts as feasible when it was rounded.
//
// A line above a neuron is a row, too: y <= a Y + c with the outputs Y of the layer before
// (lines_above.py). Its h = a Y + c - y feeds nothing either; its multiplier is taken from
// the neuron's p and adds to what is passed down. A neuron in a face that such a row is tight
// for is on a line again and needs no equation: the row's multiplier takes all of its p.
//
// Inputs behind those of the model are extra ones that no network sees: the risks of the
// objective, which rows keep below weightings of outputs (pool.hpp).
#pragma once

// Weights of corners down to minus kLean are taken for zero; so is a pivot, in units of
// the sides. The number of pivots is limited; what that leaves undone only costs strength.
// After so many multiplications a program pauses, for the clock.
constexpr double kLean = 1e-9, kSingular = 1e-12, kPause = 3e8;
// The same for rows: a tenth of what a point may miss them by.
constexpr double kLeanRow = 1e-10;
constexpr int kPivotsPerItem = 10;

struct Program : Passes {
  using Passes::Passes;

  // The equation of item d + i in units of the sides.
  void scale(int i, double* out) const {
    const double unit = 1.0 / side[d + i];
    for (int c = 0; c < size; ++c) out[c] *= unit * side[columns[c]];
  }

  // The equations of the basis, in triangles; false if they have no solution.
  bool factorize() {
    size = 0;
    int count = 0;
    for (int i = 0; i < n; ++i) lined[i] = -1;
    for (int k = 0; k < ranges.count; ++k) {
      const int i = ranges.rows[k].neuron;
      if (i >= 0 && face(d + i) && single(tied[d + n + k])) lined[i] = k;
    }
    for (int item = 0; item < d + n; ++item)
      if (item < d ? !single(tied[item]) : face(item) && lined[item - d] < 0) {
        column_of[item] = size;
        columns[size++] = item;
      }
    for (int i = 0; i < m; ++i) {
      line(i, tied[d + i]);
      source[i] = 0.0;
      if (single(tied[d + i]) && !on_line(i)) rows[count++] = i;
    }
    if (count != size || size > most) return false;
    count = 0;
    for (const Stack& stack : model.stacks)
      for (int s = 0; s + 1 < int(stack.layers.size()); ++s)
        for (int r = 0; r < stack.layers[s].rows; ++r)
          if (single(tied[d + stack.layers[s].first + r]))
            dependence(stack, s, r, at(count++));
    for (int k = 0; k < ranges.count; ++k)
      if (single(tied[d + n + k]) && !on_line(n + k)) dependence(k, at(count++));
    for (int k = 0; k < size; ++k) scale(rows[k], at(k));
    for (int k = 0; k < size; ++k) order[k] = k;
    for (int k = 0; k < size; ++k) {
      int best = k;
      for (int r = k + 1; r < size; ++r)
        if (std::fabs(at(r)[k]) > std::fabs(at(best)[k])) best = r;
      const double pivot = at(best)[k];
      if (!(std::fabs(pivot) > kSingular)) return false;
      if (best != k) {
        for (int c = 0; c < size; ++c) {
          const double swap = at(k)[c];
          at(k)[c] = at(best)[c];
          at(best)[c] = swap;
        }
        const int swap = order[k];
        order[k] = order[best];
        order[best] = swap;
      }
      for (int r = k + 1; r < size; ++r) {
        if (at(r)[k] == 0.0) continue;
        const double share = at(r)[k] /= pivot;
        axpy(at(r) + k + 1, -share, at(k) + k + 1, size - k - 1);
      }
    }
    return true;
  }
  // Whether item d + i is the row whose line its neuron is on.
  bool on_line(int i) const {
    return i >= n && ranges.rows[i - n].neuron >= 0 && lined[ranges.rows[i - n].neuron] == i - n;
  }
  double* at(int k) const { return lu + std::size_t(k) * size; }

  // slots = M^-1 rhs: from rows to columns.
  void solve_columns() {
    for (int k = 0; k < size; ++k) {
      double sum = rhs[order[k]] / side[d + rows[order[k]]];
      for (int c = 0; c < k; ++c) sum -= at(k)[c] * slots[c];
      slots[k] = sum;
    }
    for (int k = size - 1; k >= 0; --k) {
      double sum = slots[k];
      for (int c = k + 1; c < size; ++c) sum -= at(k)[c] * slots[c];
      slots[k] = sum / at(k)[k];
    }
    for (int k = 0; k < size; ++k) slots[k] *= side[columns[k]];
  }

  // out[rows] = M'^-1 rhs: from columns to rows.
  void solve_rows(double* out) {
    for (int k = 0; k < size; ++k) slots[k] = rhs[k] * side[columns[k]];
    for (int k = 0; k < size; ++k) {
      slots[k] /= at(k)[k];
      axpy(slots + k + 1, -slots[k], at(k) + k + 1, size - k - 1);
    }
    for (int k = size - 1; k >= 0; --k) axpy(slots, -slots[k], at(k), k);
    for (int k = 0; k < size; ++k) {
      const int i = rows[order[k]];
      out[i] = slots[k] / side[d + i];
    }
  }

  // A basis without equations: every neuron on the line above if the output rises with
  // it, else on one of the lines below.
  void crash() {
    for (int i = 0; i < n; ++i) lined[i] = -1;
    for (int q = 0; q < d; ++q)
      if (may[q]) tied[q] = kO;
    for (int i = 0; i < m; ++i) {
      if (may[d + i]) tied[d + i] = may[d + i] == kAll ? below(i) : may[d + i];
      line(i, tied[d + i]);
      source[i] = 0.0;
    }
    // Each pass settles one layer more, from the last to the first.
    for (int pass = 1; pass < model.deepest; ++pass) {
      backward(1.0, p, lambda, g, c);
      for (int i = 0; i < n; ++i)
        if (may[d + i] == kAll) line(i, tied[d + i] = p[i] > 0.0 ? kU | kL : below(i));
    }
  }
  std::uint8_t below(int i) const { return kO | (high[i] > -low[i] ? kU : kL); }

  // Multipliers of the basis: nothing may depend on the columns. Items in a single
  // corner leave it if another one is better by more than rounding.
  void multiply() {
    for (int k = 0; k < size; ++k) lambda[rows[k]] = 0.0;
    backward(1.0, p, lambda, g, c);
    if (size) {
      for (int k = 0; k < size; ++k)
        rhs[k] = columns[k] < d ? -g[columns[k]] : -p[columns[k] - d];
      solve_rows(lambda);
      backward(1.0, p, lambda, g, c);
    }
    value = 0.0;
    const double* output = c;
    for (const Stack& stack : model.stacks) {
      for (double bias : stack.output().bias) value += *output++ * bias;
      for (std::size_t s = 0; s + 1 < stack.layers.size(); ++s)
        for (int r = 0; r < stack.layers[s].rows; ++r)
          value += lambda[stack.layers[s].first + r] * stack.layers[s].bias[r];
    }
    for (int k = 0; k < ranges.count; ++k) value -= lambda[n + k] * ranges.rows[k].edge;
    for (int item = 0; item < d + m; ++item) {
      std::uint8_t best = one_of(tied[item] & may[item]);
      if (!best) best = one_of(may[item] ? may[item] : tied[item]);
      double most_worth = worth(item, best);
      for (std::uint8_t v = kO; v <= kL; v <<= 1) {
        if (!(may[item] & v)) continue;
        const double other = worth(item, v);
        const double rounding = kSingular * (std::fabs(other) + std::fabs(most_worth));
        if (other > most_worth + rounding) best = v, most_worth = other;
      }
      if (may[item] && single(tied[item])) tied[item] = best;
      value += most_worth;
    }
  }

  // The point of the basis.
  void locate() {
    for (int q = 0; q < d; ++q)
      if (single(tied[q])) x[q] = across(q, tied[q]);
    forward();
    if (!size) return;
    for (int k = 0; k < size; ++k)
      rhs[k] = across(d + rows[k], tied[d + rows[k]]) - h[rows[k]];
    solve_columns();
    for (int c = 0; c < size; ++c)
      (columns[c] < d ? x[columns[c]] : tau[columns[c] - d]) += slots[c];
    forward();
  }

  // Weight of a tied corner in the point of its item.
  double weight(int item, std::uint8_t v) const {
    const int i = item - d;
    if (item < d || !face(item)) {
      const std::uint8_t other = tied[item] & ~v;
      const double from = across(item, other), at = item < d ? x[item] : h[i];
      return (at - from) / (across(item, v) - from);
    }
    const double up = y[i] / high[i], down = (h[i] - y[i]) / low[i];
    return v == kU ? up : v == kL ? down : 1.0 - up - down;
  }

  // The corner to untie: furthest on the wrong side. False if there is none.
  bool leaving(int& item, std::uint8_t& corner, double& theta) const {
    double worst = 0.0;
    for (int i = 0; i < d + m; ++i) {
      if (!may[i] || single(tied[i])) continue;
      const double length = side[i], lean = i < d + n ? kLean : kLeanRow;
      for (std::uint8_t v = kO; v <= kL; v <<= 1) {
        if (!(tied[i] & v)) continue;
        const double t = weight(i, v), wrong = may[i] & v ? -t : std::fabs(t);
        if (wrong > lean && wrong * length > worst)
          worst = wrong * length, item = i, corner = v, theta = t;
      }
    }
    return worst > 0.0;
  }

  // The direction in which the corner falls by `fall` below what it was tied with, and
  // all other ties hold.
  void aim(int item, std::uint8_t corner, double fall) {
    const std::uint8_t rest = tied[item] & ~corner, w = one_of(rest);
    const double dh = across(item, corner) - across(item, w);
    for (int c = 0; c < size; ++c) rhs[c] = 0.0;
    eased = -1;
    if (item < d) {
      rhs[column_of[item]] = -fall / dh;
    } else {
      const int i = item - d;
      double push = fall / dh, target = 0.0;
      if (face(item)) {
        line(i, rest);
        target = -fall / (above(item, corner) - above(item, w) - kappa[i] * dh);
        push = kappa[i] * target;
      } else {
        source[i] = push;
      }
      if (push != 0.0 && size) {
        for (const Stack& stack : model.stacks)
          for (int s = 0; s + 1 < int(stack.layers.size()); ++s) {
            const int r = i - stack.layers[s].first;
            if (r >= 0 && r < stack.layers[s].rows) dependence(stack, s, r, slots);
          }
        if (i >= n) dependence(i - n, slots);
        for (int c = 0; c < size; ++c) rhs[c] = -push * slots[c];
      }
      if (i < n && lined[i] >= 0) {  // only a neuron on a face is on a line
        eased = i, ease = target;
        for (int c = 0; c < size; ++c) slots[c] = 0.0;
        dependence_above(lined[i], false, slots);
        for (int c = 0; c < size; ++c) rhs[c] += target * slots[c];
      } else if (face(item)) {
        rhs[column_of[item]] += target;
      }
    }
    if (size) solve_rows(dlambda);
    backward(0.0, dp, dlambda, dg, dc);
  }

  // When along the direction the next allowed corner draws level with the tied ones.
  void look_ahead(int item) {
    when[item] = std::numeric_limits<double>::infinity();
    const std::uint8_t others = may[item] & ~tied[item], w = one_of(tied[item]);
    if (!others) return;
    const double now = worth(item, w), pace = climb(item, w);
    const double drift =
        item < d ? std::fabs(dg[item])
                 : std::fabs(dp[item - d]) + std::fabs(dlambda[item - d]);
    const double rounding = kSingular * (1.0 + side[item] * drift);
    for (std::uint8_t v = kO; v <= kL; v <<= 1) {
      if (!(others & v)) continue;
      const double gain = climb(item, v) - pace;
      if (!(gain > rounding)) continue;
      const double t = larger(now - worth(item, v), 0.0) / gain;
      if (t < when[item]) when[item] = t, rate[item] = gain, what[item] = v;
    }
  }

  void advance(double t) {
    axpy(p, t, dp, n);
    axpy(lambda, t, dlambda, m);
    axpy(g, t, dg, d);
    axpy(c, t, dc, model.outputs);
  }

  // Untie the corner and go down as long as the bound falls; items in a single corner
  // may change it on the way. False if the program is unbounded: then no input satisfies
  // the signs held at the node.
  // The direction proves it, or else multipliers that go far enough below the cutoff.
  bool pivot(int item, std::uint8_t corner, double theta, double cutoff) {
    aim(item, corner, theta < 0.0 ? 1.0 : -1.0);
    const std::uint8_t allowed = may[item];
    may[item] &= ~corner;  // it does not come back in this step
    tied[item] &= ~corner;
    for (int i = 0; i < d + m; ++i) look_ahead(i);
    double t = 0.0, slope = -std::fabs(theta);
    int first = -1;
    for (int lap = 0;; ++lap) {
      double soonest = std::numeric_limits<double>::infinity();
      for (int i = 0; i < d + m; ++i) soonest = smaller(soonest, when[i]);
      // Of ties at the same time the one that bends the bound most: others may depend
      // on the ties that hold and leave equations without a solution.
      const double same = soonest + kSingular * std::fabs(value);
      first = -1;
      for (int i = 0; i < d + m && soonest < kLargest; ++i)
        if (when[i] <= same && (first < 0 || rate[i] > rate[first])) first = i;
      if (first < 0) break;
      value += slope * (when[first] - t);
      t = when[first];
      slope += rate[first];
      if (slope >= 0.0 || !single(tied[first]) || lap > 2 * (d + m)) {
        tied[first] |= what[first];
        break;
      }
      tied[first] = what[first];
      look_ahead(first);
      when[first] = larger(when[first], t);
    }
    may[item] = allowed;
    if (first < 0) {
      const double depth = std::isfinite(cutoff) ? std::fabs(cutoff) : 0.0;
      t -= 2.0 * (1.0 + std::fabs(value) + depth) / slope;
    }
    advance(t);
    return first >= 0;
  }

  // The bound that the multipliers prove (duality.hpp).
  double bound() {
    return proved_by(model, ranges, may + d, {lambda, p, g, c, dp, dg, dc});
  }
  // Whether the last direction proves that the node is empty.
  bool empty() {
    return proved_by(model, ranges, may + d, {dlambda, p, g, c, dp, dg, dc}, 0.0) < 0.0;
  }

  // Ties and allowed corners from the bytes of a node. What the bounds decide is not
  // taken from there, and an item that cannot move is left out of all choices.
  void read(const std::uint8_t* states) {
    for (int q = 0; q < d; ++q) side[q] = upper[q] - lower[q];
    for (int i = 0; i < m; ++i) {
      side[d + i] = high[i] - low[i];
      origin[i] = larger(smaller(0.0, high[i]), low[i]);
    }
    for (int i = 0; i < d + m; ++i) {
      const bool on = i < d || low[i - d] >= 0.0, off = !on && high[i - d] <= 0.0;
      const std::uint8_t line = on ? kO | kU : kO | kL, asked = states[i] >> 3;
      tied[i] = states[i] & kAll;
      may[i] = on || off ? line : asked == (kO | kU) || asked == (kO | kL) ? asked : kAll;
      if (on || off) tied[i] &= line;
      if (i >= d + n && !tied[i]) tied[i] = line;  // a row that is new
      if (side[i] > 0.0 && !(i >= d + n && needless(i - d - n))) continue;
      may[i] = 0;
      tied[i] = i < d ? kO : line;
    }
  }

  // Whether row k is a line above a neuron that is held, so that nothing is lost without it.
  // If it is tied it stays until a pivot unties it: the basis keeps its equations.
  bool needless(int k) const {
    const int i = ranges.rows[k].neuron;
    return i >= 0 && may[d + i] != kAll && !single(tied[d + n + k]);
  }

  void restart() {
    crash();
    factorize();
    multiply();
  }

  int most_pivots() const { return kPivotsPerItem * (d + m); }

  // Pivots between two pauses.
  int patience() const {
    double weights = 1.0 + double(ranges.count) * (d + model.outputs);
    for (const Stack& stack : model.stacks)
      for (const Layer& layer : stack.layers) weights += double(layer.weights.size());
    const double count = kPause / (weights * (8.0 + 0.5 * d));
    return count < 10.0 ? 10 : count < most_pivots() ? int(count) : most_pivots();
  }

  // Solve from the basis in `states`, leave the last one there, return what is proved:
  // the optimum of the program, something below the cutoff, or, at a pause, less.
  double solve(std::uint8_t* states, double cutoff) {
    read(states);
    for (int q = 0; q < d; ++q) x[q] = 0.5 * (lower[q] + upper[q]);
    for (int i = 0; i < m; ++i) y[i] = lambda[i] = dlambda[i] = 0.0;
    for (int i = n; i < m; ++i) p[i] = dp[i] = 0.0;
    bool restarted = !factorize(), exact = true;
    if (restarted) restart();
    else multiply();
    double proved = std::numeric_limits<double>::infinity();
    done = false;
    const int pause = patience();
    for (pivots = 0; !done && pivots < pause; ++pivots) {
      locate();
      int item = -1;
      std::uint8_t corner = 0;
      double theta = 0.0;
      if (value <= cutoff && (proved = smaller(proved, bound())) <= cutoff) {
        done = true;
      } else if (!leaving(item, corner, theta)) {
        // The basis is the best one; many steps may have worn its multipliers.
        proved = smaller(proved, bound());
        const double reached = objective();
        done = exact || proved - reached <= kLean * (std::fabs(reached) + model.spread);
        exact = true;
        if (!done) multiply();
      } else if (!pivot(item, corner, theta, cutoff)) {
        if (empty()) proved = -std::numeric_limits<double>::infinity();
        done = true;
      } else {
        exact = false;
        if (factorize()) continue;
        done = restarted;
        restarted = true;
        proved = smaller(proved, bound());
        if (!done) restart();
      }
    }
    for (int i = 0; i < d + m; ++i) states[i] = SignLayout::state(tied[i], may[i]);
    return smaller(proved, bound());
  }

  // The program's objective at its point.
  double objective() const {
    double sum = dot(model.goal.data(), f, model.outputs);
    for (int q = model.inputs; q < d; ++q) sum += x[q];
    return sum;
  }

  // The neuron to hold: where the triangle's line above would cost most, whatever lines share
  // its multiplier; only among those where the point misses ReLU if `missed`. -1 if there is
  // none.
  int costliest(bool missed) {
    double* costs = source;  // made anew before it is used again
    for (int i = 0; i < n; ++i) costs[i] = p[i];
    for (int k = 0; k < ranges.count; ++k)
      if (ranges.rows[k].neuron >= 0) costs[ranges.rows[k].neuron] += lambda[n + k];
    int best = -1;
    double most_cost = -1.0;
    for (int i = 0; i < n; ++i) {
      if (may[d + i] != kAll) continue;
      const double error = y[i] - larger(h[i], 0.0);
      if (missed && !(error > kLean * side[d + i])) continue;
      const double cost = larger(costs[i], 0.0) * high[i] * (-low[i] / side[d + i]);
      if (cost > most_cost) most_cost = cost, best = i;
    }
    return best;
  }
};
