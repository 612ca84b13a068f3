#pragma once

#include <trireme/tensor/views.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

/// Access to elements of views in tests, in any memory. Slow: every call copies and waits.
namespace trireme::testing {

template <class View>
auto flat_on_device(const View& view) {
  using T = typename View::value_type;
  return Kokkos::View<T*, Kokkos::LayoutRight, Device, Unmanaged>(view.data(), view.size());
}

/// All elements, last axis fastest. A matrix may have padded rows.
template <class View>
auto values_of(const View& view) {
  std::vector<std::remove_const_t<typename View::value_type>> values(view.size());
  if constexpr (View::rank == 2)
    if (view.stride(0) > view.extent(1)) {
      values.clear();
      for (std::size_t r = 0; r < view.extent(0); ++r)
        for (const auto value : values_of(View1<typename View::value_type>(
                 view.data() + r * view.stride(0), view.extent(1))))
          values.push_back(value);
      return values;
    }
  Kokkos::deep_copy(HostView1<typename decltype(values)::value_type>(values.data(), values.size()),
                    flat_on_device(view));
  return values;
}

template <class View, class T>
void set_values(const View& view, const std::vector<T>& values) {
  Kokkos::deep_copy(flat_on_device(view), HostView1<const T>(values.data(), values.size()));
}

/// Element `i` in the order of values_of.
template <class View>
auto value_of(const View& view, std::int64_t i = 0) {
  return values_of(View1<typename View::value_type>(view.data() + i, 1)).front();
}

template <class View, class T>
void set_value(const View& view, std::int64_t i, T value) {
  set_values(View1<T>(view.data() + i, 1), std::vector<T>{value});
}

}  // namespace trireme::testing
