#include <trireme/base/check.hpp>
#include <trireme/base/fp8.hpp>
#include <trireme/kernels/cublaslt.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/matmul_product.hpp>

#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "kernels/cublaslt_stand_in/stand_in.hpp"
#include "support/device_array.hpp"

/// How kernels/cublaslt.cpp uses the library: what it asks, keeps and frees.
namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::uniform;
using testing::stand_in::record;

/// No test of this program may lead to a call that is invalid by the documentation.
class NothingInvalid : public ::testing::Environment {
  void TearDown() override {
    EXPECT_EQ(record().invalid, 0);
    EXPECT_GT(record().products, 0);
  }
};
[[maybe_unused]] const auto* const environment =
    ::testing::AddGlobalTestEnvironment(new NothingInvalid);

/// Arrays of a small product, and the library with a workspace of its own.
struct Rig {
  static constexpr std::int64_t most = 40 * 300;
  DeviceArray<float> a{uniform<float>(most, 1)}, b{uniform<float>(most, 2)}, c{most};
  DeviceArray<float> bias{uniform<float>(300, 3)}, auxiliary{most};
  DeviceArray<double> workspace{4096};
  CublasLt library{workspace.data(), 4096 * 8};

  LtProduct product(std::int64_t rows, std::int64_t columns, std::int64_t depth) const {
    LtProduct p;
    p.rows = rows;
    p.columns = p.stride_b = p.stride_c = columns;
    p.depth = p.stride_a = depth;
    p.a = a.data();
    p.b = b.data();
    p.c = c.data();
    return p;
  }
};

TEST(CublasltStandIn, QueriesHeuristicsOncePerKindOfProduct) {
  Rig rig;
  const auto asked = [&](const LtProduct& p) {
    const std::int64_t before = rig.library.questions();
    EXPECT_TRUE(rig.library.multiply(p, nullptr));
    EXPECT_TRUE(rig.library.multiply(p, nullptr));
    return rig.library.questions() - before;
  };
  const LtProduct plain = rig.product(8, 16, 24);
  EXPECT_EQ(asked(plain), 1);
  EXPECT_EQ(asked(plain), 0);

  LtProduct p = plain;  // other numbers and other arrays with the same alignment are the same kind
  p.alpha = 0.5;
  p.beta = 1;
  p.a = rig.b.data() + 16;
  EXPECT_EQ(asked(p), 0);
  p.a = rig.b.data() + 4;
  EXPECT_EQ(asked(p), 1) << "an array at a multiple of 16 bytes only";
  EXPECT_EQ(asked(rig.product(8, 16, 25)), 1) << "another depth";
  p = plain;
  p.stride_c = 20;
  EXPECT_EQ(asked(p), 1) << "another stride";
  p = plain;
  p.transposed_b = true;
  p.stride_b = 24;
  EXPECT_EQ(asked(p), 1) << "b transposed";
  p = plain;
  p.epilogue = LtEpilogue::bias;
  p.bias = rig.bias.data();
  EXPECT_EQ(asked(p), 1) << "a bias";
  p = plain;
  p.tf32 = true;
  EXPECT_EQ(asked(p), 1) << "tf32";
  EXPECT_EQ(rig.library.choices().size(), 7);
}

TEST(CublasltStandIn, FreesEveryDescriptor) {
  const std::int64_t before = record().objects;
  {
    Rig rig;
    EXPECT_EQ(record().objects, before + 1);  // the handle
    rig.library.multiply(rig.product(8, 16, 24), nullptr);
    EXPECT_EQ(record().objects, before + 5);  // an operation and three layouts
    LtProduct p = rig.product(8, 16, 24);
    p.output = DType::fp64;
    EXPECT_FALSE(rig.library.multiply(p, nullptr));
    EXPECT_EQ(record().objects, before + 5);
  }
  EXPECT_EQ(record().objects, before);
}

TEST(CublasltStandIn, UsesTheGivenStream) {
  Rig rig;
  int queue = 0;
  rig.library.multiply(rig.product(2, 3, 4), &queue);
  EXPECT_EQ(record().stream, &queue);
}

TEST(CublasltStandIn, RejectsUnsupportedAuxiliaryMatrices) {
  Rig rig;
  LtProduct p = rig.product(8, 16, 24);
  p.epilogue = LtEpilogue::gelu;
  p.auxiliary = rig.auxiliary.data();
  p.stride_auxiliary = 16;
  EXPECT_TRUE(rig.library.multiply(p, nullptr));
  const std::int64_t asked = rig.library.questions();
  p.stride_auxiliary = 17;
  EXPECT_FALSE(rig.library.multiply(p, nullptr));
  p.stride_auxiliary = 16;
  p.auxiliary = rig.auxiliary.data() + 1;
  EXPECT_FALSE(rig.library.multiply(p, nullptr));
  EXPECT_EQ(rig.library.questions(), asked);
}

TEST(CublasltStandIn, PartialSumsFitTheWorkspace) {
  Rig rig;  // three parts of 40 × 40 sums take 19,200 bytes of the 32,768
  std::int64_t before = record().in_parts;
  rig.library.multiply(rig.product(40, 40, 300), nullptr);
  EXPECT_EQ(record().in_parts, before + 1);
  CublasLt small(rig.workspace.data(), 1024);
  before = record().in_parts;
  small.multiply(rig.product(40, 40, 300), nullptr);
  EXPECT_EQ(record().in_parts, before);
}

TEST(CublasltStandIn, WorkspaceIsAlignedAsTheLibraryDemands) {
  Rig rig;
  for (const std::size_t bytes : {0, 8, 128, 248}) {
    CublasLt shifted(reinterpret_cast<char*>(rig.workspace.data()) + bytes, 20480);
    const std::int64_t before = record().in_parts;
    EXPECT_TRUE(shifted.multiply(rig.product(40, 40, 300), nullptr));
    EXPECT_EQ(record().in_parts, before + 1);
  }
  EXPECT_THROW(CublasLt(reinterpret_cast<char*>(rig.workspace.data()) + 8, 16), Error);
}

TEST(CublasltStandIn, ReportsRequestedAndChosenAlgorithms) {
  Rig rig;
  LtProduct p = rig.product(40, 40, 300);
  p.epilogue = LtEpilogue::bias;
  p.bias = rig.bias.data();
  rig.library.multiply(p, nullptr);
  ASSERT_EQ(rig.library.choices().size(), 1);
  EXPECT_EQ(rig.library.choices()[0],
            "fp32 40 × 40 × 300, bias: algorithm 0, tile 0, stages 0, parts 3, workspace 19200 B, "
            "waves 1");
}

TEST(CublasltStandIn, RejectsEmptyProductsAndMissingArrays) {
  Rig rig;
  EXPECT_THROW(rig.library.multiply(rig.product(8, 16, 0), nullptr), Error);
  LtProduct p = rig.product(8, 16, 24);
  p.epilogue = LtEpilogue::gelu_gradient;
  EXPECT_THROW(rig.library.multiply(p, nullptr), Error);
}

template <class T>
class Fallback : public ::testing::Test {
 protected:
  void TearDown() override { record().has_products = true; }
  static KernelChoice by(MatmulBackend backend) {
    return KernelChoice().set_products(dtype_of<T>, backend);
  }
};
using Types = ::testing::Types<float, double, Bf16, Fp16>;
TYPED_TEST_SUITE(Fallback, Types);

/// Own sizes, because a choice is kept once it is made.
TYPED_TEST(Fallback, HandlesProductsTheLibraryDoesNotSupport) {
  using T = TypeParam;
  const std::int64_t t = 24, m = 56, n = 72;
  const DeviceArray<T> x(uniform<T>(t * m, 1)), w(uniform<T>(n * m, 2)), bias(uniform<T>(n, 3));
  const auto forward = [&](const Handle& handle) {
    const DeviceArray<T> g(t * n), h(t * n), dh(t * n);
    linear_gelu_forward<T>(handle, g.matrix(t, n), h.matrix(t, n), x.matrix(t, m), w.matrix(n, m),
                           bias.flat(), Gelu::tanh);
    linear_gelu_backward_input<T>(handle, dh.matrix(t, n), x.matrix(t, m), w.matrix(m, n),
                                  h.matrix(t, n), Gelu::tanh);
    return std::array{g.values(), h.values(), dh.values()};
  };
  record().has_products = false;
  const std::int64_t products = record().products;
  const auto found = forward(Handle(this->by(MatmulBackend::cublaslt)));
  EXPECT_EQ(record().products, products);
  const auto other = is_narrow<T> ? MatmulBackend::widened : MatmulBackend::kokkos_kernels;
  EXPECT_EQ(found, forward(Handle(this->by(other))));
}

/// Own sizes here too.
TYPED_TEST(Fallback, UsesOnlyPreparedMemory) {
  using T = TypeParam;
  const Handle handle(this->by(MatmulBackend::cublaslt));
  handle.prepare_products(dtype_of<T>);
  EXPECT_EQ(handle.widened_bytes(), is_narrow<T> ? widened_workspace_bytes : 0);
  const std::int64_t before = arena_allocation_count();
  const DeviceArray<T> a(uniform<T>(28 * 60, 1)), b(uniform<T>(60 * 76, 2)), c(28 * 76);
  record().has_products = false;
  const std::int64_t products = record().products;
  matmul<T>(handle, c.matrix(28, 76), a.matrix(28, 60), b.matrix(60, 76), Transpose::no,
            Transpose::no, 1.0, 0.0);
  matmul<T>(handle, c.matrix(28, 76), a.matrix(28, 0), b.matrix(0, 76), Transpose::no,
            Transpose::no, 1.0, 0.0);
  EXPECT_EQ(record().products, products);
  EXPECT_EQ(arena_allocation_count(), before);
}

/// One forward and one backward kernel if the library has them, but not for another form or other
/// sizes.
TEST(CublasltFusion, FollowsTheRule) {
  const Handle handle(KernelChoice().set_products(DType::bf16, MatmulBackend::cublaslt));
  const auto kinds_with_gelu = [&] {
    std::int64_t count = 0;
    for (const std::string& line : handle.product_choices())
      if (line.find("GELU") != std::string::npos && line.find("none") == std::string::npos) ++count;
    return count;
  };
  const auto pass = [&](std::int64_t n, Gelu form) {
    const std::int64_t t = 16, m = 88;
    const std::int64_t before = kinds_with_gelu();
    const DeviceArray<Bf16> x(uniform<Bf16>(t * m, 1)), w(uniform<Bf16>(n * m, 2)), g(t * n),
        h(t * n);
    linear_gelu_forward<Bf16>(handle, g.matrix(t, n), h.matrix(t, n), x.matrix(t, m),
                              w.matrix(n, m), View1<const Bf16>(), form);
    linear_gelu_backward_input<Bf16>(handle, g.matrix(t, n), x.matrix(t, m), w.matrix(m, n),
                                     h.matrix(t, n), form);
    return kinds_with_gelu() - before;
  };
  EXPECT_EQ(pass(104, Gelu::tanh), 2);
  EXPECT_EQ(pass(112, Gelu::exact), 0);
  EXPECT_EQ(pass(107, Gelu::tanh), 0);
}

/// Scales belong to the call, not to the kind; what the library does not have is not asked for.
TEST(CublasltStandIn, Fp8ScalesComeFromTheCall) {
  Rig rig;
  const DeviceArray<E4M3> a(std::vector<E4M3>(32 * 64, E4M3(1.5F)));
  const DeviceArray<E5M2> b(std::vector<E5M2>(48 * 64, E5M2(-2.0F)));
  const DeviceArray<float> scales(std::vector<float>{0.5F, 0, 0, 0, 0.25F, 0, 0, 0, 4.0F});
  LtProduct p = rig.product(48, 32, 64);
  p.fp8_a = LtFp8::e5m2;
  p.fp8_b = LtFp8::e4m3;
  p.transposed_b = true;
  p.a = b.data();
  p.b = a.data();
  p.stride_a = p.stride_b = 64;
  p.scale_a = scales.data();
  p.scale_b = scales.data() + 4;
  EXPECT_TRUE(rig.library.multiply(p, nullptr));
  EXPECT_EQ(rig.c.values().front(), -3.0F * 64 / 8);
  const std::int64_t asked = rig.library.questions();
  p.scale_b = scales.data() + 8;
  EXPECT_TRUE(rig.library.multiply(p, nullptr));
  EXPECT_EQ(rig.c.values().front(), -3.0F * 64 * 2);
  EXPECT_EQ(rig.library.questions(), asked);
  EXPECT_NE(rig.library.choices().front().find("e5m2 × e4m3 to fp32 48 × 32 × 64"),
            std::string::npos)
      << rig.library.choices().front();
  LtProduct other = p;
  other.rows = 40;
  EXPECT_FALSE(rig.library.multiply(other, nullptr));
  other = p;
  other.transposed_b = false;
  other.stride_b = 32;
  EXPECT_FALSE(rig.library.multiply(other, nullptr));
}

}  // namespace
}  // namespace trireme::kernels
