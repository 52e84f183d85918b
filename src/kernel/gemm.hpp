// Small matrix products with one node per lane. A tile is kTile rows of linear forms;
// arrays of a tile are stored index by index, the rows of the tile side by side.
// Accumulators are sized to stay in registers; `unroll` keeps them there.
#pragma once

constexpr int kTile = 4;
constexpr int kWide = kLanes == 8 ? 24 : 12;  // accumulators that fit the registers

// Call f<N>(at) for pieces of N = most, most, ..., rest that make up `count`.
template <int N, class F>
inline void in_pieces(int count, F&& f) {
  int at = 0;
  for (; at + N <= count; at += N) f(std::integral_constant<int, N>{}, at);
  if constexpr (N > 1) {
    const int left = count - at;
    if constexpr (N > 5)
      if (left == 5) f(std::integral_constant<int, 5>{}, at);
    if constexpr (N > 4)
      if (left == 4) f(std::integral_constant<int, 4>{}, at);
    if constexpr (N > 3)
      if (left == 3) f(std::integral_constant<int, 3>{}, at);
    if constexpr (N > 2)
      if (left == 2) f(std::integral_constant<int, 2>{}, at);
    if (left == 1) f(std::integral_constant<int, 1>{}, at);
  }
}

// out[j][t] = sum_i rows[i][t] * weights[i][j], weights common to all lanes.
template <int J, class V>
inline void gemm_columns(const V* rows, int count, const RealOf<V>* weights, int stride,
                         V* out) {
  V acc[J * kTile];
#pragma GCC unroll 32
  for (int x = 0; x < J * kTile; ++x) acc[x] = V{};
  for (int i = 0; i < count; ++i) {
    const V* row = rows + i * kTile;
    const RealOf<V>* w = weights + std::ptrdiff_t(i) * stride;
#pragma GCC unroll 8
    for (int j = 0; j < J; ++j) {
      const V b = fill<V>(w[j]);
#pragma GCC unroll 4
      for (int t = 0; t < kTile; ++t) acc[j * kTile + t] += row[t] * b;
    }
  }
#pragma GCC unroll 32
  for (int x = 0; x < J * kTile; ++x) out[x] = acc[x];
}

template <class V>
[[gnu::noinline]] void gemm(const V* rows, int count, const RealOf<V>* weights, int columns,
                            V* out) {
  in_pieces<kWide / kTile>(columns, [&](auto piece, int j) {
    gemm_columns<piece()>(rows, count, weights + j, columns, out + j * kTile);
  });
}

// out[r][p] = sum_i weights[r][columns[i]] * matrix[i][p] for the listed rows r.
template <int R, int P, class V>
inline void product_block(const RealOf<V>* const* weights, const int* columns, int count,
                          const V* matrix, int inputs, V* const* out) {
  V acc[R * P];
#pragma GCC unroll 32
  for (int x = 0; x < R * P; ++x) acc[x] = V{};
  for (int i = 0; i < count; ++i) {
    const V* row = matrix + std::ptrdiff_t(i) * inputs;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V b = fill<V>(weights[r][columns[i]]);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) acc[r * P + p] += b * row[p];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) out[r][p] = acc[r * P + p];
}

template <class V>
[[gnu::noinline]] void product(const RealOf<V>* const* weights, int rows,
                               const int* columns, int count, const V* matrix,
                               int inputs, V* const* out) {
  in_pieces<4>(rows, [&](auto some, int r) {
    in_pieces<kWide / 4>(inputs, [&](auto piece, int p) {
      V* to[some()];
      for (int q = 0; q < some(); ++q) to[q] = out[r + q] + p;
      product_block<some(), piece()>(weights + r, columns, count, matrix + p, inputs, to);
    });
  });
}

// out[i][t] = start[i] + sum_p signs[p][t] * matrix[list[i]][p].
template <int T, int I, class V>
inline void along_rows(const V* signs, const V* matrix, int inputs, const int* list,
                       const std::type_identity_t<V>* start, V* out) {
  V acc[I * T];
  const V* rows[I];
#pragma GCC unroll 8
  for (int i = 0; i < I; ++i) {
    rows[i] = matrix + std::ptrdiff_t(list[i]) * inputs;
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) acc[i * T + t] = start ? start[list[i]] : V{};
  }
  for (int p = 0; p < inputs; ++p)
#pragma GCC unroll 8
    for (int i = 0; i < I; ++i) {
      const V m = rows[i][p];
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) acc[i * T + t] += signs[p * T + t] * m;
    }
#pragma GCC unroll 32
  for (int x = 0; x < I * T; ++x) out[x] = acc[x];
}

template <int T, class V>
[[gnu::noinline]] void along(const V* signs, const V* matrix, int inputs,
                             const int* list, int count, const std::type_identity_t<V>* start,
                            V* out) {
  in_pieces<(kLanes == 8 ? 4 : 2)>(count, [&](auto some, int i) {
    along_rows<T, some()>(signs, matrix, inputs, list + i, start, out + i * T);
  });
}

// The same twice: top with signs, wide[i][t] = sum_p open[p][t] * |matrix[list[i]][p]|.
template <int T, int I, class V>
inline void along_both_rows(const V* signs, const V* open, const V* matrix,
                            int inputs, const int* list, const V* start, V* top,
                            V* wide) {
  V acc[I * T], sum[I * T];
  const V* rows[I];
#pragma GCC unroll 8
  for (int i = 0; i < I; ++i) {
    rows[i] = matrix + std::ptrdiff_t(list[i]) * inputs;
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) acc[i * T + t] = start[list[i]], sum[i * T + t] = V{};
  }
  for (int p = 0; p < inputs; ++p)
#pragma GCC unroll 8
    for (int i = 0; i < I; ++i) {
      const V m = rows[i][p], size = vabs(m);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        acc[i * T + t] += signs[p * T + t] * m;
        sum[i * T + t] += open[p * T + t] * size;
      }
    }
#pragma GCC unroll 32
  for (int x = 0; x < I * T; ++x) top[x] = acc[x], wide[x] = sum[x];
}

template <int T, class V>
[[gnu::noinline]] void along_both(const V* signs, const V* open, const V* matrix,
                                  int inputs, const int* list, int count,
                                  const V* start, V* top, V* wide) {
  in_pieces<(kLanes == 8 ? 3 : 1)>(count, [&](auto some, int i) {
    along_both_rows<T, some()>(signs, open, matrix, inputs, list + i, start, top + i * T,
                               wide + i * T);
  });
}

// g[p][t] += sum_i slopes[i][t] * matrix[list[i]][p].
template <int T, int P, class V>
inline void spread_columns(const V* slopes, const V* matrix, int inputs,
                           const int* list, int count, V* g) {
  V acc[P * T];
#pragma GCC unroll 32
  for (int x = 0; x < P * T; ++x) acc[x] = g[x];
  for (int i = 0; i < count; ++i) {
    const V* m = matrix + std::ptrdiff_t(list[i]) * inputs;
    const V* s = slopes + i * T;
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) acc[p * T + t] += s[t] * m[p];
  }
#pragma GCC unroll 32
  for (int x = 0; x < P * T; ++x) g[x] = acc[x];
}

template <int T, class V>
[[gnu::noinline]] void spread(const V* slopes, const V* matrix, int inputs,
                              const int* list, int count, V* g) {
  in_pieces<kWide / 4>(inputs, [&](auto piece, int p) {
    spread_columns<T, piece()>(slopes, matrix + p, inputs, list, count, g + p * T);
  });
}

// The same for two slopes at once: g += first * matrix - signs * (second * |matrix|).
template <int T, int P, class V>
inline void spread_signed_columns(const V* first, const V* second, const V* signs,
                                  const V* matrix, int inputs, const int* list,
                                  int count, V* g) {
  V acc[P * T], low[P * T];
#pragma GCC unroll 32
  for (int x = 0; x < P * T; ++x) acc[x] = g[x], low[x] = V{};
  for (int i = 0; i < count; ++i) {
    const V* m = matrix + std::ptrdiff_t(list[i]) * inputs;
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const V w = m[p], size = vabs(w);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        acc[p * T + t] += first[i * T + t] * w;
        low[p * T + t] += second[i * T + t] * size;
      }
    }
  }
#pragma GCC unroll 32
  for (int x = 0; x < P * T; ++x) g[x] = acc[x] - signs[x] * low[x];
}

template <int T, class V>
[[gnu::noinline]] void spread_signed(const V* first, const V* second,
                                     const V* signs, const V* matrix, int inputs,
                                     const int* list, int count, V* g) {
  in_pieces<(kLanes == 8 ? 3 : 1)>(inputs, [&](auto piece, int p) {
    spread_signed_columns<T, piece()>(first, second, signs + p * T, matrix + p, inputs,
                                      list, count, g + p * T);
  });
}
