#include <trireme/base/server.hpp>

#include <array>

namespace trireme {
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
