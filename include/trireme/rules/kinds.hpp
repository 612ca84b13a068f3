#pragma once

#include <trireme/base/types.hpp>
#include <trireme/rules/rule.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// The update rules, in the order of rules::Table.
enum class OptimizerKind : std::uint8_t { adamw, sgd, lamb, lars, muon, adafactor, lion };
EnumWords enum_words(OptimizerKind);

}  // namespace trireme

namespace trireme::rules {

/// A rule of the table, described for code that works with any rule.
struct Description {
  std::string_view word;
  std::string_view source;  ///< authors and year
  std::string_view keys;    ///< keys of [optimizer] that the rule reads, except those that all read
  Matrices matrices = Matrices::none;
  double default_momentum = 0;
  bool has_nesterov = false;
  bool nesterov_by_default = false;
  std::string_view needs_whole_replicas;  ///< see Rule
  std::vector<StateArray> (*states)(const Settings&) = nullptr;
  std::vector<Pass> (*passes)(const Settings&) = nullptr;  ///< those that apply, in order
  double (*factor)(const Settings&, double rows, double columns) = nullptr;

  /// Whether a step has a pass of this kind.
  bool has(PassKind kind, const Settings& settings) const;
  /// Number of norms per array that a step needs in addition to the gradient's norm: the weights'
  /// norm, and the norm of what is in the gradient's place.
  std::int64_t norms(const Settings& settings) const;
};
const Description& rule_of(OptimizerKind kind);

/// Words of the rules that read a key of [optimizer]: "adamw, lamb and muon". `last`: between the
/// last two words; `quote`: around each word.
std::string readers_of(std::string_view key, std::string_view last = " and ",
                       std::string_view quote = "");
/// Words of all rules with their sources: "adamw (Loshchilov and Hutter 2019), … or …".
std::string rules_with_sources();

}  // namespace trireme::rules
