// Values at single points: the forward pass, a local search, and whether a point is
// feasible. Nothing here proves anything.
#pragma once

#include "model.hpp"

namespace ennopt {

// Local search from x inside the box: steps along the signs of the gradient, shorter
// when they do not help. Changes x, returns its value; `scratch` holds `ascent_doubles`
// numbers, enough for `evaluate`, too.
double ascend(const Model& model, double* x, double* scratch);
std::size_t ascent_doubles(const Model& model);

// Whether a point of the box, with values that its inputs may take, is in all
// half-spaces, with room for rounding, in all regions around data, and meets all limits.
// False if there are convex regions, which only half-spaces are known of. `buffer` is that
// of `evaluate`.
bool feasible(const Model& model, const double* x, double* buffer);

}  // namespace ennopt
