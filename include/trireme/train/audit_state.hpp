#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/train/audit_report.hpp>
#include <trireme/train/engine_parts.hpp>
#include <trireme/train/hash_list.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace trireme::train {

/// Audits of the state between steps. Weights are equal on all replicas, and so is the optimizer's
/// state unless replicas divide it. Weights and state only change in updates.
template <class P>
class StateAudit {
 public:
  /// Arguments must outlive this object.
  StateAudit(const deck::RunConfig& run, EngineParts<P>& parts, const kernels::Handle& handle,
             grid::Grid& grid, HashList& list);

  /// Keeps the hashes of this rank's state after step `step`.
  void keep(std::int64_t step);
  /// Compares the state after step `step` among replicas, and with the kept hashes if they are of
  /// this step. Returns false if all state is right, and true if it was wrong and has been
  /// repaired; otherwise throws on all ranks. Keeps the hashes of the right state. Collective.
  bool compare(std::int64_t step);

 private:
  struct State {
    std::int64_t step = -1;
    std::vector<HashEntry> common;  ///< equal on all replicas
    std::vector<HashEntry> own;     ///< held by this rank only
  };
  /// Hashes of all ranks' states, by world rank; equal on all ranks.
  struct Table {
    std::vector<std::uint64_t> hashes;  ///< hash of State::common
    /// Bit mask of the arrays that changed since keep(): 1 common, 2 own.
    std::vector<std::int64_t> changed;
  };
  /// Right hash of the common arrays, by group_of(); empty if unknown.
  using Values = std::map<Rank, std::optional<std::uint64_t>>;

  template <class Each>
  void for_common(const Each& each);
  State state(std::int64_t step);
  Table tell(const State& now) const;
  Values right_values(const Table& table) const;
  /// Group of the ranks with the same weights as `rank`.
  Rank group_of(Rank rank) const { return grid_.process_grid().replica_colour(rank); }
  bool all_right(const Table& table, const Values& right) const;
  Finding examine(const State& now, const Table& table, const Values& right) const;
  Finding find_change(const State& now, std::int64_t changed) const;
  bool repair(std::int64_t step, const Table& table, const Values& right);

  const deck::RunConfig& run_;
  EngineParts<P>& parts_;
  const kernels::Handle& handle_;
  grid::Grid& grid_;
  HashList& list_;
  State kept_;
};

extern template class StateAudit<model::Fp32>;
extern template class StateAudit<model::Fp64>;
extern template class StateAudit<model::MixedBf16>;
extern template class StateAudit<model::MixedFp16>;

/// A vote in an audit: the hash of a result that is computed more than once.
struct Voice {
  int replica = 0;
  std::uint64_t value = 0;  ///< hash of the result
};

/// Whether all votes have the same value.
bool unanimous(std::span<const Voice> voices);

/// Replicas that voted for more than one value.
std::set<int> contradicting(std::span<const Voice> voices);

/// The value with votes of the most replicas that are not in `doubted`. The number of all replicas
/// and then the number of votes decide a tie. Empty if there are no votes or a tie remains.
std::optional<std::uint64_t> agreed_value(std::span<const Voice> voices,
                                          const std::set<int>& doubted);

}  // namespace trireme::train
