#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/train/audit_report.hpp>
#include <trireme/train/hash_list.hpp>
#include <trireme/train/rank_parts.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace trireme::train {

/// Audits of the state before steps. Weights are equal on all replicas, and so is the optimizer's
/// state unless replicas share it. Neither changes from one update to the next.
template <class P>
class StateAudit {
 public:
  /// Arguments must outlive this object.
  StateAudit(const deck::RunConfig& run, RankParts<P>& parts, const kernels::Handle& handle,
             grid::Grid& grid, HashList& list);

  /// Keeps the hashes of the state after step `step`.
  void keep(std::int64_t step);
  /// Compares the state after step `step` among replicas, and with the kept hashes if they are of
  /// this step. Returns true if it has repaired the state; throws on all ranks if it cannot. Keeps
  /// the hashes of the right state. Collective.
  bool compare(std::int64_t step);

 private:
  struct State {
    std::int64_t step = -1;
    std::vector<HashEntry> common;  ///< equal on all replicas
    std::vector<HashEntry> own;     ///< held by this rank only
  };
  /// State of all ranks, known to every rank.
  struct Table {
    std::vector<std::uint64_t> hashes;  ///< hashes of `common`, by world rank
    std::vector<std::int64_t> changed;  ///< arrays that changed since keep(): 1 common, 2 own
  };
  /// Right hash by the first rank of each group with the same weights; empty if unknown.
  using Values = std::map<Rank, std::optional<std::uint64_t>>;

  template <class Each>
  void for_common(const Each& each);
  State state(std::int64_t step);
  Table tell(const State& now) const;
  Values right_values(const Table& table) const;
  Rank group_of(Rank rank) const { return grid_.process_grid().replica_colour(rank); }
  bool all_right(const Table& table, const Values& right) const;
  Finding examine(const State& now, const Table& table, const Values& right) const;
  Finding find_change(const State& now, std::int64_t changed) const;
  bool repair(std::int64_t step, const Table& table, const Values& right);

  const deck::RunConfig& run_;
  RankParts<P>& parts_;
  const kernels::Handle& handle_;
  grid::Grid& grid_;
  HashList& list_;
  State kept_;
};

extern template class StateAudit<model::Fp32>;
extern template class StateAudit<model::Fp64>;
extern template class StateAudit<model::MixedBf16>;
extern template class StateAudit<model::MixedFp16>;

/// Hash of a result that several replicas compute, or one replica repeatedly.
struct Voice {
  int replica = 0;
  std::uint64_t value = 0;  ///< hash of the result
};

/// Whether all voices have the same value.
bool unanimous(std::span<const Voice> voices);

/// Replicas with voices of different values.
std::set<int> contradicting(std::span<const Voice> voices);

/// The right value: the value of most replicas that are not in `doubted`, then of most replicas,
/// then of most voices. Empty if that is undecided, as for two replicas that each repeat their own
/// value.
std::optional<std::uint64_t> agreed_value(std::span<const Voice> voices,
                                          const std::set<int>& doubted);

}  // namespace trireme::train
