// Products of bf16 tiles in three versions: plain C++, AVX-512 BF16 and AMX. Function attributes
// select the instructions, whatever the compiler flags are.
#include <trireme/kernels/bf16_tiles.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

// Device compilers may not know the intrinsics, and builds for devices do not multiply on the host.
#if defined(__x86_64__) && !defined(__CUDACC__) && !defined(__HIPCC__) && \
    !defined(SYCL_LANGUAGE_VERSION)
#define TRIREME_BF16_ON_X86
#include <immintrin.h>
/// Attributes of functions that run only on processors with these instructions.
#define TRIREME_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define TRIREME_AMX \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")))
#endif

namespace trireme::kernels {
namespace {

constexpr int tile_lines = 16;
constexpr int tile = tile_lines * static_cast<int>(bf16_depth);
constexpr int side = static_cast<int>(bf16_band);

// ---- C++, with the arithmetic of AMX: for each tile of 32 values of k, FMAs sum the products of
// even k and of odd k separately, and their sum is added to the total. Subnormal values become 0.

float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x;
}

template <class E>
E element(const Bf16Lines<E>& s, std::int64_t line, std::int64_t k) {
  return s.contiguous ? s.from[line * s.stride + k] : s.from[k * s.stride + line];
}

template <class E>
void pack_plain(Bf16Side which, Bf16* to, const Bf16Lines<E>& s) {
  for (std::int64_t first = 0; first < s.depth; first += bf16_depth, to += bf16_pair)
    for (std::int64_t line = 0; line < bf16_band; ++line)
      for (std::int64_t i = 0; i < bf16_depth; ++i) {
        const bool inside = line < s.lines && first + i < s.depth;
        const std::int64_t l = line % tile_lines;
        const std::int64_t place =
            which == Bf16Side::left ? l * bf16_depth + i : (i / 2) * bf16_depth + 2 * l + i % 2;
        to[line / tile_lines * tile + place] =
            inside ? Bf16(static_cast<float>(element(s, line, first + i))) : Bf16(0.0F);
      }
}

void add_plain(float* sums, std::int64_t stride, const Bf16* left, const Bf16* right,
               std::int64_t pairs, bool continues) {
  for (int r = 0; r < side; ++r)
    for (int c = 0; c < side; ++c) {
      const Bf16* a = left + (r / tile_lines) * tile + (r % tile_lines) * bf16_depth;
      const Bf16* b = right + (c / tile_lines) * tile + 2 * (c % tile_lines);
      float sum = continues ? sums[r * stride + c] : 0.0F;
      for (std::int64_t t = 0; t < pairs; ++t, a += bf16_pair, b += bf16_pair) {
        float parts[2] = {0, 0};
        for (int i = 0; i < bf16_depth; ++i)
          parts[i % 2] = flushed(
              std::fma(flushed(a[i]), flushed(b[(i / 2) * bf16_depth + i % 2]), parts[i % 2]));
        sum = flushed(sum + flushed(parts[0] + parts[1]));
      }
      sums[r * stride + c] = sum;
    }
}

template <class C>
void finish_plain(C* c, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                  const float* sums, bool adds, const Bf16* bias) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < columns; ++i) {
      C& out = c[r * stride + i];
      float sum = sums[r * side + i];
      if (bias != nullptr) sum += static_cast<float>(bias[i]);
      if (adds) sum += static_cast<float>(out);
      out = static_cast<C>(sum);
    }
}

#if defined(TRIREME_BF16_ON_X86)
// ---- AVX-512

/// 16 × 16 transpose of 32-bit elements.
TRIREME_AVX512 void transpose(__m512i* v) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    v[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    v[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

/// 16 or 32 consecutive elements as bf16; elements whose bit of the mask is not set are 0.
TRIREME_AVX512 __m256i load16(const Bf16* from, __mmask16 mask) {
  return _mm256_maskz_loadu_epi16(mask, from);
}
TRIREME_AVX512 __m256i load16(const float* from, __mmask16 mask) {
  return (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, from));
}
TRIREME_AVX512 __m512i load32(const Bf16* from, __mmask32 mask) {
  return _mm512_maskz_loadu_epi16(mask, from);
}
TRIREME_AVX512 __m512i load32(const float* from, __mmask32 mask) {
  const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from);
  const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + 16);
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/// Packs one tile: 16 vectors of 16 pairs of elements with consecutive k. A vector of a left tile
/// has the 16 pairs of one line; a vector of a right tile has one pair of each of 16 lines. Vectors
/// that are loaded in the other form are transposed.
template <class E>
TRIREME_AVX512 void pack_tile(Bf16Side which, Bf16* to, const Bf16Lines<E>& s, const E* from,
                              std::int64_t lines, std::int64_t depth) {
  __m512i v[16];
  if (s.contiguous) {
    const auto mask = static_cast<__mmask32>(depth >= 32 ? 0xffffffffU : (1U << depth) - 1U);
    for (int i = 0; i < 16; ++i)
      v[i] = i < lines ? load32(from + i * s.stride, mask) : _mm512_setzero_si512();
  } else {
    const auto mask = static_cast<__mmask16>(lines >= 16  ? 0xffffU
                                             : lines <= 0 ? 0U
                                                          : (1U << lines) - 1U);
    const __m256i none = _mm256_setzero_si256();
    for (int i = 0; i < 16; ++i) {
      const E* even = from + 2 * i * s.stride;
      const __m256i a = 2 * i < depth ? load16(even, mask) : none;
      const __m256i b = 2 * i + 1 < depth ? load16(even + s.stride, mask) : none;
      v[i] = _mm512_or_si512(_mm512_cvtepu16_epi32(a),
                             _mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16));
    }
  }
  if (s.contiguous == (which == Bf16Side::right)) transpose(v);
  for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * bf16_depth, v[i]);
}

template <class E>
TRIREME_AVX512 void pack_avx512(Bf16Side which, Bf16* to, const Bf16Lines<E>& s) {
  const std::int64_t step = s.contiguous ? bf16_depth : bf16_depth * s.stride;
  const std::int64_t to_second = tile_lines * (s.contiguous ? s.stride : 1);
  const E* from = s.from;
  for (std::int64_t k = 0; k < s.depth; k += bf16_depth, from += step, to += bf16_pair) {
    pack_tile(which, to, s, from, s.lines, s.depth - k);
    pack_tile(which, to + tile, s, from + to_second, s.lines - tile_lines, s.depth - k);
  }
}

/// add_bf16_square for 8 of the 32 rows of the sums.
TRIREME_AVX512 void add_avx512_rows(float* sums, std::int64_t stride, const Bf16* left,
                                    const Bf16* right, std::int64_t pairs, bool continues) {
  constexpr int rows = 8;
  __m512 a[rows][2];
  for (int r = 0; r < rows; ++r)
    for (int h = 0; h < 2; ++h)
      a[r][h] = continues ? _mm512_load_ps(sums + r * stride + 16 * h) : _mm512_setzero_ps();
  for (std::int64_t t = 0; t < pairs; ++t, left += bf16_pair, right += bf16_pair) {
    for (int i = 0; i < bf16_depth; i += 2) {
      const Bf16* columns = right + i * tile_lines;
      const auto b0 = (__m512bh)_mm512_load_si512(columns);
      const auto b1 = (__m512bh)_mm512_load_si512(columns + tile);
      for (int r = 0; r < rows; ++r) {
        std::int32_t pair;
        std::memcpy(&pair, left + r * bf16_depth + i, 4);
        const auto x = (__m512bh)_mm512_set1_epi32(pair);
        a[r][0] = _mm512_dpbf16_ps(a[r][0], x, b0);
        a[r][1] = _mm512_dpbf16_ps(a[r][1], x, b1);
      }
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int h = 0; h < 2; ++h) _mm512_store_ps(sums + r * stride + 16 * h, a[r][h]);
}

TRIREME_AVX512 void add_avx512(float* sums, std::int64_t stride, const Bf16* left,
                               const Bf16* right, std::int64_t pairs, bool continues) {
  for (int r = 0; r < side; r += 8)
    add_avx512_rows(sums + r * stride, stride,
                    left + (r / tile_lines) * tile + (r % tile_lines) * bf16_depth, right, pairs,
                    continues);
}

TRIREME_AVX512 __m512 widened(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

TRIREME_AVX512 __m512 low_half(__m512i x) {
  return widened(_mm512_castsi512_si256(x));
}
TRIREME_AVX512 __m512 high_half(__m512i x) {
  return widened(_mm512_extracti64x4_epi64(x, 1));
}

/// Writes whole rows of c: 32 elements have 64 bytes, the size of a cache line.
TRIREME_AVX512 void finish_avx512(Bf16* c, std::int64_t stride, std::int64_t rows,
                                  std::int64_t columns, const float* sums, bool adds,
                                  const Bf16* bias) {
  const auto mask = static_cast<__mmask32>(columns >= 32 ? 0xffffffffU : (1U << columns) - 1U);
  const __m512i plus =
      bias == nullptr ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16(mask, bias);
  for (std::int64_t r = 0; r < rows; ++r, c += stride, sums += side) {
    __m512 x = _mm512_load_ps(sums);
    __m512 y = _mm512_load_ps(sums + 16);
    if (bias != nullptr) {
      x = _mm512_add_ps(x, low_half(plus));
      y = _mm512_add_ps(y, high_half(plus));
    }
    if (adds) {
      const __m512i old = _mm512_maskz_loadu_epi16(mask, c);
      x = _mm512_add_ps(x, low_half(old));
      y = _mm512_add_ps(y, high_half(old));
    }
    _mm512_mask_storeu_epi16(c, mask, (__m512i)_mm512_cvtne2ps_pbh(y, x));
  }
}

TRIREME_AVX512 void finish_avx512(float* c, std::int64_t stride, std::int64_t rows,
                                  std::int64_t columns, const float* sums, bool adds,
                                  const Bf16* bias) {
  for (std::int64_t h = 0; h < columns; h += 16) {
    const std::int64_t n = columns - h;
    const auto mask = static_cast<__mmask16>(n >= 16 ? 0xffffU : (1U << n) - 1U);
    const __m512 plus =
        bias == nullptr ? _mm512_setzero_ps() : widened(_mm256_maskz_loadu_epi16(mask, bias + h));
    for (std::int64_t r = 0; r < rows; ++r) {
      float* out = c + r * stride + h;
      __m512 x = _mm512_load_ps(sums + r * side + h);
      if (bias != nullptr) x = _mm512_add_ps(x, plus);
      if (adds) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(mask, out));
      _mm512_mask_storeu_ps(out, mask, x);
    }
  }
}

// ---- AMX: tile registers 0 to 3 for a square's sums, 4 and 5 for left, 6 and 7 for right tiles.

struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t bytes_of_rows[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
// Not a local variable: GCC 12 assumes that the intrinsic reads only the variable's first word.
constexpr TileShapes tile_shapes;

TRIREME_AMX void enter_amx() {
  _tile_loadconfig(&tile_shapes);
}

TRIREME_AMX void leave_amx() {
  _tile_release();
}

/// A streaming hint for the right band keeps the left band in the first-level cache.
TRIREME_AMX void add_amx(float* sums, std::int64_t stride, const Bf16* left, const Bf16* right,
                         std::int64_t pairs, bool continues) {
  const std::int64_t row_bytes = 4 * stride;
  const std::int64_t below = tile_lines * stride;
  __asm__ volatile("" ::: "memory");  // GCC 12 does not know that tile loads read memory
  if (continues) {
    _tile_loadd(0, sums, row_bytes);
    _tile_loadd(1, sums + 16, row_bytes);
    _tile_loadd(2, sums + below, row_bytes);
    _tile_loadd(3, sums + below + 16, row_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t t = 0; t < pairs; ++t, left += bf16_pair, right += bf16_pair) {
    _tile_stream_loadd(6, right, 64);
    _tile_loadd(4, left, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_stream_loadd(7, right + tile, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, left + tile, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, row_bytes);
  _tile_stored(1, sums + 16, row_bytes);
  _tile_stored(2, sums + below, row_bytes);
  _tile_stored(3, sums + below + 16, row_bytes);
}

#endif

}  // namespace

template <class E>
void pack_bf16([[maybe_unused]] Bf16Instructions instructions, Bf16Side which, Bf16* to,
               const Bf16Lines<E>& lines) {
#if defined(TRIREME_BF16_ON_X86)
  if (instructions != Bf16Instructions::plain) return pack_avx512(which, to, lines);
#endif
  pack_plain(which, to, lines);
}

void enter_bf16([[maybe_unused]] Bf16Instructions instructions) {
#if defined(TRIREME_BF16_ON_X86)
  if (instructions == Bf16Instructions::amx) enter_amx();
#endif
}

void leave_bf16([[maybe_unused]] Bf16Instructions instructions) {
#if defined(TRIREME_BF16_ON_X86)
  if (instructions == Bf16Instructions::amx) leave_amx();
#endif
}

void add_bf16_square([[maybe_unused]] Bf16Instructions instructions, float* sums,
                     std::int64_t stride, const Bf16* left, const Bf16* right, std::int64_t pairs,
                     bool continues) {
#if defined(TRIREME_BF16_ON_X86)
  if (instructions == Bf16Instructions::amx)
    return add_amx(sums, stride, left, right, pairs, continues);
  if (instructions == Bf16Instructions::avx512)
    return add_avx512(sums, stride, left, right, pairs, continues);
#endif
  add_plain(sums, stride, left, right, pairs, continues);
}

template <class C>
void finish_bf16_square([[maybe_unused]] Bf16Instructions instructions, C* c, std::int64_t stride,
                        std::int64_t rows, std::int64_t columns, const float* sums, bool adds,
                        const Bf16* bias) {
#if defined(TRIREME_BF16_ON_X86)
  if (instructions != Bf16Instructions::plain)
    return finish_avx512(c, stride, rows, columns, sums, adds, bias);
#endif
  finish_plain(c, stride, rows, columns, sums, adds, bias);
}

void Bf16Operand::pack(Bf16Instructions instructions, Bf16Side side, Bf16* to) const {
  const std::int64_t band = packed_elements(bf16_band, depth);
  for (std::int64_t i = 0; i < lines; i += bf16_band)
    pack_bf16<float>(instructions, side, to + i / bf16_band * band,
                     {from + i * (contiguous ? stride : 1), stride, contiguous,
                      std::min(bf16_band, lines - i), depth});
}

void Bf16SmallProduct::operator()(Bf16Instructions instructions) const {
  const std::int64_t pairs = (depth + bf16_depth - 1) / bf16_depth;
  const std::int64_t band = pairs * bf16_pair;
  enter_bf16(instructions);
  for (std::int64_t i = 0; i < rows; i += bf16_band)
    for (std::int64_t j = 0; j < columns; j += bf16_band) {
      float* to = c + i * c_stride + j;
      const Bf16* x = left + i / bf16_band * band;
      const Bf16* y = right + j / bf16_band * band;
      const std::int64_t height = std::min(bf16_band, rows - i);
      const std::int64_t width = std::min(bf16_band, columns - j);
      if (height == bf16_band && width == bf16_band) {
        add_bf16_square(instructions, to, c_stride, x, y, pairs, adds);
      } else {
        alignas(64) float sums[bf16_square];
        add_bf16_square(instructions, sums, bf16_band, x, y, pairs, false);
        finish_bf16_square<float>(instructions, to, c_stride, height, width, sums, adds, nullptr);
      }
    }
  leave_bf16(instructions);
}

template void pack_bf16<Bf16>(Bf16Instructions, Bf16Side, Bf16*, const Bf16Lines<Bf16>&);
template void pack_bf16<float>(Bf16Instructions, Bf16Side, Bf16*, const Bf16Lines<float>&);

#define TRIREME_INSTANTIATE(C)                                                          \
  template void finish_bf16_square<C>(Bf16Instructions, C*, std::int64_t, std::int64_t, \
                                      std::int64_t, const float*, bool, const Bf16*)
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(float);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
