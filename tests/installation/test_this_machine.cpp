#include <trireme/installation/this_installation.hpp>
#include <trireme/kernels/cublaslt.hpp>
#include <trireme/kernels/cudnn_attention.hpp>
#include <trireme/kernels/handle.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/tensor/views.hpp>

#include <gtest/gtest.h>

namespace trireme::installation {
namespace {

/// The programs for planning and for training have the same libraries.
TEST(ThisMachine, MatchesTheBuildOfTheKernels) {
  const plan::Machine machine = this_machine();
  EXPECT_EQ(machine.called(), "this installation");
  EXPECT_EQ(machine.device_kernels, !exec_on_host);
  EXPECT_EQ(machine.on_device(), !exec_on_host && !as_on_device);
  EXPECT_EQ(machine.own_memory, machine.on_device());
  EXPECT_EQ(machine.software.products == plan::ProductLibrary::cublaslt, kernels::has_cublaslt());
  EXPECT_EQ(machine.software.products == plan::ProductLibrary::onednn,
            kernels::matmul_backend_available(DType::fp32, kernels::MatmulBackend::onednn));
  EXPECT_EQ(machine.software.attention == AttentionKind::cudnn, kernels::has_cudnn());
  EXPECT_EQ(machine.product_workspace(), kernels::workspace_bytes());
  EXPECT_NE(machine.software.attention, AttentionKind::automatic);
  EXPECT_NE(machine.software.transport, TransportKind::automatic);
}

}  // namespace
}  // namespace trireme::installation
