#include <trireme/base/rotary_scaling.hpp>

#include <array>

namespace trireme {
namespace {

constexpr std::array<std::string_view, 5> scaling_words{"none", "linear", "dynamic", "yarn",
                                                        "llama3"};

}  // namespace

std::string_view name_of(RotaryScalingKind x) {
  return scaling_words[static_cast<std::size_t>(x)];
}
template <>
std::span<const std::string_view> names<RotaryScalingKind>() {
  return scaling_words;
}

}  // namespace trireme
