#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/plan/machine.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trireme::plan {

/// The values of the keys that a search chooses (deck::layout_keys).
struct Layout {
  std::int64_t tensor = 1;
  std::int64_t pipeline = 1;
  std::int64_t data = 1;
  std::int64_t micro = 1;
  std::int64_t chunks = 1;
  ScheduleKind schedule = ScheduleKind::one_forward_one_backward;
  Recompute recompute = Recompute::none;
  bool sequence_parallel = false;
  Sharding shard = Sharding::none;
  std::int64_t shard_group = 0;
  std::int64_t expert = 1;

  void set(deck::Config& config) const;
  bool operator==(const Layout&) const = default;
};
Layout layout_of(const deck::Config& config);
/// Whether two layouts are equal, except for the division of state among replicas.
bool alike_but_shard(const Layout& a, const Layout& b);

/// Number of layouts that cannot be used for the same reason.
struct Rejection {
  std::string reason;
  std::int64_t layouts = 0;
};

/// The layouts of a deck for a number of ranks. Unless the deck fixes the keys, some layouts that
/// cannot be better than others are left out. Layouts that differ only in the division of state are
/// consecutive, with ascending `shard`.
class SearchSpace {
 public:
  /// Arguments must outlive this object.
  SearchSpace(const deck::Deck& deck, const architecture::Architecture& architecture,
              std::int64_t ranks, const Machine& machine);

  /// Calls `visit` with every layout.
  void visit(const std::function<void(const Layout&)>& visit);

  /// Rejected combinations of axes, micro-batches and schedules, with the reasons.
  const std::vector<Rejection>& rejected() const { return rejected_; }

 private:
  /// The value of a key that the deck fixes; otherwise all values.
  struct Choice {
    bool fixed = false;
    std::int64_t value = 0;
    bool allows(std::int64_t other) const { return !fixed || value == other; }
  };
  Choice choice(const char* section, const char* name, std::int64_t value) const;
  bool has_axes(const Layout& layout);
  std::vector<Layout> schedules(const Layout& axes);
  std::vector<std::int64_t> chunk_counts(std::int64_t pipeline) const;
  std::vector<std::int64_t> expert_sizes(const Layout& axes);
  std::vector<Layout> options(const Layout& layout);
  void add_shards(const Layout& layout, std::vector<Layout>& all);
  bool pays(const Layout& layout, Sharding shard);
  std::int64_t replicas_on_node(const Layout& layout);
  void reject(const char* reason, std::int64_t layouts = 1);

  const deck::Deck& deck_;
  const architecture::Architecture& architecture_;
  const Machine& machine_;
  deck::Config tried_;  ///< config with the layout that is being tested
  std::int64_t ranks_;
  std::int64_t batch_;  ///< greatest common divisor of all sizes of the global batch
  double programs_;     ///< sum of all sizes of the global batch, divided by the last size
  Choice tensor_, pipeline_, data_, micro_, schedule_, chunks_, recompute_, sequence_parallel_,
      shard_, shard_group_, expert_;
  std::vector<Rejection> rejected_;
};

}  // namespace trireme::plan
