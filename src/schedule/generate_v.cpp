// Schedules of two chunks in a V. A repeated block gives the order of forward passes and input
// halves; a simulation with unit costs places the weight halves.
#include <trireme/schedule/generate_v.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <tuple>

namespace trireme::schedule {
namespace {

using Row = std::vector<Instr>;

constexpr int period = 6;  // passes and halves of a micro-batch on a rank

/// Times between passes of neighbouring ranks, and between the end of one leg of the V and the
/// start of the next: down with the first chunk, up with the second, and the input halves back.
struct Block {
  int down;
  int up;
  std::array<int, 3> turns{1, 1, 1};  ///< down → up, up → input halves down, these → up
};

/// With these turns, no two passes of a rank have the same time modulo the period, except for
/// forward passes of v-half on an even number of ranks, where the first chunk's pass precedes.
Block block_of(ScheduleKind kind, int ranks) {
  if (kind == ScheduleKind::zb_v) return {1, 5};
  if (kind == ScheduleKind::v_half) return {1, 2, {ranks % 2 == 0 ? 3 : 1, 1, 1}};
  return ranks % 3 == 0 ? Block{1, 1, {3, 1, 3}} : Block{1, 1};
}

/// Forward passes and input halves of a rank in the order of the repeated block.
Row passes_of(Rank rank, const Block& block, const ProgramLayout& layout) {
  const int last = layout.ranks - 1;
  const int up = block.down * last + block.turns[0];
  const int back_down = up + block.up * last + block.turns[1];
  const int back_up = back_down + block.down * last + block.turns[2];
  struct Pass {
    int time;
    Instr instr;
  };
  const Stage first = layout.stage_of(rank, 0), second = layout.stage_of(rank, 1);
  std::vector<Pass> passes;
  passes.reserve(4 * static_cast<std::size_t>(layout.micro_batches));
  for (Micro m = 0; m < layout.micro_batches; ++m) {
    const int t = period * m;
    passes.push_back({t + block.down * rank, {Op::forward, first, m}});
    passes.push_back({t + up + block.up * (last - rank), {Op::forward, second, m}});
    passes.push_back({t + back_down + block.down * rank, {Op::backward_input, second, m}});
    passes.push_back({t + back_up + block.up * (last - rank), {Op::backward_input, first, m}});
  }
  std::ranges::sort(passes, {}, [](const Pass& p) {
    return std::tuple(p.time, p.instr.op == Op::forward, p.instr.stage);
  });
  Row row;
  for (const Pass& pass : passes) row.push_back(pass.instr);
  return row;
}

/// Simulates the passes in steps of one unit and adds the weight halves.
class Filler {
 public:
  Filler(const ProgramLayout& layout, std::vector<Row> passes, int slots)
      : layout_(layout),
        slots_(slots),
        ranks_(static_cast<std::size_t>(layout.ranks)),
        end_(2 * static_cast<std::size_t>(layout.stages() * layout.micro_batches),
             std::numeric_limits<int>::max()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r].passes = std::move(passes[r]);
  }

  Program run() {
    const auto all = static_cast<std::size_t>(period * layout_.micro_batches);
    const auto done = [all](const RankState& rank) { return rank.row.size() == all; };
    const int latest = period * (layout_.micro_batches + 2 * layout_.ranks) * 2;
    for (int time = 0; !std::ranges::all_of(ranks_, done); ++time) {
      check(time < latest, "the schedule in a V of ", layout_.ranks, " ranks and ",
            layout_.micro_batches, " micro-batches does not end");
      for (RankState& rank : ranks_) step(rank, time);
    }
    Program program{layout_, {}};
    for (RankState& rank : ranks_) program.ranks.push_back(std::move(rank.row));
    return program;
  }

 private:
  struct RankState {
    Row passes;
    std::size_t next = 0;
    std::deque<Instr> weights;  ///< weight halves that can run
    int saved = 0;
    Row row;
  };

  int& end_of(Op op, Stage stage, Micro micro) {
    const int pass = 2 * (stage * layout_.micro_batches + micro) + (op == Op::forward ? 0 : 1);
    return end_[static_cast<std::size_t>(pass)];
  }

  bool ready(const Instr& i, int time) {
    if (i.op == Op::forward)
      return i.stage == 0 || end_of(Op::forward, i.stage - 1, i.micro) <= time;
    if (i.stage == layout_.last_stage()) return end_of(Op::forward, i.stage, i.micro) <= time;
    return end_of(Op::backward_input, i.stage + 1, i.micro) <= time;
  }

  void step(RankState& rank, int time) {
    if (rank.next < rank.passes.size()) {
      const Instr& pass = rank.passes[rank.next];
      const bool fits = pass.op != Op::forward || rank.saved < slots_;
      if (fits && ready(pass, time)) {
        end_of(pass.op, pass.stage, pass.micro) = time + 1;
        if (pass.op == Op::forward)
          ++rank.saved;
        else
          rank.weights.push_back({Op::backward_weight, pass.stage, pass.micro});
        rank.row.push_back(pass);
        ++rank.next;
        return;
      }
    }
    if (rank.weights.empty()) return;
    rank.row.push_back(rank.weights.front());
    rank.weights.pop_front();
    --rank.saved;
  }

  const ProgramLayout& layout_;
  const int slots_;
  std::vector<RankState> ranks_;
  std::vector<int> end_;  ///< of each forward pass and input half
};

}  // namespace

int v_slots(ScheduleKind kind, int ranks) {
  if (kind == ScheduleKind::zb_v) return 2 * ranks;
  return kind == ScheduleKind::v_half ? 2 * ((ranks + 2) / 2) : 2 * ((ranks + 4) / 3);
}

Program generate_v(ScheduleKind kind, const ProgramLayout& layout) {
  check(is_v_schedule(kind) && layout.placement == StagePlacement::v && layout.chunks == 2,
        "schedule ", name_of(kind), " of ", layout.chunks, " chunks is not one of 2 chunks in a V");
  std::vector<Row> passes;
  for (Rank r = 0; r < layout.ranks; ++r)
    passes.push_back(passes_of(r, block_of(kind, layout.ranks), layout));
  return Filler(layout, std::move(passes), v_slots(kind, layout.ranks)).run();
}

}  // namespace trireme::schedule
