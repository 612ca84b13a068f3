#include <trireme/base/fp8.hpp>

#include <array>

namespace trireme {
namespace {

constexpr std::array<std::string_view, 2> products_names{"compute", "fp8"};
constexpr std::array<std::string_view, 2> algorithm_names{"max", "most_recent"};

}  // namespace

std::string_view name_of(Products x) {
  return products_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(Fp8Algorithm x) {
  return algorithm_names[static_cast<std::size_t>(x)];
}

template <>
std::span<const std::string_view> names<Products>() {
  return products_names;
}
template <>
std::span<const std::string_view> names<Fp8Algorithm>() {
  return algorithm_names;
}

}  // namespace trireme
