// Values at single points: the forward pass, a local search, and whether a point is
// feasible. Nothing here proves anything.
#pragma once

#include "model.hpp"

namespace ennopt {

// Local search from x inside the box: steps along the signs of the gradient, shorter
// when they do not help. Changes x, returns its value.
double ascend(const Model& model, double* x);

// Whether a point of the box is in all half-spaces, which are wider by their slack, with
// room for rounding.
bool feasible(const Model& model, const double* x);

}  // namespace ennopt
