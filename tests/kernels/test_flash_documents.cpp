#include <trireme/kernels/attention.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#if !defined(__CUDACC__) && !defined(__HIPCC__)  // see test_flash_device.cpp
#include "kernels/attention_runs.hpp"
#include "kernels/flash_cases.hpp"

/// Samples of several documents in the tensor-core kernels, run by the emulator of blocks on the
/// host.
namespace trireme::kernels {
namespace {

using namespace flash_cases;
using attention_runs::Packed;

template <class C>
class FlashDocuments : public FlashFixture<C> {};
using SomeCases = ::testing::Types<Case<Bf16, 32>, Case<Bf16, 64>, Case<Bf16, 80>, Case<Bf16, 112>,
                                   Case<Bf16, 160>, Case<Bf16, 256>, Case<Fp16, 192>>;
TYPED_TEST_SUITE(FlashDocuments, SomeCases);

/// Documents of one token, within tiles, across blocks of keys and of queries; windows, parts of
/// groups.
TYPED_TEST(FlashDocuments, MatchTheDefinition) {
  constexpr int K = TypeParam::head_size;
  for (const std::vector<std::int32_t>& lengths :
       std::vector<std::vector<std::int32_t>>{{1}, {1, 13, 128}, {64, 65}, {129, 21}})
    this->check(Packed({1, 150, 1, 1, K}, lengths).shape, {});
  this->check(Packed({2, 37, 2, 1, K}, {9, 20}).shape, some_dropout());
  this->check(Packed({1, 134, 2, 2, K, true, 0.0, 2, 1, 40}, {50, 84}).shape, some_dropout());
}

TYPED_TEST(FlashDocuments, OneDocumentPerSampleHasTheBitsOfNone) {
  constexpr int K = TypeParam::head_size;
  const AttentionShape plain{1, 132, 1, 1, K};
  const Packed packed(plain, {132});
  const auto qkv = this->input(plain), grad = this->gradient(plain);
  typename TestFixture::Kernels all(qkv, plain, {}), found(qkv, packed.shape, {});
  for (auto* kernels : {&all, &found}) {
    kernels->forward();
    kernels->backward(grad);
  }
  EXPECT_EQ(bits(found.o), bits(all.o));
  EXPECT_EQ(found.logsumexp, all.logsumexp);
  EXPECT_EQ(bits(found.dqkv), bits(all.dqkv));
}

/// Neither the order of blocks nor the number that run at a time changes a bit.
TYPED_TEST(FlashDocuments, AnyExecutionOrderHasTheSameBits) {
  const Packed packed({1, 270, 2, 1, TypeParam::head_size}, {100, 40, 130});
  const auto qkv = this->input(packed.shape), grad = this->gradient(packed.shape);
  std::vector<std::vector<std::uint16_t>> outputs, gradients;
  for (const EmulatedRun how : {EmulatedRun{4, false, false}, {1, true, false}, {4, true, true}}) {
    typename TestFixture::Kernels emulated(qkv, packed.shape, {}, how);
    emulated.forward();
    emulated.backward(grad);
    outputs.push_back(bits(emulated.o));
    gradients.push_back(bits(emulated.dqkv));
  }
  for (std::size_t i = 1; i < outputs.size(); ++i) {
    EXPECT_EQ(outputs[i], outputs[0]) << i;
    EXPECT_EQ(gradients[i], gradients[0]) << i;
  }
}

/// Documents of 128 tokens cost as much as samples of them: blocks of other documents are skipped.
TYPED_TEST(FlashDocuments, CostIsLinearInTheSequence) {
  constexpr int K = TypeParam::head_size;
  const auto operations = [&](std::int64_t sequence) {
    const Packed packed({1, sequence, 1, 1, K}, {128});
    typename TestFixture::Kernels emulated(this->input(packed.shape), packed.shape, {});
    emulated.forward();
    emulated.backward(this->gradient(packed.shape));
    return emulated.grid.report.operations;
  };
  const std::int64_t first = operations(384), second = operations(768), third = operations(1152);
  EXPECT_EQ(third - second, second - first);
}

}  // namespace
}  // namespace trireme::kernels

#endif
