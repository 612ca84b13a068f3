// List scheduling in virtual time: a free rank takes the pass that the rule prefers.
#include <trireme/schedule/list_schedule.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

namespace trireme::schedule {
namespace {

class Lists {
 public:
  Lists(const ProgramLayout& layout, const StageCosts& costs, const ListRule& rule)
      : layout_(layout),
        costs_(costs),
        rule_(rule),
        stages_(static_cast<std::size_t>(layout.stages())) {
    const auto micros = static_cast<std::size_t>(layout.micro_batches);
    for (StageState& stage : stages_) {
      stage.forward_since.assign(micros, &stage == &stages_.front() ? 0 : never);
      stage.backward_since.assign(micros, never);
    }
    const layout::StageMap map = layout.map();
    for (Rank r = 0; r < layout.ranks; ++r) {
      RankState& rank = ranks_.emplace_back();
      rank.stages = map.stages_of(r);
      for (const Stage s : rank.stages) stages_[index(s)].rank = r;
      rank.row.reserve((rule.split ? 3 : 2) * micros * rank.stages.size());
      wake(r, 0);
    }
  }

  ListSchedule run() {
    while (!wakes_.empty()) {
      const auto [time, rank] = wakes_.top();
      wakes_.pop();
      if (time >= ranks_[index(rank)].free) decide(rank, time);
    }
    ListSchedule found{{layout_, {}}, 0};
    for (RankState& rank : ranks_) {
      check(rank.row.size() == rank.row.capacity(), "a list of ", rank.row.size(), " passes has ",
            rank.row.capacity());
      found.seconds = std::max(found.seconds, rank.free);
      found.program.ranks.push_back(std::move(rank.row));
    }
    return found;
  }

 private:
  struct StageState {
    Rank rank = 0;
    std::vector<Seconds> forward_since, backward_since;  ///< earliest start, by micro-batch
    Micro forward = 0, backward = 0, weight = 0;         ///< the next micro-batch of each pass
  };
  struct RankState {
    std::vector<Stage> stages;
    Seconds free = 0;
    int saved = 0;
    std::vector<Instr> row;
  };
  /// The preferred pass of one kind.
  struct Choice {
    Stage stage = -1;
    Seconds since = never;
    bool found() const { return stage >= 0; }
  };

  template <class N>
  static std::size_t index(N n) {
    return static_cast<std::size_t>(n);
  }
  void wake(Rank rank, Seconds time) { wakes_.emplace(time, rank); }

  /// If the pass can begin at `time` and the rule prefers it to the previous choice, makes it the
  /// choice. If the pass can only begin later, lowers `arrival` to the time at which it can begin.
  void consider(Choice& choice, Seconds& arrival, Stage stage, Seconds since, Seconds time) const {
    if (since > time)
      arrival = std::min(arrival, since);
    else if (!choice.found() || rule_.deepest_first || since < choice.since)
      choice = {stage, since};
  }

  void decide(Rank r, Seconds time) {
    RankState& rank = ranks_[index(r)];
    Choice forward, backward, weight;
    Seconds arrival = never;
    auto later_chunks = static_cast<int>(rank.stages.size());
    for (const Stage s : rank.stages) {
      const StageState& stage = stages_[index(s)];
      --later_chunks;  // a slot is reserved for each later chunk, so that no chunk waits forever
      if (stage.forward < layout_.micro_batches &&
          rank.saved < rule_.slots[index(r)] - later_chunks)
        consider(forward, arrival, s, stage.forward_since[index(stage.forward)], time);
      if (stage.backward < stage.forward)
        consider(backward, arrival, s, stage.backward_since[index(stage.backward)], time);
      if (rule_.split && stage.weight < stage.backward) weight = {s, time};
    }
    if (weight.found() && rule_.weights_at_once) return begin(Op::backward_weight, r, weight, time);
    if (forward.found() && (rule_.forward_first || !backward.found()))
      return begin(Op::forward, r, forward, time);
    if (backward.found())
      return begin(rule_.split ? Op::backward_input : Op::backward, r, backward, time);
    const bool waits =
        weight.found() &&
        arrival - time < rule_.patience * costs_.backward_weight[index(weight.stage)];
    if (weight.found() && !waits) return begin(Op::backward_weight, r, weight, time);
    if (arrival < never) wake(r, arrival);
  }

  void begin(Op op, Rank r, const Choice& choice, Seconds time) {
    RankState& rank = ranks_[index(r)];
    const Stage s = choice.stage;
    StageState& stage = stages_[index(s)];
    Micro micro = 0;
    if (op == Op::forward) {
      micro = stage.forward++;
      ++rank.saved;
      rank.free = time + costs_.forward[index(s)];
      if (s == layout_.last_stage())
        stage.backward_since[index(micro)] = rank.free;
      else
        arrive(s + 1, stages_[index(s) + 1].forward_since[index(micro)],
               rank.free + costs_.to_next[index(s)]);
    } else if (op == Op::backward_weight) {
      micro = stage.weight++;
      --rank.saved;
      rank.free = time + costs_.backward_weight[index(s)];
    } else {
      micro = stage.backward++;
      const bool whole = op == Op::backward;
      if (whole) --rank.saved;
      rank.free = time + (whole ? costs_.backward : costs_.backward_input)[index(s)];
      if (s > 0)
        arrive(s - 1, stages_[index(s) - 1].backward_since[index(micro)],
               rank.free + costs_.to_previous[index(s)]);
    }
    rank.row.push_back({op, s, micro});
    wake(r, rank.free);
  }

  void arrive(Stage stage, Seconds& since, Seconds time) {
    since = time;
    wake(stages_[index(stage)].rank, time);
  }

  const ProgramLayout& layout_;
  const StageCosts& costs_;
  const ListRule& rule_;
  std::vector<StageState> stages_;
  std::vector<RankState> ranks_;
  using Wake = std::tuple<Seconds, Rank>;
  std::priority_queue<Wake, std::vector<Wake>, std::greater<>> wakes_;
};

}  // namespace

StageCosts stage_costs(const ProgramLayout& layout, const Cost& cost) {
  StageCosts costs;
  for (Stage s = 0; s < layout.stages(); ++s) {
    const bool last = s == layout.last_stage();
    const Seconds sends = last ? 0 : cost({Op::send_activation, s, 0});
    const Seconds returns = s == 0 ? 0 : cost({Op::send_gradient, s, 0});
    costs.forward.push_back(cost({Op::forward, s, 0}) + sends);
    costs.backward.push_back(cost({Op::backward, s, 0}) + returns);
    costs.backward_input.push_back(cost({Op::backward_input, s, 0}) + returns);
    costs.backward_weight.push_back(cost({Op::backward_weight, s, 0}));
    costs.to_next.push_back(last ? 0 : cost({Op::receive_activation, s + 1, 0}));
    costs.to_previous.push_back(s == 0 ? 0 : cost({Op::receive_gradient, s - 1, 0}));
  }
  return costs;
}

ListSchedule list_schedule(const ProgramLayout& layout, const StageCosts& costs,
                           const ListRule& rule) {
  check(rule.slots.size() == static_cast<std::size_t>(layout.ranks), rule.slots.size(),
        " numbers of slots for ", layout.ranks, " ranks");
  for (const int slots : rule.slots)
    check(slots >= layout.chunks, slots, " slots for ", layout.chunks, " chunks");
  return Lists(layout, costs, rule).run();
}

}  // namespace trireme::schedule
