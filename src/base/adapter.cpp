#include <trireme/base/adapter.hpp>

#include <array>

namespace trireme {
namespace {

constexpr std::array<std::string_view, 3> kinds{"none", "lora", "dora"};
constexpr std::array<std::string_view, 2> scalings{"standard", "rslora"};

}  // namespace

std::string_view name_of(AdapterKind x) {
  return kinds[static_cast<std::size_t>(x)];
}
std::string_view name_of(AdapterScaling x) {
  return scalings[static_cast<std::size_t>(x)];
}
template <>
std::span<const std::string_view> names<AdapterKind>() {
  return kinds;
}
template <>
std::span<const std::string_view> names<AdapterScaling>() {
  return scalings;
}

}  // namespace trireme
