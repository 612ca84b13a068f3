// Matrix products and linear layers by every back end of this build, against naive sums in double;
// bits of the tiled kernel, threads of host libraries, and the peak.
#include <trireme/base/check.hpp>
#include <trireme/kernels/fp8.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/matmul_peak.hpp>
#include <trireme/kernels/matmul_product.hpp>
#include <trireme/tensor/fence.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cases.hpp"
#include "reference/matmul.hpp"
#include "support/device_array.hpp"

namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::uniform;

template <class T>
class Matmul : public ::testing::Test {
 protected:
  static KernelChoice by(MatmulBackend backend) {
    return KernelChoice().set_products(dtype_of<T>, backend);
  }
};
TYPED_TEST_SUITE(Matmul, WideTypes);

constexpr MatmulBackend all_backends[] = {MatmulBackend::tiled, MatmulBackend::kokkos_kernels,
                                          MatmulBackend::onednn, MatmulBackend::cublaslt};

/// A sum of k products of numbers within [-1, 1] in any order, times alpha, plus beta c: Higham
/// 2002, eq. 3.5 bounds the error by γ_{k+3} Σ |x||y| ≤ (k + 3) k eps/2 in the worst case.
template <class T>
double tolerance(std::int64_t depth, double alpha, double beta) {
  const double eps = std::numeric_limits<T>::epsilon() / 2;
  const auto k = static_cast<double>(depth);
  return (k + 3) * eps * (std::abs(alpha) * k + std::abs(beta)) * 1.01;
}

template <class T>
void expect_near(const std::vector<T>& found, const std::vector<double>& expected, double bound,
                 const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(static_cast<double>(found[i]), expected[i], bound) << what << " element " << i;
}

template <class T>
void compare(const Handle& handle, std::int64_t rows, std::int64_t columns, std::int64_t depth,
             bool ta, bool tb, double alpha, double beta) {
  const auto a = uniform<T>(rows * depth, 1);
  const auto b = uniform<T>(depth * columns, 2);
  // With beta = 0 the previous content must not matter.
  const auto c = beta == 0.0 ? std::vector<T>(static_cast<std::size_t>(rows * columns),
                                              std::numeric_limits<T>::quiet_NaN())
                             : uniform<T>(rows * columns, 3);
  const auto expected = reference::matmul(c, a, b, rows, columns, depth, ta, tb, alpha, beta);
  const DeviceArray<T> da(a), db(b), dc(c);
  const View2<const T> va = ta ? da.matrix(depth, rows) : da.matrix(rows, depth);
  const View2<const T> vb = tb ? db.matrix(columns, depth) : db.matrix(depth, columns);
  matmul<T>(handle, dc.matrix(rows, columns), va, vb, ta ? Transpose::yes : Transpose::no,
            tb ? Transpose::yes : Transpose::no, alpha, beta);
  fence(handle, "test");
  expect_near(dc.values(), expected, tolerance<T>(depth, alpha, beta),
              text(handle.choice().products_description(dtype_of<T>), ' ', rows, 'x', columns, 'x',
                   depth, ta ? " ta" : "", tb ? " tb" : "", " alpha ", alpha, " beta ", beta));
}

TYPED_TEST(Matmul, EveryBackendMatchesTheDefinition) {
  using T = TypeParam;
  for (const MatmulBackend backend : all_backends) {
    if (!matmul_backend_available(dtype_of<T>, backend)) continue;
    const Handle handle(this->by(backend));
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const auto& [alpha, beta] : {std::pair{1.0, 0.0}, {1.0, 1.0}, {-0.5, 0.25}}) {
          for (const std::int64_t rows : {1, 13, 128})
            for (const std::int64_t columns : {1, 13, 128})
              for (const std::int64_t depth : {1, 13, 128})
                compare<T>(handle, rows, columns, depth, ta, tb, alpha, beta);
          compare<T>(handle, 65, 31, 7, ta, tb, alpha, beta);
        }
  }
}

TYPED_TEST(Matmul, EveryBackendMatchesBeyondOneBlock) {
  using T = TypeParam;
  for (const MatmulBackend backend : all_backends) {
    if (!matmul_backend_available(dtype_of<T>, backend)) continue;
    const Handle handle(this->by(backend));
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) compare<T>(handle, 301, 421, 537, ta, tb, 1.0, 1.0);
  }
}

/// Logits and their gradients have such rows. What is between the rows is neither read nor written.
TYPED_TEST(Matmul, RowsMayBePadded) {
  using T = TypeParam;
  constexpr std::int64_t rows = 67, columns = 45, depth = 51, gap = 13;
  const auto padded = [](const DeviceArray<T>& of, std::int64_t height, std::int64_t width) {
    return first_columns(of.matrix(height, width + gap), width);
  };
  for (const MatmulBackend backend : all_backends) {
    if (!matmul_backend_available(dtype_of<T>, backend)) continue;
    const Handle handle(this->by(backend));
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        const auto a = uniform<T>(rows * depth, 1);
        const auto b = uniform<T>(depth * columns, 2);
        const auto c = uniform<T>(rows * columns, 3);
        const std::int64_t width_a = ta ? rows : depth, width_b = tb ? depth : columns;
        const DeviceArray<T> da(with_gaps(a, width_a, gap)), db(with_gaps(b, width_b, gap)),
            dc(with_gaps(c, columns, gap));
        matmul<T>(handle, padded(dc, rows, columns), padded(da, ta ? depth : rows, width_a),
                  padded(db, tb ? columns : depth, width_b), ta ? Transpose::yes : Transpose::no,
                  tb ? Transpose::yes : Transpose::no, 1.0, 1.0);
        fence(handle, "test");
        std::vector<T> found;
        const auto all = dc.values();
        for (std::size_t i = 0; i < all.size(); ++i)
          if (static_cast<std::int64_t>(i) % (columns + gap) < columns)
            found.push_back(all[i]);
          else
            ASSERT_TRUE(std::isnan(all[i])) << i;
        expect_near(found, reference::matmul(c, a, b, rows, columns, depth, ta, tb, 1.0, 1.0),
                    tolerance<T>(depth, 1.0, 1.0), text(name_of(backend), ta, tb));
      }
  }
}

TYPED_TEST(Matmul, EmptySumsScaleTheResult) {
  using T = TypeParam;
  for (const MatmulBackend backend : all_backends) {
    if (!matmul_backend_available(dtype_of<T>, backend)) continue;
    const Handle handle(this->by(backend));
    for (const double beta : {0.0, 1.0, 0.5}) compare<T>(handle, 5, 3, 0, false, true, 1.0, beta);
    compare<T>(handle, 0, 3, 4, false, false, 1.0, 0.0);
  }
}

TYPED_TEST(Matmul, TiledPartsHaveTheSameBits) {
  using T = TypeParam;
  const Handle handle;
  const std::int64_t rows = 277, columns = 403, depth = 311;
  const auto a = uniform<T>(rows * depth, 1);
  const auto b = uniform<T>(columns * depth, 2);
  const DeviceArray<T> da(a), db(b), whole(rows * columns), part(101 * 57);
  matmul_tiled<T>(handle, whole.matrix(rows, columns), da.matrix(rows, depth),
                  db.matrix(columns, depth), Transpose::no, Transpose::yes, 1.0, 0.0);
  const std::int64_t first_row = 93, first_column = 211;
  const View2<const T> some_rows(da.data() + first_row * depth, 101, depth);
  const View2<const T> some_columns(db.data() + first_column * depth, 57, depth);
  matmul_tiled<T>(handle, part.matrix(101, 57), some_rows, some_columns, Transpose::no,
                  Transpose::yes, 1.0, 0.0);
  fence(handle, "test");
  const auto all = whole.values();
  const auto few = part.values();
  for (std::int64_t i = 0; i < 101; ++i)
    for (std::int64_t j = 0; j < 57; ++j)
      ASSERT_EQ(few[static_cast<std::size_t>(i * 57 + j)],
                all[static_cast<std::size_t>((first_row + i) * columns + first_column + j)]);
}

TYPED_TEST(Matmul, LinearLayersMatchTheDefinition) {
  using T = TypeParam;
  for (const MatmulBackend backend : all_backends) {
    if (!matmul_backend_available(dtype_of<T>, backend)) continue;
    const Handle handle(this->by(backend));
    for (const auto& [tokens, inputs, outputs] :
         {std::tuple{1, 1, 1}, {13, 128, 1}, {128, 13, 128}, {130, 65, 193}}) {
      const auto x = uniform<T>(tokens * inputs, 1);
      const auto w = uniform<T>(outputs * inputs, 2);
      const auto bias = uniform<T>(outputs, 3);
      const auto dy = uniform<T>(tokens * outputs, 4);
      const auto dw = uniform<T>(outputs * inputs, 5);
      const auto ones = std::vector<T>(static_cast<std::size_t>(tokens), T(1));
      const DeviceArray<T> ax(x), aw(w), abias(bias), ady(dy), adw(dw), adbias(bias);
      const DeviceArray<T> ay(tokens * outputs), bare(tokens * outputs), adx(tokens * inputs);
      linear_forward<T>(handle, ay.matrix(tokens, outputs), ax.matrix(tokens, inputs),
                        aw.matrix(outputs, inputs), abias.flat());
      linear_forward<T>(handle, bare.matrix(tokens, outputs), ax.matrix(tokens, inputs),
                        aw.matrix(outputs, inputs), View1<const T>());
      linear_backward_input<T>(handle, adx.matrix(tokens, inputs), ady.matrix(tokens, outputs),
                               aw.matrix(outputs, inputs));
      linear_backward_weight<T>(handle, adw.matrix(outputs, inputs), adbias.flat(),
                                ady.matrix(tokens, outputs), ax.matrix(tokens, inputs));
      fence(handle, "test");
      const std::vector<T> none(static_cast<std::size_t>(tokens * outputs));
      const auto product =
          reference::matmul(none, x, w, tokens, outputs, inputs, false, true, 1.0, 0.0);
      auto expected = product;
      for (std::size_t i = 0; i < expected.size(); ++i)
        expected[i] += static_cast<double>(bias[i % bias.size()]);
      const auto name = handle.choice().products_description(dtype_of<T>);
      expect_near(ay.values(), expected, tolerance<T>(inputs, 1, 1), name + " y");
      expect_near(bare.values(), product, tolerance<T>(inputs, 1, 0), name + " y without bias");
      expect_near(adx.values(),
                  reference::matmul(x, dy, w, tokens, inputs, outputs, false, false, 1.0, 0.0),
                  tolerance<T>(outputs, 1, 0), name + " dx");
      expect_near(adw.values(),
                  reference::matmul(dw, dy, x, outputs, inputs, tokens, true, false, 1.0, 1.0),
                  tolerance<T>(tokens, 1, 1), name + " dw");
      expect_near(adbias.values(),
                  reference::matmul(bias, dy, ones, outputs, 1, tokens, true, false, 1.0, 1.0),
                  tolerance<T>(tokens, 1, 1), name + " dbias");
    }
  }
}

TEST(MatmulBackends, RejectMismatchedShapes) {
  const Handle handle;
  const DeviceArray<double> a(6), b(6), c(4);
  EXPECT_THROW(matmul<double>(handle, c.matrix(2, 2), a.matrix(2, 3), b.matrix(2, 3), Transpose::no,
                              Transpose::no),
               Error);
}

TEST(MatmulBackends, OneDnnHasNoDoublePrecision) {
  EXPECT_FALSE(matmul_backend_available(DType::fp64, MatmulBackend::onednn));
  EXPECT_THROW(KernelChoice().set_products(DType::fp64, MatmulBackend::onednn), Error);
}

TEST(MatmulBackends, StartNoThreadsOnASerialHost) {
  const std::filesystem::path tasks = "/proc/self/task";  // one entry per thread
  if (!exec_on_host || Exec().concurrency() > 1 || !std::filesystem::exists(tasks))
    GTEST_SKIP() << "needs a serial host and Linux";
  const auto threads = [&] {
    return std::distance(std::filesystem::directory_iterator(tasks),
                         std::filesystem::directory_iterator());
  };
  const auto before = threads();
  measure_matmul_peak(Handle{}, DType::fp32);
  EXPECT_EQ(threads(), before);
}

TEST(MatmulBackends, MeasuredPeakIsPlausible) {
  const Handle handle;
  // Faster than one operation per nanosecond, slower than any processor of the next decades.
  for (const DType type : {DType::fp32, DType::fp64}) {
    const double peak = measure_matmul_peak(handle, type);
    EXPECT_GT(peak, 1e8);
    EXPECT_LT(peak, 1e17);
  }
  if (!fp8_obstacle(handle).empty()) GTEST_SKIP() << fp8_obstacle(handle);
  const double peak = measure_fp8_peak(handle);
  EXPECT_GT(peak, 1e8);
  EXPECT_LT(peak, 1e17);
}

}  // namespace
}  // namespace trireme::kernels
