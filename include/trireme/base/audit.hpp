#pragma once

#include <trireme/base/types.hpp>

namespace trireme {

/// Reaction to wrong numbers that an audit finds (docs/reliability.md).
enum class AuditAction : std::uint8_t {
  stop,
  repair  ///< continue from the right numbers, where they can be told
};
std::string_view name_of(AuditAction);
template <>
std::span<const std::string_view> names<AuditAction>();

/// Device memory of a rank that audits its steps: hashes that the host has not read yet.
inline constexpr Bytes audit_bytes = 4096 * 8;

}  // namespace trireme
