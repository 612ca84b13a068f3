#include <trireme/base/bf16_instructions.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/attention_blocks.hpp>
#include <trireme/kernels/flash_attention.hpp>
#include <trireme/kernels/group_kernels.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reference/rounded_attention.hpp"
#include "support/device_array.hpp"

#if !defined(__CUDACC__) && !defined(__HIPCC__)  // see test_flash_device.cpp
#include "kernels/flash_cases.hpp"
#endif

/// The tensor-core kernels, run by the emulator of blocks on the host.
namespace trireme::kernels {
namespace {

using testing::uniform;

TEST(FlashRule, SupportsDocumentedSizesAndAlignment) {
  const auto takes = [](const AttentionShape& shape, std::uintptr_t address = 64,
                        std::int64_t stride = 384) {
    return flash_takes(shape, {reinterpret_cast<const void*>(address)}, {stride});
  };
  AttentionShape s{2, 100, 4, 2, 64, true, 0.125, 2};
  for (const std::int64_t size : {16, 32, 64, 80, 96, 112, 128, 160, 192, 256}) {
    s.head_size = size;
    EXPECT_TRUE(takes(s)) << size;
  }
  for (const std::int64_t size : {1, 8, 48, 224, 320}) {
    s.head_size = size;
    EXPECT_FALSE(takes(s)) << size;
  }
  s.head_size = 64;
  EXPECT_FALSE(takes(s, 72)) << "an array of 8 (mod 16)";
  EXPECT_FALSE(takes(s, 64, 388)) << "rows of 8 (mod 16)";
  s.scale = -0.125;
  EXPECT_FALSE(takes(s));
  s.scale = 0.125;
  s.sequence = std::int64_t{1} << 40;
  EXPECT_FALSE(takes(s));
}

TEST(FlashRule, WarpgroupsSupportDocumentedSizesAndAlignment) {
  const auto takes = [](std::int64_t head_size, std::uintptr_t address = 64,
                        std::int64_t stride = 384) {
    return group_forward_takes({2, 100, 4, 2, head_size, true, 0.125, 2},
                               {reinterpret_cast<const void*>(address)}, {stride});
  };
  for (const std::int64_t size : {64, 96, 128, 192, 256}) EXPECT_TRUE(takes(size)) << size;
  for (const std::int64_t size : {16, 32, 80, 112, 160, 320}) EXPECT_FALSE(takes(size)) << size;
  EXPECT_FALSE(takes(128, 72)) << "an array of 8 (mod 16)";
  EXPECT_FALSE(takes(128, 64, 388)) << "rows of 8 (mod 16)";
  if (exec_on_host) {
    EXPECT_FALSE(group_kernels_available());
  }
}

TEST(FlashRule, SectionsFillTheirRoomEvenly) {
  AttentionShape s{4, 2048, 16, 16, 128};
  s = resolved(s);
  const auto section = [&](std::int64_t room) {
    return flash_forward_shape(s, 6144, room).section;
  };
  EXPECT_EQ(section(std::int64_t{25} << 20), 22) << "64 heads in 3 sections";
  EXPECT_EQ(section(std::int64_t{64} << 20), 64);
  EXPECT_EQ(section(1), 1);
  s.key_value_heads = 4, s.group = 4;
  EXPECT_EQ(section(std::int64_t{8} << 20), 32) << "four heads share keys and values";
}

TEST(FlashRule, WorkspaceHoldsSumsDeltasAndCounters) {
  const AttentionShape s{2, 100, 3, 1, 64};
  const FlashWorkspace parts(s.sizes());
  EXPECT_EQ(parts.sums, 2 * 3 * 128 * 64);
  EXPECT_EQ(parts.deltas, 2 * 3 * 100);
  EXPECT_EQ(parts.counters, 2 * 3 * 5);
  EXPECT_EQ(attention_workspace_elements<Bf16>(KernelChoice(), s), parts.elements());
  EXPECT_EQ(attention_workspace_elements<Fp16>(KernelChoice(), {2, 0, 3, 1, 64}), 6)
      << "counters that no kernel reads";
  EXPECT_EQ(attention_workspace_elements<float>(KernelChoice(), s), parts.deltas);
}

TEST(FlashRule, TicketsTraverseSectionsTurnByTurn) {
  const int planes = 7, turns = 3, section = 3;  // the last section has one plane
  std::vector<std::pair<int, int>> found;
  for (int ticket = 0; ticket < planes * turns; ++ticket) {
    const FlashTurn turn(ticket, planes, turns, section);
    found.emplace_back(turn.plane, turn.turn);
  }
  std::vector<std::pair<int, int>> expected;
  for (int first = 0; first < planes; first += section)
    for (int turn = 0; turn < turns; ++turn)
      for (int plane = first; plane < std::min(planes, first + section); ++plane)
        expected.emplace_back(plane, turn);
  EXPECT_EQ(found, expected);
}

TEST(AttentionBackends, PortableIsAlwaysAvailableAndChoicesPersist) {
  const AttentionBackends portable{};
  for (const DType type : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
    KernelChoice choice;
    const AttentionBackends usual = choice.attention(type);
    EXPECT_EQ(usual, attention_backends_of(type, AttentionKind::automatic));
    EXPECT_EQ(attention_backends_of(type, AttentionKind::portable), portable);
    EXPECT_TRUE(attention_backend_available(type, AttentionBackend::portable));
    EXPECT_TRUE(attention_backend_available(type, usual.forward));
    EXPECT_TRUE(attention_backend_available(type, usual.backward));
    choice.set_attention(type, portable);
    EXPECT_EQ(choice.attention(type), portable);
    choice.set_attention(type, usual);
    EXPECT_EQ(choice.attention(type), usual);
    for (const auto other : {AttentionBackend::tensor_cores, AttentionBackend::cudnn}) {
      if (attention_backend_available(type, other)) continue;
      EXPECT_THROW(choice.set_attention(type, {other, AttentionBackend::portable}), Error);
      EXPECT_THROW(choice.set_attention(type, {AttentionBackend::portable, other}), Error);
    }
  }
  for (const auto narrow_only : {AttentionBackend::tensor_cores, AttentionBackend::cudnn})
    EXPECT_FALSE(attention_backend_available(DType::fp32, narrow_only));
}

TEST(AttentionBackends, HostsUsePortableUnlessTheyHaveAmx) {
  if (!exec_on_host) GTEST_SKIP() << "on a device";
  for (const auto kind : {AttentionKind::portable, AttentionKind::automatic,
                          AttentionKind::tensor_cores, AttentionKind::cudnn}) {
    const bool native =
        kind == AttentionKind::automatic && bf16_instructions() == Bf16Instructions::amx;
    const auto one = native ? AttentionBackend::native : AttentionBackend::portable;
    EXPECT_EQ(attention_backends_of(DType::bf16, kind), (AttentionBackends{one, one}));
    EXPECT_EQ(attention_backends_of(DType::fp16, kind), AttentionBackends{});
  }
}

TEST(AttentionBackends, OnlyCudnnGradientsNeedQuadraticWorkspace) {
  const AttentionSizes s{2, 300, 6, 3, 64};
  EXPECT_EQ(narrow_attention_workspace(s, false), FlashWorkspace(s).elements());
  const Bytes squares = 2 * 6 * 2 * 320 * 384, deltas = 2 * 6 * 300 * 4,
              grouped = 2 * 6 * 300 * 64 * 4;
  EXPECT_EQ(cudnn_gradient_bytes(s), squares + deltas + grouped + 256);
  EXPECT_EQ(narrow_attention_workspace(s, true) * 4, squares + deltas + grouped + 256);
  const AttentionSizes short_one{1, 16, 4, 4, 160};
  EXPECT_EQ(narrow_attention_workspace(short_one, true), FlashWorkspace(short_one).elements())
      << "the tensor cores' own, which is the fallback";
}

#if !defined(__CUDACC__) && !defined(__HIPCC__)

using namespace flash_cases;

template <class C>
class FlashAttention : public FlashFixture<C> {};
TYPED_TEST_SUITE(FlashAttention, Cases);

/// Sequences within a block, with a partial last block, and of several blocks of queries and keys.
TYPED_TEST(FlashAttention, MatchesTheDefinition) {
  this->check({1, 1, 1, 1, TypeParam::head_size}, {});
  this->check({2, 37, 1, 1, TypeParam::head_size}, {});
  this->check({1, 150, 2, 1, TypeParam::head_size}, {});
  this->check({1, 131, 1, 1, TypeParam::head_size, false}, {});
}

/// Sequences that are, and are not, a whole number of Philox blocks.
TYPED_TEST(FlashAttention, DropoutMatchesThePortableKernel) {
  this->check({1, 36, 2, 1, TypeParam::head_size, false}, some_dropout());
  this->check({1, 67, 1, 1, TypeParam::head_size}, some_dropout());
}

/// Scores that grow with the key by far more than 2^8, so that references change in every block.
TYPED_TEST(FlashAttention, RescalesGrowingScores) {
  using T = typename TypeParam::T;
  constexpr int K = TypeParam::head_size;
  const AttentionShape s{1, 150, 1, 1, K, false, 1.0};
  auto qkv = this->input(s);
  for (std::int64_t t = 0; t < s.sequence; ++t)
    for (std::int64_t d = 0; d < K; ++d) {
      T* row = qkv.data() + t * s.qkv_columns();
      row[d] = T(d % 2 == 0 ? 0.25 : -0.25);
      row[K + d] = T((d % 2 == 0 ? 0.03125 : -0.03125) * static_cast<double>(t / 8));
    }
  const reference::RoundedAttention reference({qkv.begin(), qkv.end()}, s, {}, TypeParam::unit);
  EmulatedAttention<T, K> emulated(qkv, s, {});
  emulated.forward();
  expect_within(emulated.o, reference.output(), "o");
  expect_within(emulated.logsumexp, reference.logsumexp(), "logsumexp");
}

/// No bit depends on when copies arrive, on the order of threads, warps and blocks, or on the
/// number of blocks that run at a time; and in no order do threads conflict without a barrier.
TYPED_TEST(FlashAttention, AnyExecutionOrderHasTheSameBits) {
  const AttentionShape s{1, 140, 2, 1, TypeParam::head_size};
  const auto qkv = this->input(s), grad = this->gradient(s);
  std::vector<std::vector<std::uint16_t>> outputs, gradients;
  for (const EmulatedRun how : {EmulatedRun{4, false, false}, {1, true, false}, {4, true, true}}) {
    typename TestFixture::Kernels emulated(qkv, s, some_dropout(), how);
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

/// Columns [first, first + count) of each row.
template <class T>
void take(std::vector<T>& to, const std::vector<T>& from, std::int64_t columns, std::int64_t row,
          std::int64_t first, std::int64_t count) {
  const auto begin = from.begin() + row * columns + first;
  to.insert(to.end(), begin, begin + count);
}

/// A rank may hold parts of groups of query heads and of the batch: its output and its gradients of
/// queries have the same bits as in the whole.
TYPED_TEST(FlashAttention, PartsOfGroupsAndBatchHaveTheSameBits) {
  using T = typename TypeParam::T;
  constexpr std::int64_t K = TypeParam::head_size;
  const AttentionShape whole{2, 70, 4, 2, K};
  const AttentionShape part{1, 70, 2, 2, K, true, 0.0, 2, 1};  // heads 1 and 2 of sample 1
  const auto qkv = this->input(whole), grad = this->gradient(whole);
  std::vector<T> my_qkv, my_grad;
  for (std::int64_t t = 70; t < 140; ++t) {
    take(my_qkv, qkv, whole.qkv_columns(), t, K, 2 * K);
    take(my_qkv, qkv, whole.qkv_columns(), t, 4 * K, 4 * K);
    take(my_grad, grad, 4 * K, t, K, 2 * K);
  }
  AttentionDropout dropout = some_dropout();
  EmulatedAttention<T, K> all(qkv, whole, dropout);
  ++dropout.first_sample;
  ++dropout.first_head;
  EmulatedAttention<T, K> mine(my_qkv, part, dropout);
  all.forward();
  mine.forward();
  all.backward(grad);
  mine.backward(my_grad);
  for (std::int64_t t = 0; t < 70; ++t)
    for (std::int64_t c = 0; c < 2 * K; ++c) {
      const auto of = [&](const std::vector<T>& x, std::int64_t i) {
        return x[static_cast<std::size_t>(i)].bits;
      };
      ASSERT_EQ(of(mine.o, t * 2 * K + c), of(all.o, (70 + t) * 4 * K + K + c));
      ASSERT_EQ(of(mine.dqkv, t * part.qkv_columns() + c),
                of(all.dqkv, (70 + t) * whole.qkv_columns() + K + c));
    }
  this->check(part, dropout);
}

/// NaNs from overflow must reach the loss scaling.
TYPED_TEST(FlashAttention, NaNsPropagate) {
  const AttentionShape s{1, 40, 1, 1, TypeParam::head_size};
  auto qkv = this->input(s);
  qkv[5] = typename TypeParam::T(std::nan(""));  // of query 0, which sees only key 0
  typename TestFixture::Kernels emulated(qkv, s, {});
  emulated.forward();
  EXPECT_TRUE(std::isnan(static_cast<float>(emulated.o[3])));
  EXPECT_FALSE(std::isnan(static_cast<float>(emulated.o[TypeParam::head_size])));
}

#endif

}  // namespace
}  // namespace trireme::kernels
