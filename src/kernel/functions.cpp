// Bounds a batch of boxes for several functions of the outputs: an objective and limits. A
// file of its own, so that the compiler makes of the code for sums what it would make of it
// alone.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "model.hpp"

namespace ennopt {

namespace {

#include "simd.hpp"
#include "gemm.hpp"
#include "concretise.hpp"
#include "lines.hpp"
#include "workspace.hpp"
#include "relaxation.hpp"
#include "majorant.hpp"
#include "functions.hpp"
#include "node.hpp"

}  // namespace

double ENNOPT_FUNCTIONS(const Model& model, const Settings& settings, const BoxLayout& layout,
                        double cutoff, double* const* nodes, int count, Outcome* outcomes,
                        void* scratch, const Trace* trace);

double ENNOPT_FUNCTIONS(const Model& model, const Settings& settings, const BoxLayout& layout,
                        double cutoff, double* const* nodes, int count, Outcome* outcomes,
                        void* scratch, const Trace* trace) {
  return bound<Bounder, Functions>(model, settings, layout, cutoff, nodes, count, outcomes,
                                      scratch, trace);
}

}  // namespace ennopt
