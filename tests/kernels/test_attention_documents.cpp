// Attention within documents, by the portable kernels: against the definition, against each
// document alone, and with the bits of plain attention where a sample is one document.
#include <trireme/kernels/attention.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/attention_runs.hpp"
#include "kernels/cases.hpp"
#include "reference/rounded_attention.hpp"
#include "support/device_array.hpp"

namespace trireme::kernels {
namespace {

using namespace attention_runs;

/// A shape and the lengths of its documents.
struct Documents {
  AttentionShape shape;
  std::vector<std::int32_t> lengths;
};

/// Documents of one token, within blocks, at their edges and across them; with grouped heads, parts
/// of groups and windows.
const Documents document_cases[] = {{{1, 1, 1, 1, 1}, {1}},
                                    {{2, 13, 3, 3, 13}, {1, 2, 4}},
                                    {{2, 128, 2, 2, 16}, {13}},
                                    {{1, 130, 4, 2, 64}, {64, 1, 65}},
                                    {{3, 67, 6, 2, 80}, {66, 1}},
                                    {{1, 300, 2, 1, 24}, {1, 128, 13, 200}},
                                    {{2, 257, 1, 1, 128}, {32, 31, 33, 150}},
                                    {{1, 200, 4, 2, 24, true, 0.0, 0, 0, 33}, {70, 20, 3}},
                                    {{1, 200, 3, 2, 16, true, 0.0, 2, 1, 70}, {128, 72}},
                                    {{1, 193, 1, 1, 8, true, 0.5, 0, 0, 64}, {100}}};

template <class T>
class AttentionDocuments : public ::testing::Test {};
TYPED_TEST_SUITE(AttentionDocuments, WideTypes);

TYPED_TEST(AttentionDocuments, ForwardMatchesTheDefinition) {
  using T = TypeParam;
  const double u = std::numeric_limits<T>::epsilon() / 2;
  for (const Documents& c : document_cases)
    for (const AttentionDropout& dropout : {AttentionDropout{}, some_dropout()}) {
      const Packed packed(c.shape, c.lengths);
      const AttentionShape& s = packed.shape;
      const auto qkv = random_qkv<T>(s);
      const auto expected = reference::attention(qkv, s, dropout);
      const auto found = run_forward(qkv, s, dropout);
      // As without documents (test_attention.cpp).
      const double bound = 2.0 * relative_error(s, u) / (1.0 - dropout.rate);
      for (std::size_t i = 0; i < found.o.size(); ++i)
        ASSERT_NEAR(found.o[i], expected.o[i], bound) << describe(s) << " o " << i;
      for (std::size_t i = 0; i < found.logsumexp.size(); ++i)
        ASSERT_NEAR(found.logsumexp[i], expected.logsumexp[i],
                    relative_error(s, u) + 4.0 * u * std::abs(expected.logsumexp[i]))
            << describe(s) << " logsumexp " << i;
    }
}

TEST(AttentionDocumentsBackward, MatchesFiniteDifferencesElementByElement) {
  for (const Documents& c :
       {Documents{{2, 7, 2, 1, 3}, {2, 3}}, {{1, 8, 2, 1, 2, true, 0.0, 0, 0, 2}, {5, 3}}})
    for (const AttentionDropout& dropout : {AttentionDropout{}, some_dropout()}) {
      const Packed packed(c.shape, c.lengths);
      const AttentionShape& s = packed.shape;
      const auto qkv = random_qkv<double>(s), grad = random_gradient<double>(s);
      const auto found = run_backward(qkv, grad, s, dropout);
      for (std::size_t i = 0; i < qkv.size(); ++i) {
        std::vector<double> direction(qkv.size());
        direction[i] = 1.0;
        ASSERT_NEAR(found[i], slope(qkv, grad, direction, s, dropout, 1e-3), 1e-9)
            << describe(s) << " element " << i;
      }
    }
}

/// Rows [first, first + count) of an array of the sample's rows.
template <class T>
std::vector<T> rows_of(const std::vector<T>& all, std::int64_t rows, std::int64_t first,
                       std::int64_t count) {
  const auto width = std::ssize(all) / rows;
  return {all.begin() + first * width, all.begin() + (first + count) * width};
}

/// Results and gradients of each document are those of a sample that is this document. Sums are
/// divided into blocks in another way; the numbers are below 10, of at most 300 terms: 1e-12.
TEST(AttentionDocumentsBackward, EachDocumentMatchesItselfAlone) {
  for (const Documents& c : document_cases) {
    const Packed packed(c.shape, c.lengths);
    const AttentionShape& s = packed.shape;
    SCOPED_TRACE(describe(s));
    const auto qkv = random_qkv<double>(s), grad = random_gradient<double>(s);
    const auto o = run_forward(qkv, s).o, dqkv = run_backward(qkv, grad, s);
    const auto positions = positions_of(c.shape, c.lengths);
    const std::int64_t rows = s.tokens();
    for (std::int64_t first = 0, end = 0; first < rows; first = end) {
      for (end = first + 1; end < rows && positions[at(end)] > 0; ++end) {
      }
      AttentionShape alone = c.shape;
      alone.batch = 1;
      alone.sequence = end - first;
      const auto own = rows_of(qkv, rows, first, end - first);
      const auto own_grad = rows_of(grad, rows, first, end - first);
      const auto expect_near = [&](const std::vector<double>& found,
                                   const std::vector<double>& expected) {
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t i = 0; i < found.size(); ++i)
          ASSERT_NEAR(found[i], expected[i], 1e-12) << "document at row " << first;
      };
      expect_near(rows_of(o, rows, first, end - first), run_forward(own, alone).o);
      expect_near(rows_of(dqkv, rows, first, end - first), run_backward(own, own_grad, alone));
    }
  }
}

template <class T>
class AttentionDocument : public ::testing::Test {};
TYPED_TEST_SUITE(AttentionDocument, AllTypes);

TYPED_TEST(AttentionDocument, OneDocumentPerSampleHasTheBitsOfNone) {
  using T = TypeParam;
  for (const AttentionShape& s : {AttentionShape{2, 130, 4, 2, 24},
                                  {1, 64, 2, 2, 64},
                                  {1, 200, 3, 2, 16, true, 0.0, 2, 1, 70}})
    for (const AttentionDropout& dropout : {AttentionDropout{}, some_dropout()}) {
      const Packed packed(s, {static_cast<std::int32_t>(s.sequence)});
      const auto qkv = random_qkv<T>(s), grad = random_gradient<T>(s);
      const auto found = run_forward(qkv, packed.shape, dropout),
                 all = run_forward(qkv, s, dropout);
      expect_same_bits(found.o, all.o);
      expect_same_bits(found.logsumexp, all.logsumexp);
      expect_same_bits(run_backward(qkv, grad, packed.shape, dropout),
                       run_backward(qkv, grad, s, dropout));
    }
}

/// Blocks of earlier documents are not read: blocks of 64 (on devices 32) tokens from 128 on belong
/// to other documents than those before. Nor does the gradient of later documents reach earlier
/// ones.
TYPED_TEST(AttentionDocument, SkipsBlocksOfOtherDocuments) {
  using T = TypeParam;
  const Packed packed({1, 300, 2, 1, 16}, {60, 68, 100});
  const AttentionShape& s = packed.shape;
  const auto clean = random_qkv<T>(s), grad = random_gradient<T>(s);
  auto before = clean, after = clean;
  for (std::int64_t t = 0; t < 128; ++t)
    for (std::int64_t c = 0; c < s.qkv_columns(); ++c) before[at(t * s.qkv_columns() + c)] = T(NAN);
  for (std::int64_t t = 128; t < 300; ++t)
    for (std::int64_t c = 0; c < s.qkv_columns(); ++c) after[at(t * s.qkv_columns() + c)] = T(NAN);
  const auto o = run_forward(before, s).o;
  EXPECT_TRUE(std::isnan(static_cast<float>(o[0])));
  expect_same_bits(rows_of(o, 300, 128, 172), rows_of(run_forward(clean, s).o, 300, 128, 172));
  const auto expected = run_backward(clean, grad, s);
  expect_same_bits(rows_of(run_backward(before, grad, s), 300, 128, 172),
                   rows_of(expected, 300, 128, 172));
  expect_same_bits(rows_of(run_backward(after, grad, s), 300, 0, 128),
                   rows_of(expected, 300, 0, 128));
}

template <class T>
class NarrowAttentionDocuments : public ::testing::Test {};
TYPED_TEST_SUITE(NarrowAttentionDocuments, NarrowTypes);

/// Within the bounds of kernels that round more.
TYPED_TEST(NarrowAttentionDocuments, MatchTheDefinition) {
  using T = TypeParam;
  const double unit = std::is_same_v<T, Bf16> ? 1.0 / 256.0 : 1.0 / 2048.0;
  for (const Documents& c : {Documents{{2, 150, 4, 2, 24}, {33, 64, 1}},
                             Documents{{2, 67, 3, 2, 16, true, 0.0, 2, 1}, {13}},
                             Documents{{1, 150, 2, 1, 16, true, 0.0, 0, 0, 20}, {70, 80}}})
    for (const AttentionDropout& dropout : {AttentionDropout{}, some_dropout()}) {
      const Packed packed(c.shape, c.lengths);
      const AttentionShape& s = packed.shape;
      SCOPED_TRACE(describe(s));
      const auto qkv = random_qkv<T>(s), grad = random_gradient<T>(s);
      const reference::RoundedAttention reference({qkv.begin(), qkv.end()}, s, dropout, unit);
      const auto found = run_forward(qkv, s, dropout);
      expect_within(found.o, reference.output(), "o");
      expect_within(found.logsumexp, reference.logsumexp(), "logsumexp");
      expect_within(run_backward(qkv, grad, s, dropout),
                    reference.gradient({grad.begin(), grad.end()}), "dqkv");
    }
}

}  // namespace
}  // namespace trireme::kernels
