// Products by bf16 instructions: packed operands and squares of sums equal those of plain C++,
// matrix products match sums in double, and attention matches the portable one.
#include <trireme/base/kernel_memory.hpp>
#include <trireme/base/text.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/bf16_tiles.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/matmul_product.hpp>
#include <trireme/tensor/fence.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "kernels/cases.hpp"
#include "reference/matmul.hpp"
#include "support/device_array.hpp"

namespace trireme::kernels {
namespace {

using testing::at;
using testing::DeviceArray;
using testing::uniform;

/// Memory aligned to 64 bytes.
template <class E>
class Aligned {
 public:
  explicit Aligned(std::int64_t count)
      : count_(count), memory_(static_cast<std::size_t>(count) + 64 / sizeof(E)) {
    void* first = memory_.data();
    std::size_t space = memory_.size() * sizeof(E);
    data_ =
        static_cast<E*>(std::align(64, static_cast<std::size_t>(count) * sizeof(E), first, space));
  }
  E* data() { return data_; }
  Aligned(const Aligned&) = delete;
  bool operator==(const Aligned& other) const {
    return std::memcmp(data_, other.data_, static_cast<std::size_t>(count_) * sizeof(E)) == 0;
  }

 private:
  std::int64_t count_;
  std::vector<E> memory_;
  E* data_;
};

std::vector<Bf16Instructions> available() {
  std::vector<Bf16Instructions> found{Bf16Instructions::plain};
  for (const auto more : {Bf16Instructions::avx512, Bf16Instructions::amx})
    if (more <= bf16_instructions()) found.push_back(more);
  return found;
}

template <class E>
class Bf16Packing : public ::testing::Test {};
using Elements = ::testing::Types<Bf16, float>;
TYPED_TEST_SUITE(Bf16Packing, Elements);

/// Lines and depths around the sizes of tiles; what is beyond them must not be read.
TYPED_TEST(Bf16Packing, EqualsThePlainOne) {
  using E = TypeParam;
  for (const bool contiguous : {true, false})
    for (const auto side : {Bf16Side::left, Bf16Side::right})
      for (const std::int64_t lines : {1, 7, 16, 17, 31, 32})
        for (const std::int64_t depth : {1, 2, 31, 32, 33, 95}) {
          const std::int64_t stride = contiguous ? depth + 3 : lines + 3;
          const std::int64_t count = contiguous ? lines * stride - 3 : depth * stride - 3;
          std::vector<E> from = uniform<E>(count, 7);
          const std::int64_t elements = (depth + 31) / 32 * bf16_pair;
          Aligned<Bf16> expected(elements);
          const Bf16Lines<E> source{from.data(), stride, contiguous, lines, depth};
          pack_bf16<E>(Bf16Instructions::plain, side, expected.data(), source);
          for (const auto instructions : available()) {
            Aligned<Bf16> found(elements);
            pack_bf16<E>(instructions, side, found.data(), source);
            EXPECT_TRUE(found == expected) << name_of(instructions) << ", " << lines << " lines of "
                                           << depth << (contiguous ? "" : ", transposed")
                                           << (side == Bf16Side::left ? ", left" : ", right");
          }
          // The plain one by its definition.
          for (std::int64_t line = 0; line < bf16_band; ++line)
            for (std::int64_t k = 0; k < (depth + 31) / 32 * 32; ++k) {
              const bool inside = line < lines && k < depth;
              const E x = !inside      ? E(0)
                          : contiguous ? from[static_cast<std::size_t>(line * stride + k)]
                                       : from[static_cast<std::size_t>(k * stride + line)];
              const Bf16* tile = expected.data() + k / 32 * bf16_pair + line / 16 * (bf16_pair / 2);
              const std::int64_t i = k % 32, l = line % 16;
              const Bf16 y =
                  side == Bf16Side::left ? tile[l * 32 + i] : tile[i / 2 * 32 + 2 * l + i % 2];
              ASSERT_EQ(Bf16(static_cast<float>(x)).bits, y.bits) << line << ' ' << k;
            }
        }
}

struct Square {
  Aligned<Bf16> left, right;
  explicit Square(std::int64_t pairs) : left(pairs * bf16_pair), right(pairs * bf16_pair) {
    const auto a = uniform<Bf16>(pairs * bf16_pair, 1), b = uniform<Bf16>(pairs * bf16_pair, 2);
    std::copy(a.begin(), a.end(), left.data());
    std::copy(b.begin(), b.end(), right.data());
  }
};

/// AMX has the bits of the plain sums, also for numbers whose products are denormal, infinite and
/// not a number. AVX-512 BF16 sums pairs in another order.
TEST(Bf16Squares, EqualThePlainOnes) {
  constexpr std::int64_t pairs = 3, stride = 48;
  Square s(pairs);
  s.left.data()[5] = Bf16(1e-30F);
  s.right.data()[2 * 32] = Bf16(1e-12F);
  s.left.data()[40] = Bf16(std::numeric_limits<float>::infinity());
  s.right.data()[3] = Bf16(1e-39F);  // denormal, read as 0
  for (const bool continues : {false, true}) {
    Aligned<float> expected(32 * stride);
    for (std::int64_t i = 0; i < 32 * stride; ++i) expected.data()[i] = static_cast<float>(i % 7);
    add_bf16_square(Bf16Instructions::plain, expected.data(), stride, s.left.data(), s.right.data(),
                    pairs, continues);
    for (const auto instructions : available()) {
      Aligned<float> found(32 * stride);
      for (std::int64_t i = 0; i < 32 * stride; ++i) found.data()[i] = static_cast<float>(i % 7);
      enter_bf16(instructions);
      add_bf16_square(instructions, found.data(), stride, s.left.data(), s.right.data(), pairs,
                      continues);
      leave_bf16(instructions);
      for (std::int64_t i = 0; i < 32 * stride; ++i) {
        const float a = found.data()[i], b = expected.data()[i];
        if (std::isnan(b)) {
          ASSERT_TRUE(std::isnan(a)) << name_of(instructions) << " element " << i;
        } else if (instructions == Bf16Instructions::amx || std::isinf(b) || i % stride >= 32) {
          ASSERT_EQ(a, b) << name_of(instructions) << " element " << i;
        } else {
          ASSERT_NEAR(a, b, 96 * 96 * 6e-8) << name_of(instructions) << " element " << i;
        }
      }
    }
  }
}

TEST(Bf16Squares, SmallProductsMatchTheDefinition) {
  for (const std::int64_t rows : {1, 24, 64})
    for (const std::int64_t columns : {16, 64, 80})
      for (const std::int64_t depth : {1, 20, 64, 100})
        for (const bool transposed : {false, true})
          for (const bool adds : {false, true}) {
            const std::int64_t stride = (columns + 15) / 16 * 16;
            const auto a = uniform<float>(rows * depth, 1), b = uniform<float>(depth * columns, 2);
            for (const auto instructions : available()) {
              Aligned<float> c(rows * stride);
              for (std::int64_t i = 0; i < rows * stride; ++i) c.data()[i] = 0.5F;
              Aligned<Bf16> left(Bf16Operand::packed_elements(rows, depth));
              Aligned<Bf16> right(Bf16Operand::packed_elements(columns, depth));
              Bf16Operand{a.data(), transposed ? rows : depth, !transposed, rows, depth}.pack(
                  instructions, Bf16Side::left, left.data());
              Bf16Operand{b.data(), columns, false, columns, depth}.pack(
                  instructions, Bf16Side::right, right.data());
              const Bf16SmallProduct product{c.data(), stride,      rows,         columns,
                                             depth,    left.data(), right.data(), adds};
              product(instructions);
              for (std::int64_t i = 0; i < rows; ++i)
                for (std::int64_t j = 0; j < stride; ++j) {
                  double sum = adds || j >= columns ? 0.5 : 0;
                  for (std::int64_t k = 0; k < depth && j < columns; ++k)
                    sum += static_cast<double>(Bf16(a[static_cast<std::size_t>(
                               transposed ? k * rows + i : i * depth + k)])) *
                           static_cast<double>(Bf16(b[static_cast<std::size_t>(k * columns + j)]));
                  ASSERT_NEAR(c.data()[i * stride + j], sum, 1e-5)
                      << name_of(instructions) << ' ' << i << ' ' << j;
                }
            }
          }
}

class NativeProducts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!matmul_backend_available(DType::bf16, MatmulBackend::native))
      GTEST_SKIP() << "products by bf16 instructions are for hosts";
    handle_.emplace(KernelChoice().set_products(DType::bf16, MatmulBackend::native));
  }
  const Handle& handle() const { return *handle_; }

 private:
  std::optional<Handle> handle_;
};

/// c = op(a) op(b), + c or + bias, with NaNs between the rows of all three matrices.
template <class C>
void compare(const Handle& handle, std::int64_t rows, std::int64_t columns, std::int64_t depth,
             Transpose ta, Transpose tb, bool adds, bool has_bias) {
  constexpr std::int64_t gap = 5;
  const bool a_is_transposed = ta == Transpose::yes, b_is_transposed = tb == Transpose::yes;
  const auto a = uniform<Bf16>(rows * depth, 1), b = uniform<Bf16>(depth * columns, 2);
  const auto c = uniform<C>(rows * columns, 3);
  const auto bias = uniform<Bf16>(columns, 4);
  const std::int64_t a_width = a_is_transposed ? rows : depth;
  const std::int64_t b_width = b_is_transposed ? depth : columns;
  const DeviceArray<Bf16> da(with_gaps(a, a_width, gap)), db(with_gaps(b, b_width, gap)),
      dbias(has_bias ? bias : std::vector<Bf16>());
  const DeviceArray<C> dc(with_gaps(c, columns, gap));
  const auto matrix = [](const auto& of, std::int64_t height, std::int64_t width) {
    return first_columns(of.matrix(height, width + gap), width);
  };
  const bool done =
      matmul_bf16<C>(handle, matrix(dc, rows, columns), matrix(da, rows * depth / a_width, a_width),
                     matrix(db, depth * columns / b_width, b_width), ta, tb, adds, dbias.flat());
  ASSERT_TRUE(done);
  fence(handle, "test");
  const std::vector<double> of_a(a.begin(), a.end()), of_b(b.begin(), b.end());
  const std::vector<double> of_c =
      adds ? std::vector<double>(c.begin(), c.end()) : std::vector<double>(c.size(), 0.0);
  const auto expected = reference::matmul(of_c, of_a, of_b, rows, columns, depth, a_is_transposed,
                                          b_is_transposed, 1.0, 1.0);
  const auto found = dc.values();
  const double eps = std::is_same_v<C, Bf16> ? 1.0 / 256 : 6e-8;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns + gap; ++j) {
      const auto x = static_cast<double>(found[at(i * (columns + gap) + j)]);
      if (j >= columns) {
        ASSERT_TRUE(std::isnan(x)) << i << ' ' << j;
        continue;
      }
      const double sum =
          expected[at(i * columns + j)] + (has_bias ? static_cast<double>(bias[at(j)]) : 0.0);
      // Sums of products within [-1, 1] in any order (Higham 2002, eq. 3.5), rounded once.
      const auto k = static_cast<double>(depth);
      ASSERT_NEAR(x, sum, eps * std::abs(sum) + k * k * 6e-8 + 1e-7)
          << rows << 'x' << columns << 'x' << depth << " element " << i << ' ' << j;
    }
}

TEST_F(NativeProducts, MatchTheDefinition) {
  for (const auto ta : {Transpose::no, Transpose::yes})
    for (const auto tb : {Transpose::no, Transpose::yes})
      for (const bool adds : {false, true})
        for (const bool has_bias : {false, true}) {
          for (const std::int64_t rows : {1, 33, 70})
            for (const std::int64_t columns : {1, 40, 97})
              for (const std::int64_t depth : {1, 31, 90}) {
                compare<Bf16>(handle(), rows, columns, depth, ta, tb, adds, has_bias);
                compare<float>(handle(), rows, columns, depth, ta, tb, adds, has_bias);
              }
        }
}

/// Beyond one block of rows, of columns and of the depth, beyond a panel, and deeper than one call
/// of add_bf16_square. In plain C++ they take a second each.
TEST_F(NativeProducts, MatchBeyondOneBlock) {
  using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
  for (const auto& [rows, columns, depth] :
       {Shape{widened_block + 3, 5, 9}, Shape{7, widened_block + 1, 40},
        Shape{6, 8, 2 * widened_block + 5}, Shape{34, 600, 700},
        Shape{widened_block + 40, 40, 2 * widened_block + 70}, Shape{40, 1100, 2100}}) {
    compare<Bf16>(handle(), rows, columns, depth, Transpose::no, Transpose::yes, true, false);
    compare<float>(handle(), rows, columns, depth, Transpose::yes, Transpose::no, false, true);
  }
}

/// A row of the product has the same bits alone, in any block, and with any number of columns.
TEST_F(NativeProducts, BitsDoNotDependOnRowsAndColumns) {
  constexpr std::int64_t rows = 70, columns = 100, depth = 600;
  const DeviceArray<Bf16> a(uniform<Bf16>(rows * depth, 1)), b(uniform<Bf16>(columns * depth, 2));
  const DeviceArray<float> whole(rows * columns), part(columns);
  const auto product = [&](const DeviceArray<float>& c, std::int64_t row, std::int64_t count,
                           std::int64_t column, std::int64_t width) {
    EXPECT_TRUE(
        matmul_bf16<float>(handle(), c.matrix(count, width),
                           View2<const Bf16>(a.data() + row * depth, at(count), at(depth)),
                           View2<const Bf16>(b.data() + column * depth, at(width), at(depth)),
                           Transpose::no, Transpose::yes, false, {}));
    fence(handle(), "test");
    return c.values();
  };
  const auto all = product(whole, 0, rows, 0, columns);
  for (const std::int64_t row : {0, 33, 69})
    for (const std::int64_t column : {0, 17, 64}) {
      const std::int64_t width = columns - column;
      const auto found = product(part, row, 1, column, width);
      for (std::int64_t j = 0; j < width; ++j)
        ASSERT_EQ(found[at(j)], all[at(row * columns + column + j)])
            << row << ' ' << column << ' ' << j;
    }
}

/// Attention by bf16 instructions against the portable one, whose products are fp32: it rounds
/// probabilities and the gradients of scores, whose relative error is 2^-9.
TEST_F(NativeProducts, AttentionMatchesThePortableOne) {
  struct Case {
    std::int64_t sequence, heads, key_value_heads, head_size, window;
    bool causal;
    double dropout, cap;
  };
  for (const Case& c : {Case{70, 2, 2, 16, 0, true, 0, 0}, Case{130, 2, 1, 40, 0, true, 0.25, 0},
                        Case{100, 1, 1, 64, 30, true, 0, 20}, Case{65, 1, 1, 80, 0, false, 0, 0}}) {
    AttentionShape shape;
    shape.batch = 2;
    shape.sequence = c.sequence;
    shape.heads = c.heads;
    shape.key_value_heads = c.key_value_heads;
    shape.head_size = c.head_size;
    shape.causal = c.causal;
    shape.window = c.window;
    shape.cap = c.cap;
    const std::int64_t tokens = 2 * c.sequence, columns = c.heads * c.head_size;
    const std::int64_t all = (c.heads + 2 * c.key_value_heads) * c.head_size;
    AttentionDropout dropout;
    dropout.rate = c.dropout;
    const DeviceArray<Bf16> qkv(uniform<Bf16>(tokens * all, 1)),
        grad(uniform<Bf16>(tokens * columns, 2));
    std::vector<std::vector<float>> results;
    for (const auto backend : {AttentionBackend::portable, AttentionBackend::native}) {
      const Handle handle(KernelChoice().set_attention(DType::bf16, {backend, backend}));
      const DeviceArray<Bf16> o(tokens * columns), dqkv(tokens * all);
      const DeviceArray<float> logsumexp(tokens * c.heads),
          workspace(attention_workspace_elements<Bf16>(handle.choice(), shape));
      const auto sums = logsumexp.cube(2, c.heads, c.sequence);
      attention_forward<Bf16>(handle, o.matrix(tokens, columns), sums, qkv.matrix(tokens, all),
                              shape, dropout);
      attention_backward<Bf16>(handle, dqkv.matrix(tokens, all), grad.matrix(tokens, columns),
                               o.matrix(tokens, columns), qkv.matrix(tokens, all), sums,
                               workspace.flat(), shape, dropout);
      fence(handle, "test");
      for (const auto& of : {o.values(), dqkv.values()}) results.emplace_back(of.begin(), of.end());
    }
    for (std::size_t i = 0; i < 2; ++i) {
      double difference = 0, size = 0, share = 0;
      for (std::size_t j = 0; j < results[i].size(); ++j) {
        const double portable = results[i][j], native = results[i + 2][j];
        ASSERT_NEAR(native, portable, 0.02) << c.sequence << (i == 0 ? " o " : " dqkv ") << j;
        difference += (native - portable) * (native - portable);
        size += portable * portable;
        share += portable * (native - portable);
      }
      // The dropout's factor 4/3 becomes 1.3359 where a probability is 1: 1.95e-3 too much.
      EXPECT_LT(std::abs(share / size), c.dropout > 0 ? 2e-3 : 2e-4)
          << "the errors have a direction";
      EXPECT_LT(std::sqrt(difference / size), 0.006) << c.sequence << (i == 0 ? " o" : " dqkv");
    }
  }
}

}  // namespace
}  // namespace trireme::kernels
