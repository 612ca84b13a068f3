#include <trireme/kernels/matmul.hpp>

#include <gtest/gtest.h>

#include "kernels/cases.hpp"
#include "support/device_array.hpp"
#include "support/launch_recorder.hpp"

/// The memory that products allocate besides their operands is the planned memory, and exists
/// before the first product.
namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::LaunchRecorder;
using testing::uniform;

template <class T>
class MatmulMemory : public ::testing::Test {};
TYPED_TEST_SUITE(MatmulMemory, AllTypes);

TYPED_TEST(MatmulMemory, IsPreparedOnceAsPlanned) {
  using T = TypeParam;
  const Handle handle;
  EXPECT_EQ(handle.widened_bytes(), 0);
  handle.prepare_products(dtype_of<T>);
  EXPECT_EQ(handle.widened_bytes(), is_narrow<T> ? widened_workspace_bytes : 0);
  EXPECT_EQ(handle.workspace_bytes(), workspace_bytes());
  const std::int64_t before = arena_allocation_count();
  const std::int64_t rows = 33, columns = 65, depth = 17;
  const DeviceArray<T> a(uniform<T>(rows * depth, 1)), b(uniform<T>(depth * columns, 2));
  const DeviceArray<T> c(rows * columns);
  for (const std::int64_t k : {std::int64_t{0}, depth})
    matmul<T>(handle, c.matrix(rows, columns), a.matrix(rows, k), b.matrix(k, columns),
              Transpose::no, Transpose::no, 1.0, 0.0);
  EXPECT_EQ(arena_allocation_count(), before);
}

TYPED_TEST(MatmulMemory, LaterProductsAllocateNothing) {
  using T = TypeParam;
  const Handle handle;
  const DeviceArray<T> a(uniform<T>(40 * 40, 1)), b(uniform<T>(40 * 40, 2)), c(40 * 40);
  const auto multiply = [&] {
    matmul<T>(handle, c.matrix(40, 40), a.matrix(40, 40), b.matrix(40, 40), Transpose::no,
              Transpose::yes, 1.0, 0.0);
  };
  multiply();  // a back end may allocate its own scratch at its first launch
  const LaunchRecorder recorder;
  multiply();
  EXPECT_EQ(recorder.allocations(), 0);
}

}  // namespace
}  // namespace trireme::kernels
