#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/tensor/fence.hpp>

#include <gtest/gtest.h>

#include "kernels/cases.hpp"
#include "support/device_array.hpp"

/// Layers with GELU are a product and a kernel if the library cannot fuse them.
namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::uniform;

template <class T>
class LinearGelu : public ::testing::Test {};
TYPED_TEST_SUITE(LinearGelu, AllTypes);

/// The exact form and rows of an odd length are never fused. (tests/kernels/test_cublaslt.cpp
/// compares fused ones with the definition.)
TYPED_TEST(LinearGelu, MatchesSeparateKernelsBitForBit) {
  using T = TypeParam;
  const Handle handle;
  const std::int64_t t = 37, m = 20;
  for (const auto& [n, form] : {std::pair{std::int64_t{21}, Gelu::tanh}, {24, Gelu::exact}}) {
    const DeviceArray<T> x(uniform<T>(t * m, 1)), w(uniform<T>(n * m, 2)), bias(uniform<T>(n, 3));
    const DeviceArray<T> dy(uniform<T>(t * m, 4)), h(t * n), g(t * n), h2(t * n), g2(t * n);
    linear_gelu_forward<T>(handle, g.matrix(t, n), h.matrix(t, n), x.matrix(t, m), w.matrix(n, m),
                           bias.flat(), form);
    linear_forward<T>(handle, h2.matrix(t, n), x.matrix(t, m), w.matrix(n, m), bias.flat());
    gelu_forward<T>(handle, g2.matrix(t, n), h2.matrix(t, n), form);
    fence(handle, "test");
    EXPECT_EQ(h.values(), h2.values());
    EXPECT_EQ(g.values(), g2.values());
    linear_gelu_backward_input<T>(handle, g.matrix(t, n), dy.matrix(t, m), w.matrix(m, n),
                                  h.matrix(t, n), form);
    linear_backward_input<T>(handle, g2.matrix(t, n), dy.matrix(t, m), w.matrix(m, n));
    gelu_backward<T>(handle, g2.matrix(t, n), g2.matrix(t, n), h2.matrix(t, n), form);
    fence(handle, "test");
    EXPECT_EQ(g.values(), g2.values());
  }
}

}  // namespace
}  // namespace trireme::kernels
