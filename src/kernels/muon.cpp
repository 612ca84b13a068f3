#include <trireme/kernels/muon.hpp>

#include <trireme/kernels/packs.hpp>
#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {

template <class Real>
void divide_by(const Exec& exec, View1<Real> x, View1<const double> root) {
  expect_shape(root, "root", {1});
  for_chunks(
      "kernels/divide_by", exec, extent(x, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        const auto factor = static_cast<Real>(1.0 / (root(0) + 1e-7));
        Real* part = x.data() + first;
        for_lanes(team, count, [&](std::int64_t i) { part[i] *= factor; });
      });
}

template <class Real>
void copy_matrix(const Exec& exec, View2<Real> y, View2<const Real> x) {
  const std::int64_t columns = extent(x, 1);
  expect_shape(y, "y", {extent(x, 0), columns});
  for_rows(
      "kernels/copy_matrix", exec, extent(x, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t n) {
        copy_lanes(team, columns, row_of(y, n), row_of(x, n));
      });
}

#define TRIREME_INSTANTIATE(Real)                                               \
  template void divide_by<Real>(const Exec&, View1<Real>, View1<const double>); \
  template void copy_matrix<Real>(const Exec&, View2<Real>, View2<const Real>)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
