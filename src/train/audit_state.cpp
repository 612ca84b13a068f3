// The audit of weights and optimizer state: hashes of all ranks identify wrong ranks, and a
// broadcast from a correct rank repairs the state of the wrong ranks.
#include <trireme/train/audit_state.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

namespace trireme::train {
namespace {

/// Bits of Table::changed.
constexpr std::int64_t common_changed = 1;
constexpr std::int64_t own_changed = 2;
constexpr const char* hashes_word = "hashes of an audit";

}  // namespace

template <class P>
StateAudit<P>::StateAudit(const deck::RunConfig& run, EngineParts<P>& parts,
                          const kernels::Handle& handle, grid::Grid& grid, HashList& list)
    : run_(run), parts_(parts), handle_(handle), grid_(grid), list_(list) {}

template <class P>
void StateAudit<P>::keep(std::int64_t step) {
  kept_ = state(step);
}

/// Calls each(name, numbers) for the arrays that are equal on all replicas.
template <class P>
template <class Each>
void StateAudit<P>::for_common(const Each& each) {
  parts_.finish_gathers();
  for (const auto& entry : parts_.parameters.entries()) each(entry.weight.name, entry.weight.data);
  each("the optimizer's progress", parts_.optimizer->status());
  if (parts_.fp8) each("maxima of fp8 tensors", parts_.fp8->history().data);
  for (const auto& array : parts_.optimizer->factor_state()) each(array.name, array.data);
  if (parts_.weight_gather) return;  // each replica has its own part of the optimizer's arrays
  for (const auto& block : parts_.optimizer->state()) {
    for (const auto& array : block.arrays) each(array.name, array.data);
    for (const auto& array : block.narrow_arrays) each(array.name, array.data);
    if constexpr (optim::Optimizer<P>::has_masters)
      each("master weights of " + block.updated.name, block.updated.data);
  }
}

template <class P>
auto StateAudit<P>::state(std::int64_t step) -> State {
  State now;
  now.step = step;
  for_common([&](const std::string& name, auto numbers) { list_.add(name, numbers); });
  now.common = list_.take();
  if (!parts_.weight_gather) return now;
  for (const auto& block : parts_.optimizer->state()) {
    for (const auto& array : block.arrays) list_.add(array.name, array.data);
    for (const auto& array : block.narrow_arrays) list_.add(array.name, array.data);
    if constexpr (optim::Optimizer<P>::has_masters)
      list_.add("master weights of " + block.updated.name, block.updated.data);
  }
  now.own = list_.take();
  return now;
}

template <class P>
auto StateAudit<P>::tell(const State& now) const -> Table {
  Table table;
  std::int64_t changed = 0;
  if (kept_.step == now.step) {
    if (combined(kept_.common) != combined(now.common)) changed |= common_changed;
    if (combined(kept_.own) != combined(now.own)) changed |= own_changed;
  }
  for (const std::int64_t hash :
       grid_.world().all_gather(static_cast<std::int64_t>(combined(now.common)), hashes_word))
    table.hashes.push_back(static_cast<std::uint64_t>(hash));
  table.changed = grid_.world().all_gather(changed, hashes_word);
  return table;
}

/// Ranks whose common state changed since keep() have no vote.
template <class P>
auto StateAudit<P>::right_values(const Table& table) const -> Values {
  std::map<Rank, std::vector<Voice>> voices;
  for (std::size_t rank = 0; rank < table.hashes.size(); ++rank) {
    auto& group = voices[group_of(static_cast<Rank>(rank))];
    if ((table.changed[rank] & common_changed) == 0)
      group.push_back({static_cast<int>(rank), table.hashes[rank]});
  }
  Values right;
  for (const auto& [group, all] : voices) right[group] = agreed_value(all, {});
  return right;
}

template <class P>
bool StateAudit<P>::all_right(const Table& table, const Values& right) const {
  for (std::size_t rank = 0; rank < table.hashes.size(); ++rank)
    if (table.changed[rank] != 0 ||
        right.at(group_of(static_cast<Rank>(rank))) != table.hashes[rank])
      return false;
  return true;
}

/// Finding about a change of this rank's state since keep(); level `none` if there is no change.
template <class P>
Finding StateAudit<P>::find_change(const State& now, std::int64_t changed) const {
  if (changed == 0) return {};
  const bool common = (changed & common_changed) != 0;
  const auto& list = common ? now.common : now.own;
  const std::size_t at = first_difference(list, common ? kept_.common : kept_.own);
  return {Finding::wrong,
          text("numbers changed in memory after step ", now.step, ": ", list.at(at).name)};
}

/// Finding about this rank's state. Collective among the ranks with the same weights.
template <class P>
Finding StateAudit<P>::examine(const State& now, const Table& table, const Values& right) const {
  grid::Communicator& group = parts_.replicas;
  const Rank here = grid_.world().rank();
  const std::int64_t changed = table.changed[static_cast<std::size_t>(here)];
  const auto hash_of = [&](int rank) {
    return table.hashes[static_cast<std::size_t>(group.world_rank(rank))];
  };
  const auto& value = right.at(group_of(here));
  // first: a rank with the right value (unknown: rank 0); second: a rank with another value.
  int first = 0;
  while (value && hash_of(first) != *value) ++first;
  int second = 0;
  while (second < group.size() && hash_of(second) == hash_of(first)) ++second;
  if (second == group.size()) return find_change(now, changed);
  std::vector<std::vector<HashEntry>> lists;
  for (const int rank : {first, second})
    lists.push_back(from_words(group.broadcast(to_words(now.common), rank, hashes_word)));
  if (changed != 0) return find_change(now, changed);
  const std::uint64_t mine = hash_of(group.rank());
  if (mine == value) return {};
  const std::size_t at = first_difference(now.common, lists[mine == hash_of(first) ? 1 : 0]);
  return {
      value ? Finding::wrong : Finding::suspected,
      text("other numbers than its replicas after step ", now.step, ": ", now.common.at(at).name)};
}

/// Replaces the common arrays of each group by the arrays of a correct rank. Returns whether the
/// state of all ranks is now correct. Replaces nothing if the deck does not ask for repair, own
/// arrays changed, or a right value is unknown. Collective.
template <class P>
bool StateAudit<P>::repair(std::int64_t step, const Table& table, const Values& right) {
  const auto lost = [](std::int64_t changed) { return (changed & own_changed) != 0; };
  const auto told = [](const auto& one) { return one.second.has_value(); };
  if (run_.audit != AuditAction::repair || std::ranges::any_of(table.changed, lost) ||
      !std::ranges::all_of(right, told))
    return false;
  const auto& value = right.at(group_of(grid_.world().rank()));
  int root = 0;
  while (table.hashes[static_cast<std::size_t>(parts_.replicas.world_rank(root))] != *value) ++root;
  for_common([&](const std::string&, auto numbers) {
    using T = typename decltype(numbers)::non_const_value_type;
    parts_.replicas.template broadcast<T>(handle_, numbers, root, "repair of weights and state");
    parts_.parameters.changed();
  });
  if (parts_.fp8) parts_.fp8->resume(handle_, step);
  keep(step);
  return all_right(tell(kept_), right);
}

template <class P>
bool StateAudit<P>::compare(std::int64_t step) {
  State now = state(step);
  const Table table = tell(now);
  const Values right = right_values(table);
  if (all_right(table, right)) {
    kept_ = std::move(now);
    return false;
  }
  const auto suspects = suspects_of(grid_.world(), examine(now, table, right));
  report_suspects(grid_.world(), run_.directory, step + 1, suspects, repair(step, table, right));
  return true;
}

template class StateAudit<model::Fp32>;
template class StateAudit<model::Fp64>;
template class StateAudit<model::MixedBf16>;
template class StateAudit<model::MixedFp16>;

bool unanimous(std::span<const Voice> voices) {
  return std::ranges::all_of(
      voices, [&](const Voice& voice) { return voice.value == voices.front().value; });
}

std::set<int> contradicting(std::span<const Voice> voices) {
  std::map<int, std::uint64_t> value_of;  // by replica
  std::set<int> found;
  for (const Voice& voice : voices)
    if (value_of.emplace(voice.replica, voice.value).first->second != voice.value)
      found.insert(voice.replica);
  return found;
}

std::optional<std::uint64_t> agreed_value(std::span<const Voice> voices,
                                          const std::set<int>& doubted) {
  std::map<std::uint64_t, std::set<int>> replicas_of;  // by value
  for (const Voice& voice : voices) replicas_of[voice.value].insert(voice.replica);
  // Weight of a value: number of undoubted replicas, of replicas, and of votes.
  std::map<std::uint64_t, std::array<std::ptrdiff_t, 3>> weights;
  for (const auto& [value, replicas] : replicas_of)
    weights[value] = {
        std::ranges::count_if(replicas, [&](int replica) { return !doubted.contains(replica); }),
        std::ssize(replicas), std::ranges::count_if(voices, [counted = value](const Voice& v) {
          return v.value == counted;
        })};
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto most = std::ranges::max_element(weights, less);
  if (most == weights.end()) return std::nullopt;
  const auto same = [&](const auto& weight) { return weight.second == most->second; };
  if (std::ranges::count_if(weights, same) > 1) return std::nullopt;
  return most->first;
}

}  // namespace trireme::train
