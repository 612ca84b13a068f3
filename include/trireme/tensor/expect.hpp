#pragma once

#include <trireme/base/check.hpp>
#include <trireme/tensor/views.hpp>

#include <array>
#include <initializer_list>
#include <string>

namespace trireme {

/// Error unless `view` has exactly this shape: `expect_shape(y, "y", {tokens, hidden});`
template <class View>
void expect_shape(const View& view, const char* name, std::initializer_list<std::int64_t> shape,
                  Place place = Place::here()) {
  const auto rank = static_cast<std::size_t>(View::rank);
  bool equal = shape.size() == rank;
  std::size_t axis = 0;
  for (const std::int64_t n : shape) {
    if (axis < rank && static_cast<std::int64_t>(view.extent(axis)) != n) equal = false;
    ++axis;
  }
  if (equal) [[likely]]
    return;
  std::string held;
  for (std::size_t a = 0; a < rank; ++a) held += text(a > 0 ? ", " : "", view.extent(a));
  std::string wanted;
  for (const std::int64_t n : shape) wanted += text(wanted.empty() ? "" : ", ", n);
  detail::check_failed(text("view ", name, " has shape [", held, "], expected [", wanted, "]"),
                       place);
}

}  // namespace trireme
