#include <trireme/base/check.hpp>
#include <trireme/base/kernel_memory.hpp>
#include <trireme/base/text.hpp>
#include <trireme/kernels/cudnn_attention.hpp>

#include <gtest/gtest.h>

/// cuDNN's own answers to the calls that kernels/attention_cudnn.cpp makes, for a device that is
/// only described: whether it has a kernel for them, and the workspace that the kernel needs.
/// Nothing is computed.
namespace trireme::kernels {
namespace {

/// A device of compute capability 9.0 with 132 multiprocessors and 227 KiB of shared memory per
/// block. The library names the keys that are missing.
constexpr const char* hopper = R"({"version": 1, "deviceName": "NVIDIA H200", "cudaDeviceId": 0,
  "deviceVer": 900, "driverVer": 13000, "multiProcessorCount": 132, "pciDeviceId": 0,
  "totalGlobalMem": 150000000000, "l2CacheSize": 62914560, "smClockRateKHz": 1980000,
  "memClockRateKHz": 3201000, "warpSize": 32, "maxGridSize": [2147483647, 65535, 65535],
  "maxBlockSize": [1024, 1024, 64], "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
  "maxCtasPerSM": 32, "regsPerBlock": 65536, "maxRegistersPerSM": 65536,
  "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
  "reservedSharedMemoryPerBlock": 1024, "isTccDriver": 0, "supportCoopLaunch": 1})";

class CudnnPlans : public ::testing::Test {
 protected:
  CudnnAttention cudnn{hopper, 90};

  /// Both directions of a call, with rows as layers have them.
  static CudnnAttentionCall call(bool backward, const AttentionSizes& s) {
    CudnnAttentionCall c;
    c.backward = backward;
    c.scale = 0.125F;
    c.batch = s.batch;
    c.sequence = s.sequence;
    c.heads = s.heads;
    c.key_value_heads = s.key_value_heads;
    c.head_size = s.head_size;
    c.qkv_stride = (s.heads + 2 * s.key_value_heads) * s.head_size;
    c.o_stride = s.heads * s.head_size;
    if (backward) {
      c.grad_stride = c.o_stride;
      c.dqkv_stride = c.qkv_stride;
    }
    return c;
  }
};

/// Includes GPT-2 124M and the paper's GPT 1.7B.
TEST_F(CudnnPlans, CoverCurrentModels) {
  for (const AttentionSizes& s : {AttentionSizes{8, 1024, 12, 12, 64},
                                  {4, 2048, 24, 24, 96},
                                  {1, 2048, 32, 8, 128},
                                  {2, 2048, 16, 16, 160}})
    for (const bool causal : {true, false})
      for (const bool backward : {false, true}) {
        CudnnAttentionCall c = call(backward, s);
        c.type = s.heads == 12 || s.heads == 24 ? DType::bf16 : DType::fp16;
        c.causal = causal;
        EXPECT_TRUE(cudnn.workspace(c).has_value()) << cudnn.choices().back();
      }
}

TEST_F(CudnnPlans, ForwardWorkspaceFitsTheProductsWorkspace) {
  for (const std::int64_t sequence : {128, 1000, 8192}) {
    const auto bytes = cudnn.workspace(call(false, {2, sequence, 16, 4, 128}));
    ASSERT_TRUE(bytes.has_value());
    EXPECT_LE(*bytes, cublaslt_workspace_bytes);
  }
}

/// Sizes on both sides of the library's rounding, with and without groups of heads.
TEST_F(CudnnPlans, GradientWorkspaceIsAsPlanned) {
  for (const AttentionSizes& s : {AttentionSizes{2, 20, 6, 6, 64},
                                  {2, 64, 6, 1, 64},
                                  {1, 65, 6, 6, 160},
                                  {2, 129, 6, 3, 64},
                                  {3, 193, 6, 6, 96},
                                  {2, 517, 6, 1, 128},
                                  {1, 2048, 16, 4, 128},
                                  {1, 4000, 2, 2, 64}}) {
    const auto bytes = cudnn.workspace(call(true, s));
    ASSERT_TRUE(bytes.has_value()) << cudnn.choices().back();
    EXPECT_LE(*bytes, cudnn_gradient_bytes(s))
        << "S " << s.sequence << ", Hkv " << s.key_value_heads << ", K " << s.head_size;
  }
}

TEST_F(CudnnPlans, AreMadeOncePerKindOfCall) {
  const AttentionSizes s{1, 256, 2, 2, 64};
  for (int i = 0; i < 3; ++i) {
    (void)cudnn.workspace(call(false, s));
    (void)cudnn.workspace(call(true, s));
  }
  const auto lines = cudnn.choices();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].find("bf16 forward, 1 × 256 tokens, 2 heads over 2 of 64: eng"), 0U)
      << lines[0];
}

TEST_F(CudnnPlans, ReportWhyACallHasNoKernel) {
  EXPECT_FALSE(cudnn.workspace(call(true, {1, 1, 2, 2, 64})).has_value());
  EXPECT_NE(cudnn.choices().at(0).find("no kernel: "), std::string::npos) << cudnn.choices().at(0);
  EXPECT_FALSE(cudnn.run(call(true, {1, 1, 2, 2, 64}), {}, nullptr, 0, nullptr));
}

TEST_F(CudnnPlans, RejectACallWithTooSmallAWorkspace) {
  EXPECT_FALSE(cudnn.run(call(true, {1, 256, 2, 2, 64}), {}, nullptr, 1000, nullptr));
}

TEST(Cudnn, ReportsAMissingDevice) {
  try {
    const CudnnAttention cudnn;
    FAIL() << "there is a device";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("cudnnCreate: "), 0U) << error.what();
  }
  EXPECT_THROW(CudnnAttention("{}", 90), Error);
}

}  // namespace
}  // namespace trireme::kernels
