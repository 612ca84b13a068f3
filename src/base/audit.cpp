#include <trireme/base/audit.hpp>

#include <array>

namespace trireme {
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

}  // namespace trireme
