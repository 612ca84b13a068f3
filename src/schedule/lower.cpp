// Lowers a program: adds transfers by independent channels or ordered groups, and to training
// programs also reductions and the update.
#include <trireme/schedule/lower.hpp>

#include <trireme/base/check.hpp>
#include <trireme/schedule/machine.hpp>
#include <trireme/schedule/overlap.hpp>
#include <trireme/schedule/repetition.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>

namespace trireme::schedule {
namespace {

using Kind = Value::Kind;
using Row = std::vector<Instr>;

/// Finds the sends that must follow `instr` and the receives that must be posted before it.
class Transfers {
 public:
  explicit Transfers(const ProgramLayout& layout) : layout_(layout) {}

  void find(const Instr& instr) {
    sends.clear();
    receives.clear();
    effects(instr, layout_, effects_);
    for (const Value& v : effects_.writes) {
      if (v.kind == Kind::output && v.stage + 1 < layout_.stages())
        sends.push_back({Op::send_activation, v.stage, v.micro});
      if (v.kind == Kind::input_gradient) sends.push_back({Op::send_gradient, v.stage, v.micro});
    }
    for (const Value& v : effects_.reads) {
      if (v.kind == Kind::posted_activation)
        receives.push_back({Op::receive_activation, v.stage, v.micro});
      if (v.kind == Kind::posted_gradient)
        receives.push_back({Op::receive_gradient, v.stage, v.micro});
    }
  }

  Row sends;
  Row receives;

 private:
  const ProgramLayout& layout_;
  Effects effects_;
};

std::size_t channel_of(const Instr& receive) {
  return 2 * static_cast<std::size_t>(receive.stage) + (receive.op == Op::receive_gradient ? 1 : 0);
}

/// Posts the receives of each channel in the order of the sends.
class Poster {
 public:
  explicit Poster(const Program& program)
      : order_(2 * static_cast<std::size_t>(program.layout.stages())),
        next_(order_.size(), 0),
        posted_(order_.size(),
                std::vector<bool>(static_cast<std::size_t>(program.layout.passes()))) {
    Transfers transfers(program.layout);
    for (const Row& row : program.ranks)
      for (const Instr& instr : row) {
        transfers.find(instr);
        for (const Instr& send : transfers.sends) {
          const Instr receive = partner_of(send);
          order_[channel_of(receive)].push_back(receive.micro);
        }
      }
  }

  /// Appends the receive to `row`, unless it is posted, after the earlier receives of its channel.
  void post(const Instr& receive, Row& row) {
    const std::size_t channel = channel_of(receive);
    const auto micro = static_cast<std::size_t>(receive.micro);
    while (!posted_[channel][micro]) {
      Instr next = receive;  // posted even if there is no send; validate() reports this mistake
      if (next_[channel] < order_[channel].size()) next.micro = order_[channel][next_[channel]++];
      posted_[channel][static_cast<std::size_t>(next.micro)] = true;
      row.push_back(next);
    }
  }

 private:
  std::vector<std::vector<Micro>> order_;  ///< micro-batches of the sends, by channel
  std::vector<std::size_t> next_;
  std::vector<std::vector<bool>> posted_;
};

Program with_channels(const Program& program) {
  Program out{program.layout, {}};
  out.layout.transport = Transport::independent_channels;
  Transfers transfers(program.layout);
  Poster poster(program);
  for (const Row& row : program.ranks) {
    Row& lowered = out.ranks.emplace_back();
    lowered.reserve(3 * row.size() + 8);
    const auto post_for = [&](std::size_t i) {
      if (i >= row.size()) return;
      transfers.find(row[i]);
      for (const Instr& receive : transfers.receives) poster.post(receive, lowered);
    };
    // Instructions other than passes are too short to cover a transfer.
    const auto post_from = [&](std::size_t i) {
      while (i < row.size() && !is_pass(row[i].op)) ++i;
      post_for(i);
    };
    post_from(0);
    for (std::size_t i = 0; i < row.size(); ++i) {
      post_from(i + 1);
      lowered.push_back(row[i]);
      transfers.find(row[i]);
      lowered.insert(lowered.end(), transfers.sends.begin(), transfers.sends.end());
    }
  }
  return out;
}

/// Adds transfers by ordered groups in the order of a simulation with `cost`. `channels`: the
/// program by independent channels, which is returned if it cannot complete.
Program ordered_by(const Cost& cost, const Program& program, const Program& channels) {
  Program whole = channels;  // passes of later steps wait for updates
  if (whole.layout.overlaps_steps()) add_overlapped_updates(whole);
  // Costs are rounded to multiples of 1/1024, so that sums of costs are exact in every order. Each
  // pass takes at least 1/1024, so that no two passes of a rank end at the same time.
  Simulation simulation = simulate(whole, [&](const Instr& i) {
    return std::max(std::round(cost(i) * 1024), is_pass(i.op) ? 1.0 : 0.0) / 1024;
  });
  if (!simulation.mistakes.empty()) return channels;
  std::vector<Event> computed;
  computed.reserve(simulation.timeline.events.size() / 2);
  for (const Event& e : simulation.timeline.events)
    if (is_compute(e.instr.op) || is_shared(e.instr.op)) computed.push_back(e);
  std::stable_sort(computed.begin(), computed.end(),
                   [](const Event& a, const Event& b) { return a.end < b.end; });
  Program out{program.layout, std::vector<Row>(program.ranks.size())};
  for (std::size_t r = 0; r < out.ranks.size(); ++r)
    out.ranks[r].reserve(channels.ranks[r].size() + 8);
  const auto row_of = [&](Stage stage) -> Row& {
    return out.ranks[static_cast<std::size_t>(program.layout.rank_of(stage))];
  };
  std::vector<std::size_t> last_group(out.ranks.size(), computed.size());
  const auto add = [&](Instr transfer, std::size_t group) {
    const Rank r = program.layout.rank_of(transfer.stage);
    std::size_t& last = last_group[static_cast<std::size_t>(r)];
    transfer.opens_group = !program.layout.is_local(transfer) && last != group;
    if (transfer.opens_group) last = group;
    row_of(transfer.stage).push_back(transfer);
  };
  Transfers transfers(program.layout);
  for (std::size_t first = 0, end = 0; first < computed.size(); first = end) {
    while (end < computed.size() && computed[end].end == computed[first].end) ++end;
    for (std::size_t i = first; i < end; ++i)
      row_of(computed[i].instr.stage).push_back(computed[i].instr);
    for (const bool local : {true, false})  // local transfers belong to no group
      for (std::size_t i = first; i < end; ++i) {
        transfers.find(computed[i].instr);
        for (const Instr& send : transfers.sends) {
          if (program.layout.is_local(send) != local) continue;
          const Instr receive = partner_of(send);
          add(send, first);
          add(receive, first);
        }
      }
  }
  return out;
}

/// Time of the passes of a program by ordered groups; `never` if it cannot complete.
Seconds span_of(Program program, const Cost& cost) {
  program.layout.transport = Transport::ordered_groups;
  if (program.layout.overlaps_steps()) add_overlapped_updates(program);
  const Simulation simulation = simulate(program, cost);
  if (!simulation.mistakes.empty()) return never;
  return program.layout.overlaps_steps() ? steady_step(simulation.timeline).seconds
                                         : simulation.timeline.span();
}

/// The program without the micro-batches from `count` on.
Program first_micro_batches(const Program& program, int count) {
  Program shorter{program.layout, {}};
  shorter.layout.micro_batches = count;
  for (const Row& row : program.ranks)
    std::ranges::copy_if(row, std::back_inserter(shorter.ranks.emplace_back()),
                         [count](const Instr& i) { return i.micro < count; });
  return shorter;
}

/// Whether transfers should have the order of a simulation with `cost`: the order by unit_cost
/// takes over 1 % longer than independent channels, or the passes of a shared vocabulary were
/// placed by `cost`; and the order by `cost` takes less time. A long program is represented by
/// fewer micro-batches.
bool prefers(const Cost& cost, const Program& program) {
  const ShortSteps steps(program.layout);
  constexpr std::int64_t long_program = 1 << 12;  // passes in the same direction
  const std::int64_t passes = std::int64_t{program.layout.stages()} * program.layout.micro_batches;
  if (passes > long_program && steps.repeats > 0 && !program.layout.overlaps_steps())
    return prefers(cost, first_micro_batches(program, steps.few));
  const Program channels = with_channels(program);
  const Seconds by_unit = span_of(ordered_by(unit_cost, program, channels), cost);
  const auto is_late = [&] {
    return by_unit > 1.01 * std::ranges::max(PassOrder(program).times(cost).end);
  };
  return (program.layout.shares_vocabulary || is_late()) &&
         span_of(ordered_by(cost, program, channels), cost) < by_unit;
}

/// Adds transfers by ordered groups, in the better of two orders.
Program with_groups(const Program& program, const Cost& cost) {
  const bool by_cost = cost && program.layout.ranks > 1 && prefers(cost, program);
  return ordered_by(by_cost ? cost : unit_cost, program, with_channels(program));
}

/// Appends reductions, norm and update to each row. Stages are reduced in the order in which their
/// gradients are completed.
void add_update(Program& program) {
  const ProgramLayout& layout = program.layout;
  for (Rank r = 0; r < layout.ranks; ++r) {
    Row& row = program.ranks[static_cast<std::size_t>(r)];
    std::vector<Stage> stages;
    for (auto i = row.rbegin(); i != row.rend(); ++i) {
      const bool weights = i->op == Op::backward || i->op == Op::backward_weight;
      if (weights && std::find(stages.begin(), stages.end(), i->stage) == stages.end())
        stages.push_back(i->stage);
      if (static_cast<int>(stages.size()) == layout.chunks) break;
    }
    for (auto s = stages.rbegin(); s != stages.rend(); ++s)
      row.push_back({Op::reduce_gradients, *s, 0});
    if (layout.tied && layout.holds_table(r))
      row.push_back({Op::reduce_tied, r == layout.rank_of(0) ? 0 : layout.last_stage(), 0});
    row.push_back({Op::gradient_norm, layout.first_stage(r), 0});
    row.push_back({Op::optimizer_step, layout.first_stage(r), 0});
  }
}

bool evaluates(const Program& program) {
  const auto has_one = [](const Row& row) {
    return std::ranges::find(row, Op::evaluate, &Instr::op) != row.end();
  };
  return std::ranges::any_of(program.ranks, has_one);
}

}  // namespace

void lower(Program& program, const LowerOptions& options) {
  const ProgramLayout& layout = program.layout;
  check(static_cast<int>(program.ranks.size()) == layout.ranks, "the program has ",
        program.ranks.size(), " rows for ", layout.ranks, " ranks");
  for (std::size_t r = 0; r < program.ranks.size(); ++r)
    for (const Instr& i : program.ranks[r]) {
      const std::string what = misplaced(i, layout, static_cast<Rank>(r));
      check(what.empty() && (is_compute(i.op) || is_shared(i.op)), "rank ", r, ": ", i,
            " cannot be lowered: ", what.empty() ? "it is not a computation" : what);
    }
  const bool evaluation = evaluates(program);
  program = options.transport == Transport::ordered_groups ? with_groups(program, options.cost)
                                                           : with_channels(program);
  program.layout.transport = options.transport;
  if (evaluation) return;
  program.layout.tied = options.tied && !layout.shares_vocabulary;
  if (program.layout.overlaps_steps())
    add_overlapped_updates(program);
  else
    add_update(program);
}

}  // namespace trireme::schedule
