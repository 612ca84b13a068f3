#include <trireme/kernels/muon.hpp>

#include <trireme/kernels/packs.hpp>
#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {

template <class Real>
void muon_direction(const Exec& exec, View1<Real> gradient, View1<Real> m, double momentum,
                    bool nesterov, View1<const double> control, const UpdateRanges& parts) {
  expect_shape(control, "control", {control_size});
  const auto mu = static_cast<Real>(momentum);
  for_parts(
      "kernels/muon_direction", exec, parts,
      KOKKOS_LAMBDA(const Team& team, const UpdateRange& part) {
        if (control(control_proceed) == 0) return;
        const auto clip = static_cast<Real>(control(control_clip));
        const auto update = [&](Real& gradient_i, Real& m_i) {
          const Real g = clip * gradient_i;
          m_i = mu * m_i + g;
          gradient_i = nesterov ? g + mu * m_i : m_i;
        };
        update_lanes(team, part.elements, update, gradient.data() + part.gradient,
                     m.data() + part.state);
      });
}

template <class Real>
void muon_update(const Exec& exec, View1<Real> weight, View1<const Real> direction,
                 double learning_rate, double weight_decay, View1<const double> factor,
                 View1<const double> control, const UpdateRanges& parts) {
  expect_shape(control, "control", {control_size});
  for_parts(
      "kernels/muon_update", exec, parts, KOKKOS_LAMBDA(const Team& team, const UpdateRange& part) {
        if (control(control_proceed) == 0) return;
        const auto keep =
            static_cast<Real>(part.decays != 0 ? 1.0 - learning_rate * weight_decay : 1.0);
        const auto rate = static_cast<Real>(learning_rate * factor(part.array));
        const auto update = [&](Real& w, const Real& o) { w = keep * w - rate * o; };
        update_lanes(team, part.elements, update, weight.data() + part.weight,
                     direction.data() + part.gradient);
      });
}

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

#define TRIREME_INSTANTIATE(Real)                                                                 \
  template void muon_direction<Real>(const Exec&, View1<Real>, View1<Real>, double, bool,         \
                                     View1<const double>, const UpdateRanges&);                   \
  template void muon_update<Real>(const Exec&, View1<Real>, View1<const Real>, double, double,    \
                                  View1<const double>, View1<const double>, const UpdateRanges&); \
  template void divide_by<Real>(const Exec&, View1<Real>, View1<const double>);                   \
  template void copy_matrix<Real>(const Exec&, View2<Real>, View2<const Real>)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
