// Counts and times of programs of many micro-batches, from two programs of few micro-batches.
#include <trireme/schedule/repetition.hpp>

#include <trireme/base/check.hpp>
#include <trireme/schedule/generate.hpp>

#include <algorithm>
#include <map>
#include <tuple>

namespace trireme::schedule {
namespace {

constexpr std::size_t pass_ops = 5;  ///< forward … backward_weight; see is_pass()

Program program_of(ScheduleKind kind, ProgramLayout layout, int micro_batches) {
  layout.micro_batches = micro_batches;
  return generate(kind, layout);
}

std::vector<RowCounts> count_rows(const Program& program) {
  std::vector<RowCounts> counts;
  for (const auto& row : program.ranks) counts.push_back(count_row(row));
  return counts;
}

bool is_forward(Op op) {
  return op == Op::forward;
}

/// A pass that sends a message to another stage: a forward pass, or one that finds the gradient of
/// its input.
bool has_message(const Instr& i, const ProgramLayout& layout) {
  if (is_forward(i.op)) return i.stage < layout.last_stage();
  return i.op != Op::backward_weight && i.stage > 0;
}

/// The stage whose message a pass needs; -1 if it needs none.
Stage source_stage(const Instr& i, const ProgramLayout& layout) {
  if (is_forward(i.op)) return i.stage - 1;
  return i.op != Op::backward_weight && i.stage < layout.last_stage() ? i.stage + 1 : -1;
}

/// Durations of a pass of a stage.
struct Durations {
  Seconds pass = 0;
  Seconds send = 0;     ///< start of its message
  Seconds receive = 0;  ///< transfer of its input
};

Durations durations_of(const Instr& i, const Cost& cost, const ProgramLayout& layout) {
  Durations d;
  d.pass = cost(i);
  if (has_message(i, layout))
    d.send = cost({is_forward(i.op) ? Op::send_activation : Op::send_gradient, i.stage, i.micro});
  if (source_stage(i, layout) >= 0)
    d.receive =
        cost({is_forward(i.op) ? Op::receive_activation : Op::receive_gradient, i.stage, i.micro});
  return d;
}

/// Index of an operation of a stage.
std::uint32_t index_of(Op op, Stage stage) {
  return static_cast<std::uint32_t>(static_cast<std::size_t>(stage) * pass_ops +
                                    static_cast<std::size_t>(op));
}

}  // namespace

ShortSteps::ShortSteps(const ProgramLayout& layout) {
  const int m = layout.micro_batches, p = layout.ranks;
  few = more = m;
  if (m < 4 * p) return;
  few = 2 * p + m % p;
  more = few + p;
  repeats = static_cast<double>((m - few) / p);
}

RowCounts count_row(std::span<const Instr> row) {
  RowCounts counts;
  int saved = 0;
  Op before = Op::backward_weight;  // the direction of the last pass; none at first
  for (const Instr& i : row) {
    if (is_forward(i.op)) counts.slots = std::max(counts.slots, ++saved);
    if (i.op == Op::backward || i.op == Op::backward_weight) --saved;
    if (i.op == Op::backward_weight) continue;
    counts.splits_backward |= i.op == Op::backward_input;
    const Op direction = is_forward(i.op) ? Op::forward : Op::backward;
    if (direction == before) ++(is_forward(i.op) ? counts.forward_again : counts.backward_again);
    before = direction;
  }
  return counts;
}

const std::vector<RowCounts>& row_counts(ScheduleKind kind, const ProgramLayout& layout) {
  using Key = std::tuple<ScheduleKind, int, int, int, StagePlacement>;
  thread_local std::map<Key, std::vector<RowCounts>> known;
  const auto [found, is_new] = known.try_emplace(
      {kind, layout.ranks, layout.micro_batches, layout.chunks, layout.placement});
  std::vector<RowCounts>& counts = found->second;
  if (!is_new) return counts;
  const ShortSteps steps(layout);
  if (steps.repeats == 0) return counts = count_rows(program_of(kind, layout, steps.few));
  const auto of = [&](int micro_batches) -> const std::vector<RowCounts>& {
    ProgramLayout shorter = layout;
    shorter.micro_batches = micro_batches;
    return row_counts(kind, shorter);
  };
  counts = of(steps.few);
  const std::vector<RowCounts>& more = of(steps.more);
  for (std::size_t r = 0; r < counts.size(); ++r)
    for (int RowCounts::*member :
         {&RowCounts::slots, &RowCounts::forward_again, &RowCounts::backward_again})
      counts[r].*member =
          static_cast<int>(steps.extended(counts[r].*member, more[r].*member) + 0.5);
  return counts;
}

PassOrder::PassOrder(const Program& program)
    : layout_(program.layout), step_ends_(program.ranks.size()) {
  const auto micros = static_cast<std::size_t>(layout_.passes());
  const auto place = [&](Op op, Stage stage, Micro micro) {
    return (2 * static_cast<std::size_t>(stage) + (is_forward(op) ? 0 : 1)) * micros +
           static_cast<std::size_t>(micro);
  };
  // Index of each pass that sends a message; -1 until it is in the order.
  std::vector<std::int32_t> known(2 * static_cast<std::size_t>(layout_.stages()) * micros, -1);
  std::size_t all = 0;
  for (const auto& row : program.ranks) all += row.size();
  passes_.reserve(all);
  std::vector<std::size_t> next(program.ranks.size(), 0);
  for (bool found = true; found;) {
    found = false;
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      const auto& row = program.ranks[r];
      for (; next[r] < row.size(); ++next[r], found = true) {
        const Instr& i = row[next[r]];
        Pass pass;
        pass.rank = static_cast<std::uint32_t>(r);
        pass.times = index_of(i.op, i.stage);
        if (const Stage source = source_stage(i, layout_); source >= 0) {
          pass.source = known[place(i.op, source, i.micro)];
          if (pass.source < 0) break;
        }
        const auto index = static_cast<std::int32_t>(passes_.size());
        if (i.op != Op::backward_weight) known[place(i.op, i.stage, i.micro)] = index;
        if (i.op == Op::backward && (i.micro + 1) % layout_.micro_batches == 0)
          step_ends_[r].push_back(index);
        passes_.push_back(pass);
      }
    }
  }
  check(passes_.size() == all, "a program of ", all, " passes stops after ", passes_.size());
}

RankTimes PassOrder::times(const Cost& cost) const {
  std::vector<Durations> durations(static_cast<std::size_t>(layout_.stages()) * pass_ops);
  for (Stage s = 0; s < layout_.stages(); ++s)
    for (const Op op : {Op::forward, Op::backward, Op::backward_input, Op::backward_weight})
      durations[index_of(op, s)] = durations_of({op, s, 0}, cost, layout_);
  struct RankTime {
    Seconds posted = 0;  ///< when the receive for the next pass was posted
    Seconds free = 0;
  };
  std::vector<RankTime> ranks(static_cast<std::size_t>(layout_.ranks));
  std::vector<Seconds> end(passes_.size());
  RankTimes found{std::vector<Seconds>(ranks.size(), 0), std::vector<Seconds>(ranks.size(), 0)};
  for (std::size_t i = 0; i < passes_.size(); ++i) {
    const Pass& pass = passes_[i];
    const Durations& d = durations[pass.times];
    RankTime& rank = ranks[pass.rank];
    Seconds begin = rank.free;
    if (pass.source >= 0)
      begin = std::max(
          begin, std::max(rank.posted, end[static_cast<std::size_t>(pass.source)]) + d.receive);
    rank.posted = rank.free;
    end[i] = begin + d.pass;
    rank.free = end[i] + d.send;
    found.end[pass.rank] = end[i];
    found.busy[pass.rank] += d.pass + d.send;
  }
  if (!layout_.overlaps_steps()) return found;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    found.busy[r] /= layout_.steps;
    found.end[r] = end[static_cast<std::size_t>(step_ends_[r].at(1))] -
                   end[static_cast<std::size_t>(step_ends_[r].at(0))];
  }
  return found;
}

RepeatedPasses::RepeatedPasses(ScheduleKind kind, const ProgramLayout& layout)
    : steps_(layout), few_(program_of(kind, layout, steps_.few)) {
  if (steps_.repeats > 0) more_.emplace(program_of(kind, layout, steps_.more));
}

std::vector<Seconds> RepeatedPasses::ends(const Cost& cost) const {
  const RankTimes few = few_.times(cost);
  if (!more_) return few.end;
  RankTimes more = more_->times(cost);
  Seconds work = 0;
  for (std::size_t r = 0; r < few.end.size(); ++r)
    work = std::max(work, more.busy[r] - few.busy[r]);
  for (std::size_t r = 0; r < few.end.size(); ++r)
    more.end[r] += (steps_.repeats - 1) * std::max(work, more.end[r] - few.end[r]);
  return std::move(more.end);
}

}  // namespace trireme::schedule
