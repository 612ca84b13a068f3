#include <trireme/base/text.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/attention_blocks.hpp>
#include <trireme/kernels/flash_attention.hpp>
#include <trireme/kernels/group_kernels.hpp>
#include <trireme/tensor/fence.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/attention_runs.hpp"
#include "kernels/cases.hpp"
#include "reference/rounded_attention.hpp"
#include "support/device_array.hpp"

#if defined(KOKKOS_ENABLE_CUDA)

/// The tensor-core kernels and cuDNN on the device itself, against the definition and compared with
/// the portable kernels. On hosts the former are emulated: test_flash_attention.cpp.
namespace trireme::kernels {
namespace {

using attention_runs::expect_within;
using testing::DeviceArray;
using testing::uniform;

template <class T>
struct DevicePasses {
  std::vector<T> o, dqkv;
  std::vector<float> logsumexp;
};

template <class T>
DevicePasses<T> run_on_device(AttentionBackend backend, const AttentionShape& s,
                              const AttentionDropout& dropout) {
  const Handle handle(KernelChoice().set_attention(dtype_of<T>, {backend, backend}));
  const std::int64_t columns = s.heads * s.head_size;
  const DeviceArray<T> qkv(uniform<T>(s.tokens() * s.qkv_columns(), 1));
  const DeviceArray<T> grad(uniform<T>(s.tokens() * columns, 2));
  const DeviceArray<T> o(s.tokens() * columns, T(NAN)), dqkv(s.tokens() * s.qkv_columns(), T(NAN));
  const DeviceArray<float> lse(s.tokens() * s.heads, NAN),
      work(attention_workspace_elements<T>(handle.choice(), s), NAN);
  const auto lse_view = lse.cube(s.batch, s.heads, s.sequence);
  attention_forward<T>(handle, o.matrix(s.tokens(), columns), lse_view,
                       qkv.matrix(s.tokens(), s.qkv_columns()), s, dropout);
  attention_backward<T>(handle, dqkv.matrix(s.tokens(), s.qkv_columns()),
                        grad.matrix(s.tokens(), columns), o.matrix(s.tokens(), columns),
                        qkv.matrix(s.tokens(), s.qkv_columns()), lse_view, work.flat(), s, dropout);
  fence(handle, "test");
  return {o.values(), dqkv.values(), lse.values()};
}

template <class T>
class FlashOnDevice : public ::testing::Test {};
TYPED_TEST_SUITE(FlashOnDevice, NarrowTypes);

/// Back ends of this build and device.
std::vector<AttentionBackend> back_ends(DType type) {
  std::vector<AttentionBackend> all;
  for (const auto b :
       {AttentionBackend::portable, AttentionBackend::tensor_cores, AttentionBackend::cudnn})
    if (attention_backend_available(type, b)) all.push_back(b);
  return all;
}

/// All back ends are within the bounds of the one that rounds more. Sequences of many blocks,
/// groups, parts of groups, with and without a causal mask and dropout.
TYPED_TEST(FlashOnDevice, MatchesTheDefinition) {
  using T = TypeParam;
  const double unit = std::is_same_v<T, Bf16> ? 1.0 / 256.0 : 1.0 / 2048.0;
  const AttentionDropout some{0.3, {7, Purpose::attention_dropout, 3, 5}, 11, 2, 9};
  for (const std::int64_t K : {16, 32, 64, 80, 96, 112, 128, 160, 192, 256})
    for (const AttentionShape& s : {AttentionShape{2, 517, 4, 2, K},
                                    {1, 384, 2, 2, K, false},
                                    {1, 67, 3, 2, K, true, 0.0, 2, 1},
                                    {3, 20, 1, 1, K}})
      for (const AttentionDropout& dropout : {AttentionDropout{}, some}) {
        SCOPED_TRACE(text("K ", K, " S ", s.sequence, " dropout ", dropout.rate));
        const auto qkv = uniform<T>(s.tokens() * s.qkv_columns(), 1);
        const auto grad = uniform<T>(s.tokens() * s.heads * K, 2);
        const reference::RoundedAttention reference({qkv.begin(), qkv.end()}, s, dropout, unit);
        const auto o = reference.output(), logsumexp = reference.logsumexp(),
                   gradient = reference.gradient({grad.begin(), grad.end()});
        for (const AttentionBackend backend : back_ends(dtype_of<T>)) {
          SCOPED_TRACE(name_of(backend));
          const DevicePasses<T> found = run_on_device<T>(backend, s, dropout);
          expect_within(found.o, o, "o");
          expect_within(found.logsumexp, logsumexp, "logsumexp");
          expect_within(found.dqkv, gradient, "dqkv");
        }
      }
}

/// Where warpgroups compute attention, the kernels of earlier devices agree as well.
TYPED_TEST(FlashOnDevice, KernelsOfEarlierDevicesMatchTheDefinition) {
  using T = TypeParam;
  if (!group_kernels_available() || !flash_available()) GTEST_SKIP() << "one kernel only";
  const Handle handle;
  const double unit = std::is_same_v<T, Bf16> ? 1.0 / 256.0 : 1.0 / 2048.0;
  for (const std::int64_t K : {64, 96, 128, 192, 256}) {
    const AttentionShape s = resolved({2, 517, 4, 2, K});
    const auto numbers = uniform<T>(s.tokens() * s.qkv_columns(), 1);
    const DeviceArray<T> qkv(numbers), o(s.tokens() * s.heads * K, T(NAN));
    const DeviceArray<float> lse(s.tokens() * s.heads, NAN);
    flash_attention_forward<T>(handle, o.matrix(s.tokens(), s.heads * K),
                               lse.cube(s.batch, s.heads, s.sequence),
                               qkv.matrix(s.tokens(), s.qkv_columns()), s, {});
    fence(handle, "test");
    const reference::RoundedAttention reference({numbers.begin(), numbers.end()}, s, {}, unit);
    expect_within(o.values(), reference.output(), "o");
    expect_within(lse.values(), reference.logsumexp(), "logsumexp");
    const auto grad_numbers = uniform<T>(s.tokens() * s.heads * K, 2);
    const DeviceArray<T> grad(grad_numbers), dqkv(s.tokens() * s.qkv_columns(), T(NAN));
    const DeviceArray<float> work(attention_workspace_elements<T>(handle.choice(), s), NAN);
    flash_attention_backward<T>(
        handle, dqkv.matrix(s.tokens(), s.qkv_columns()), grad.matrix(s.tokens(), s.heads * K),
        o.matrix(s.tokens(), s.heads * K), qkv.matrix(s.tokens(), s.qkv_columns()),
        lse.cube(s.batch, s.heads, s.sequence), work.flat(), s, {});
    fence(handle, "test");
    expect_within(dqkv.values(), reference.gradient({grad_numbers.begin(), grad_numbers.end()}),
                  "dqkv");
  }
}

/// Many blocks that add to the same sums at the same time.
TYPED_TEST(FlashOnDevice, HasTheSameBitsInEveryRun) {
  using T = TypeParam;
  const auto bits = [](const std::vector<T>& numbers) {
    std::vector<std::uint16_t> result;
    for (const T x : numbers) result.push_back(x.bits);
    return result;
  };
  for (const AttentionBackend backend : back_ends(dtype_of<T>))
    for (const auto& [causal, K] :
         {std::pair(true, 64), std::pair(false, 64), std::pair(true, 128), std::pair(true, 256)}) {
      SCOPED_TRACE(text(name_of(backend), " K ", K, causal ? ", causal" : ""));
      const AttentionShape s{4, 2048, 8, 8, K, causal};
      const DevicePasses<T> first = run_on_device<T>(backend, s, {});
      for (int i = 0; i < 5; ++i) {
        const DevicePasses<T> again = run_on_device<T>(backend, s, {});
        ASSERT_EQ(bits(again.o), bits(first.o));
        ASSERT_EQ(bits(again.dqkv), bits(first.dqkv));
      }
    }
}

}  // namespace
}  // namespace trireme::kernels

#endif
