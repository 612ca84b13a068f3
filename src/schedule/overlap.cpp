// Programs of several steps without a flush: passes, reductions and updates; the division of a row
// into steps; and the time of the repeated step.
#include <trireme/schedule/overlap.hpp>

#include <trireme/base/check.hpp>
#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/lower.hpp>

#include <algorithm>

namespace trireme::schedule {
namespace {

using Row = std::vector<Instr>;

bool is_backward(const Instr& instr) {
  return instr.op == Op::backward;
}

/// Adds reductions, norms and updates to a row. Slot j begins after backward pass j − 1 of a step.
class Updates {
 public:
  Updates(const ProgramLayout& layout, Rank rank)
      : layout_(layout),
        rank_(rank),
        ahead_(layout.ranks - 1 - rank),
        lag_(ends_table_sum() ? 2 * rank / 3 + 1 : (2 * rank + 2) / 3),
        slack_(layout.micro_batches - layout.ranks + 1) {}

  Row add_to(const Row& row) {
    out_.reserve(row.size() + 6 * static_cast<std::size_t>(layout_.steps));
    for (const Instr& instr : row) {
      if (is_compute(instr.op)) before_pass(instr);
      out_.push_back(instr);
      if (is_backward(instr)) ++backward_;
    }
    const int last = layout_.steps - 1;
    update(last - 1);
    reduce(last);
    begin_norm(last);
    update(last);
    return std::move(out_);
  }

 private:
  /// Slots in which the norm and the reduction begin: at about the same time on all ranks if a
  /// backward pass takes two thirds of a slot.
  int norm_slot() const { return 5 * slack_ / 8 + lag_; }
  int reduction_slot() const { return slack_ / 2 + std::max(0, lag_ - 1); }

  void before_pass(const Instr& instr) {
    const int m = layout_.micro_batches;
    const int slot = backward_ % m;
    const int before = backward_ / m - 1;  // step whose gradients are complete
    if (ahead_ == 0 && slot == 0 && instr.op == Op::forward) update(before - 1);
    if (is_first_of_slot() && before >= 0) {
      if (slot == reduction_slot()) reduce(before);
      if (slot == norm_slot()) begin_norm(before);
    }
    slot_seen_ = backward_;
    const bool begins_step = instr.op == Op::forward && instr.micro % m == 0;
    if (ahead_ > 0 && begins_step) update(layout_.step_of(instr.micro) - 2);
  }
  bool ends_table_sum() const { return layout_.tied && rank_ > 0 && ahead_ == 0; }
  bool is_first_of_slot() const { return slot_seen_ != backward_; }

  bool sums_table() const { return layout_.tied && layout_.holds_table(rank_); }
  Stage end_of_table() const { return rank_ == layout_.rank_of(0) ? 0 : layout_.last_stage(); }
  void reduce(int step) {
    out_.push_back({Op::reduce_gradients, rank_, step});
    if (sums_table()) out_.push_back({Op::begin_tied, end_of_table(), step});
  }
  void begin_norm(int step) {
    if (sums_table()) out_.push_back({Op::reduce_tied, end_of_table(), step});
    out_.push_back({Op::begin_norm, rank_, step});
  }
  void update(int step) {
    if (step < 0) return;
    out_.push_back({Op::gradient_norm, rank_, step});
    out_.push_back({Op::optimizer_step, rank_, step});
  }

  const ProgramLayout& layout_;
  Rank rank_;
  int ahead_;  ///< number of forward passes that the rank runs ahead
  int lag_;    ///< number of slots by which rank 0 is later
  int slack_;
  int backward_ = 0;    ///< number of backward passes so far
  int slot_seen_ = -1;  ///< backward_ at the previous pass
  Row out_;
};

Row row_of(Rank rank, const ProgramLayout& layout) {
  const int ahead = layout.ranks - 1 - rank;
  Row row;
  row.reserve(2 * static_cast<std::size_t>(layout.passes()));
  for (Micro i = 0; i < ahead; ++i) row.push_back({Op::forward, rank, i});
  for (Micro i = 0; i < layout.passes(); ++i) {
    if (i + ahead < layout.passes()) row.push_back({Op::forward, rank, i + ahead});
    row.push_back({Op::backward, rank, i});
  }
  return row;
}

}  // namespace

Program generate_overlapped(const ProgramLayout& layout, int steps) {
  check(layout.chunks == 1, "2bw has 1 chunk, not ", layout.chunks);
  check(layout.micro_batches >= layout.ranks, "2bw on ", layout.ranks, " pipeline ranks has ",
        layout.micro_batches, " micro-batches, expected at least ", layout.ranks);
  Program program{layout, {}};
  program.layout.steps = steps;
  for (Rank r = 0; r < layout.ranks; ++r) program.ranks.push_back(row_of(r, program.layout));
  return program;
}

void add_overlapped_updates(Program& program) {
  for (std::size_t r = 0; r < program.ranks.size(); ++r)
    program.ranks[r] = Updates(program.layout, static_cast<Rank>(r)).add_to(program.ranks[r]);
}

std::vector<std::size_t> ends_of_steps(std::span<const Instr> row, const ProgramLayout& layout) {
  std::vector<std::size_t> ends;
  int backward = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const int step = static_cast<int>(ends.size());
    const bool complete = backward == (step + 1) * layout.micro_batches;
    const bool of_next =
        is_compute(row[i].op) || (row[i].op == Op::reduce_gradients && row[i].micro == step);
    if (complete && of_next && step + 1 < layout.steps) ends.push_back(i);
    if (is_backward(row[i])) ++backward;
  }
  ends.push_back(row.size());
  return ends;
}

Instr seen_from(const Instr& instr, int step, const ProgramLayout& layout) {
  const bool of_pass = instr.op < Op::reduce_gradients;
  Instr seen = instr;
  seen.micro -= step * (of_pass ? layout.micro_batches : 1);
  return seen;
}

Program single_step(const Program& overlapped) {
  ProgramLayout layout = overlapped.layout;
  layout.steps = 1;
  Program program = generate(ScheduleKind::one_forward_one_backward, layout);
  lower(program, {overlapped.layout.tied, overlapped.layout.transport});
  return program;
}

SteadyStep steady_step(const Timeline& timeline) {
  const ProgramLayout& layout = timeline.layout;
  const auto ranks = static_cast<std::size_t>(layout.ranks);
  constexpr int repeated = 1;
  std::vector<std::vector<Event>> passes(ranks);
  for (const Event& e : timeline.events)
    if (is_compute(e.instr.op)) passes.at(static_cast<std::size_t>(e.rank)).push_back(e);
  SteadyStep found;
  Seconds all = 0, busy = 0;
  for (auto& mine : passes) {
    std::ranges::sort(mine, {}, &Event::position);
    Seconds begin = 0, end = 0;
    int backward = 0;
    for (const Event& e : mine) {
      if (backward >= repeated * layout.micro_batches &&
          backward < (repeated + 1) * layout.micro_batches)
        busy += e.end - e.begin;
      if (!is_backward(e.instr)) continue;
      backward = e.instr.micro + 1;
      if (backward == repeated * layout.micro_batches) begin = e.end;
      if (backward == (repeated + 1) * layout.micro_batches) end = e.end;
    }
    if (end <= begin) return {};
    found.seconds = std::max(found.seconds, end - begin);
    all += end - begin;
  }
  if (all > 0) found.idle_share = (all - busy) / all;
  return found;
}

}  // namespace trireme::schedule
