// Products of bf16 on hosts by the functions of bf16_tiles.hpp, blocked as in Goto and van de Geijn
// 2008, "Anatomy of high-performance matrix multiplication": a packed panel of the right operand
// stays in the second-level cache while all bands of the left operand are multiplied by it.
#include <trireme/kernels/bf16_tiles.hpp>
#include <trireme/kernels/matmul_product.hpp>

#include <algorithm>
#include <array>

namespace trireme::kernels {
namespace {

/// Largest number of rows and columns, and largest depth, of a block. A packed operand of a block,
/// with two bytes per element, fills an array of WidenedOperands.
constexpr std::int64_t block = widened_block;
constexpr std::int64_t deepest_block = 2 * widened_block;
/// Largest number of elements of a panel: 768 KiB of bf16.
constexpr std::int64_t panel_elements = std::int64_t{384} << 10;
/// Largest number of bands of a panel whose depth needs several calls of add_bf16_square. A thread
/// keeps the sums of one row of squares between the calls.
constexpr std::int64_t deep_panel_bands = 16;

/// Numbers of bands of each operand that a thread packs together.
constexpr std::int64_t left_group = 2;
constexpr std::int64_t right_group = 8;

constexpr std::int64_t parts(std::int64_t n, std::int64_t size) {
  return (n + size - 1) / size;
}

/// Calls f(i) for i in [0, n) on the threads of a host. Builds for devices do not compile f.
template <class E, class F>
void on_threads(const char* label, const E& exec, std::int64_t n, const F& f) {
  if constexpr (exec_on_host) Kokkos::parallel_for(label, Kokkos::RangePolicy<E>(exec, 0, n), f);
}

/// Number of bands of a panel whose bands have `pairs` pairs of tiles.
std::int64_t panel_bands(std::int64_t pairs) {
  const std::int64_t most = pairs > bf16_cached_pairs ? deep_panel_bands : block / bf16_band;
  return std::clamp<std::int64_t>(panel_elements / (pairs * bf16_pair), 1, most);
}

/// An operand as lines along k: rows of op(a), or columns of op(b).
struct Operand {
  Bf16Instructions instructions;
  Bf16Side side;
  const Bf16* first;
  std::int64_t stride;
  bool contiguous;
  Bf16* packed;
  std::int64_t lines = 0;  // size of the part to pack, which begins at `first`
  std::int64_t depth = 0;

  Operand(Bf16Side which, View2<const Bf16> x, Transpose t, View1<float> memory)
      : instructions(bf16_instructions()),
        side(which),
        first(x.data()),
        stride(static_cast<std::int64_t>(x.stride(0))),
        contiguous((t == Transpose::no) == (which == Bf16Side::left)),
        packed(reinterpret_cast<Bf16*>(memory.data())) {}

  Operand at(std::int64_t line, std::int64_t k, std::int64_t count, std::int64_t part) const {
    Operand x = *this;
    x.first += contiguous ? line * stride + k : k * stride + line;
    x.lines = count;
    x.depth = part;
    return x;
  }
  std::int64_t pairs() const { return parts(depth, bf16_depth); }
  Bf16* band(std::int64_t i) const { return packed + i * pairs() * bf16_pair; }
  /// Packs bands from, …, to − 1. If the lines are not contiguous, all bands take their part of the
  /// next rows in memory before any band takes later rows.
  void pack(std::int64_t from, std::int64_t to) const {
    const std::int64_t slice = contiguous ? depth : bf16_depth;
    for (std::int64_t k = 0; k < depth; k += slice)
      for (std::int64_t i = from; i < to; ++i) {
        const std::int64_t line = i * bf16_band;
        pack_bf16<Bf16>(
            instructions, side, band(i) + k / bf16_depth * bf16_pair,
            {first + (contiguous ? line * stride : k * stride + line), stride, contiguous,
             std::min(bf16_band, lines - line), std::min(slice, depth - k)});
      }
  }
};

/// A panel of c: bands of the left operand times the packed panel of the right operand.
template <class C>
struct Panel {
  Operand left;
  Operand right;
  bool packs_left;  // the bands of the left operand are not yet packed
  /// [rows / 32][stride_of_sums][32][32], sums between blocks of the depth; null for a single block
  float* sums;
  bool begins, ends;  // whether this is the first, and whether it is the last block of the depth
  C* c;
  std::int64_t stride;
  bool adds;
  const Bf16* bias;

  static constexpr std::int64_t stride_of_sums = block / bf16_band;

  void finish(std::int64_t i, std::int64_t j, const float* complete) const {
    const std::int64_t row = i * bf16_band;
    const std::int64_t column = j * bf16_band;
    finish_bf16_square<C>(left.instructions, c + row * stride + column, stride,
                          std::min(bf16_band, left.lines - row),
                          std::min(bf16_band, right.lines - column), complete, adds,
                          bias == nullptr ? nullptr : bias + column);
  }

  void row_of_squares(std::int64_t i) const {
    alignas(64) std::array<float, deep_panel_bands * bf16_square> local;
    const std::int64_t pairs = left.pairs();
    for (std::int64_t k = 0; k < pairs; k += bf16_cached_pairs) {
      const std::int64_t count = std::min(bf16_cached_pairs, pairs - k);
      for (std::int64_t j = 0; j < parts(right.lines, bf16_band); ++j) {
        float* here = sums != nullptr ? sums + (i * stride_of_sums + j) * bf16_square
                                      : local.data() + j % deep_panel_bands * bf16_square;
        add_bf16_square(left.instructions, here, bf16_band, left.band(i) + k * bf16_pair,
                        right.band(j) + k * bf16_pair, count, !begins || k > 0);
        if (ends && k + count == pairs) finish(i, j, here);
      }
    }
  }

  void multiply(const Exec& exec) const {
    const Panel x = *this;
    on_threads("kernels/pack_bf16", exec, parts(right.lines, right_group * bf16_band),
               [=](std::int64_t group) {
                 const std::int64_t j = group * right_group;
                 x.right.pack(j, std::min(j + right_group, parts(x.right.lines, bf16_band)));
               });
    on_threads("kernels/multiply_bf16", exec, parts(left.lines, left_group * bf16_band),
               [=](std::int64_t group) {
                 const std::int64_t first = group * left_group;
                 const std::int64_t last =
                     std::min(first + left_group, parts(x.left.lines, bf16_band));
                 if (x.packs_left) x.left.pack(first, last);
                 enter_bf16(x.left.instructions);
                 for (std::int64_t i = first; i < last; ++i) x.row_of_squares(i);
                 leave_bf16(x.left.instructions);
               });
  }
};

}  // namespace

template <class C>
bool matmul_bf16(const Handle& handle, View2<C> c, View2<const Bf16> a, View2<const Bf16> b,
                 Transpose ta, Transpose tb, bool adds, View1<const Bf16> bias) {
  if (handle.choice().products(DType::bf16) != MatmulBackend::native) return false;
  const std::int64_t rows = extent(c, 0);
  const std::int64_t columns = extent(c, 1);
  const std::int64_t depth = extent(a, ta == Transpose::yes ? 0 : 1);
  if (depth == 0) return false;
  const WidenedOperands& memory = handle.widened_operands();
  const auto stride = static_cast<std::int64_t>(c.stride(0));
  const Operand left(Bf16Side::left, a, ta, memory.a);
  const Operand right(Bf16Side::right, b, tb, memory.b);
  for (std::int64_t i = 0; i < rows; i += block)
    for (std::int64_t j = 0; j < columns; j += block)
      for (std::int64_t k = 0; k < depth; k += deepest_block) {
        const std::int64_t part = std::min(deepest_block, depth - k);
        const std::int64_t wide = bf16_band * panel_bands(parts(part, bf16_depth));
        const std::int64_t end = std::min(columns, j + block);
        for (std::int64_t p = j; p < end; p += wide) {
          float* sums = depth > deepest_block
                            ? memory.sum.data() + (p - j) / bf16_band * bf16_square
                            : nullptr;
          // The left operand is packed with the first panel of a row of blocks, and again with the
          // first panel of each block if the depth has several blocks, which share the memory.
          const bool packs_left = p == j && (j == 0 || depth > deepest_block);
          const Panel<C> panel{left.at(i, k, std::min(block, rows - i), part),
                               right.at(p, k, std::min(wide, end - p), part),
                               packs_left,
                               sums,
                               k == 0,
                               k + part == depth,
                               c.data() + i * stride + p,
                               stride,
                               adds,
                               bias.extent(0) > 0 ? bias.data() + p : nullptr};
          panel.multiply(handle);
        }
      }
  return true;
}

template bool matmul_bf16<Bf16>(const Handle&, View2<Bf16>, View2<const Bf16>, View2<const Bf16>,
                                Transpose, Transpose, bool, View1<const Bf16>);
template bool matmul_bf16<float>(const Handle&, View2<float>, View2<const Bf16>, View2<const Bf16>,
                                 Transpose, Transpose, bool, View1<const Bf16>);

}  // namespace trireme::kernels
