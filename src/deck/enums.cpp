#include <trireme/deck/enums.hpp>

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

namespace {

constexpr std::array<std::string_view, 2> action_words{"stop", "repair"};

}  // namespace

std::string_view name_of(AuditAction x) {
  return action_words[static_cast<std::size_t>(x)];
}
template <>
std::span<const std::string_view> names<AuditAction>() {
  return action_words;
}

namespace {

constexpr std::array<std::string_view, 2> strategy_names{"all_reduce", "server"};
constexpr std::array<std::string_view, 2> updates_names{"step", "push"};

}  // namespace

std::string_view name_of(DataStrategy x) {
  return strategy_names[static_cast<std::size_t>(x)];
}
std::string_view name_of(ServerUpdates x) {
  return updates_names[static_cast<std::size_t>(x)];
}

template <>
std::span<const std::string_view> names<DataStrategy>() {
  return strategy_names;
}
template <>
std::span<const std::string_view> names<ServerUpdates>() {
  return updates_names;
}

}  // namespace trireme
