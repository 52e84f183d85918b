// Small matrix products with one node per lane. A tile is kTile rows of linear forms;
// arrays of a tile are stored index by index, the kTile rows side by side.
#pragma once

constexpr int kTile = 4;

// out[j][t] = sum_i rows[i][t] * weights[i][j], weights common to all lanes.
template <int J>
inline void gemm_columns(const Vec* rows, int count, const double* weights, int stride,
                         Vec* out) {
  Vec acc[J][kTile];
  for (int j = 0; j < J; ++j)
    for (int t = 0; t < kTile; ++t) acc[j][t] = Vec{};
  for (int i = 0; i < count; ++i) {
    const Vec* row = rows + i * kTile;
    const double* w = weights + std::ptrdiff_t(i) * stride;
    for (int j = 0; j < J; ++j) {
      const Vec b = splat(w[j]);
      for (int t = 0; t < kTile; ++t) acc[j][t] += row[t] * b;
    }
  }
  for (int j = 0; j < J; ++j)
    for (int t = 0; t < kTile; ++t) out[j * kTile + t] = acc[j][t];
}

constexpr int kColumns = kLanes == 8 ? 6 : 3;

[[gnu::noinline]] void gemm(const Vec* rows, int count, const double* weights, int columns,
                 Vec* out) {
  int j = 0;
  for (; j + kColumns <= columns; j += kColumns)
    gemm_columns<kColumns>(rows, count, weights + j, columns, out + j * kTile);
  if constexpr (kColumns > 3) {
    for (; j + 3 <= columns; j += 3)
      gemm_columns<3>(rows, count, weights + j, columns, out + j * kTile);
  }
  if (columns - j == 2)
    gemm_columns<2>(rows, count, weights + j, columns, out + j * kTile);
  else if (columns - j == 1)
    gemm_columns<1>(rows, count, weights + j, columns, out + j * kTile);
}

// out[i][t] = start[i] + sum_p signs[p][t] * matrix[i][p], for the listed i.
template <int T, int I>
inline void along_rows(const Vec* signs, const Vec* const* matrix, int inputs,
                       const Vec* start, Vec* out) {
  Vec acc[I][T];
  for (int i = 0; i < I; ++i)
    for (int t = 0; t < T; ++t) acc[i][t] = start[i];
  for (int p = 0; p < inputs; ++p)
    for (int i = 0; i < I; ++i) {
      const Vec m = matrix[i][p];
      for (int t = 0; t < T; ++t) acc[i][t] += signs[p * T + t] * m;
    }
  for (int i = 0; i < I; ++i)
    for (int t = 0; t < T; ++t) out[i * T + t] = acc[i][t];
}

template <int T>
[[gnu::noinline]] void along(const Vec* signs, const Vec* matrix, int inputs, const int* list,
                  int count, const Vec* start, Vec* out) {
  constexpr int I = (kLanes == 8 ? 16 : 8) / T;
  int i = 0;
  for (; i < count; i += I) {
    const int left = count - i < I ? count - i : I;
    const Vec* rows[I];
    Vec begin[I];
    for (int q = 0; q < I; ++q) {
      const int n = list[i + (q < left ? q : 0)];
      rows[q] = matrix + std::ptrdiff_t(n) * inputs;
      begin[q] = start ? start[n] : Vec{};
    }
    if (left == I) {
      along_rows<T, I>(signs, rows, inputs, begin, out + i * T);
    } else {
      for (int q = 0; q < left; ++q)
        along_rows<T, 1>(signs, rows + q, inputs, begin + q, out + (i + q) * T);
    }
  }
}

// g[p][t] += sum_i slopes[i][t] * matrix[list[i]][p].
template <int T, int P>
inline void spread_columns(const Vec* slopes, const Vec* matrix, int inputs,
                           const int* list, int count, Vec* g) {
  Vec acc[P][T];
  for (int p = 0; p < P; ++p)
    for (int t = 0; t < T; ++t) acc[p][t] = g[p * T + t];
  for (int i = 0; i < count; ++i) {
    const Vec* m = matrix + std::ptrdiff_t(list[i]) * inputs;
    const Vec* s = slopes + i * T;
    for (int p = 0; p < P; ++p)
      for (int t = 0; t < T; ++t) acc[p][t] += s[t] * m[p];
  }
  for (int p = 0; p < P; ++p)
    for (int t = 0; t < T; ++t) g[p * T + t] = acc[p][t];
}

template <int T>
[[gnu::noinline]] void spread(const Vec* slopes, const Vec* matrix, int inputs, const int* list,
                   int count, Vec* g) {
  int p = 0;
  for (; p + kColumns <= inputs; p += kColumns)
    spread_columns<T, kColumns>(slopes, matrix + p, inputs, list, count, g + p * T);
  for (; p + 2 <= inputs; p += 2)
    spread_columns<T, 2>(slopes, matrix + p, inputs, list, count, g + p * T);
  if (p < inputs)
    spread_columns<T, 1>(slopes, matrix + p, inputs, list, count, g + p * T);
}

// The same for two slopes at once: g += first * matrix - signs * (second * |matrix|).
template <int T, int P>
inline void spread_signed_columns(const Vec* first, const Vec* second, const Vec* signs,
                                  const Vec* matrix, int inputs, const int* list,
                                  int count, Vec* g) {
  Vec acc[P][T], low[P][T];
  for (int p = 0; p < P; ++p)
    for (int t = 0; t < T; ++t) {
      acc[p][t] = g[p * T + t];
      low[p][t] = Vec{};
    }
  for (int i = 0; i < count; ++i) {
    const Vec* m = matrix + std::ptrdiff_t(list[i]) * inputs;
    for (int p = 0; p < P; ++p) {
      const Vec w = m[p], size = vabs(w);
      for (int t = 0; t < T; ++t) {
        acc[p][t] += first[i * T + t] * w;
        low[p][t] += second[i * T + t] * size;
      }
    }
  }
  for (int p = 0; p < P; ++p)
    for (int t = 0; t < T; ++t)
      g[p * T + t] = acc[p][t] - signs[p * T + t] * low[p][t];
}

template <int T>
[[gnu::noinline]] void spread_signed(const Vec* first, const Vec* second, const Vec* signs,
                          const Vec* matrix, int inputs, const int* list, int count,
                          Vec* g) {
  constexpr int P = kLanes == 8 ? 3 : 1;
  int p = 0;
  for (; p + P <= inputs; p += P)
    spread_signed_columns<T, P>(first, second, signs + p * T, matrix + p, inputs, list,
                             count, g + p * T);
  for (; p < inputs; ++p)
    spread_signed_columns<T, 1>(first, second, signs + p * T, matrix + p, inputs, list,
                             count, g + p * T);
}
