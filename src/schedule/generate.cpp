// The named schedules: the order of the forward and backward passes of each pipeline rank, also for
// stages in a V, and of the forward passes of an evaluation.
#include <trireme/schedule/generate.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/schedule/overlap.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <tuple>

namespace trireme::schedule {
namespace {

using Row = std::vector<Instr>;

/// A row of 1F1B or GPipe. GPipe is 1F1B with a warm-up of all micro-batches.
Row alternating_row(Rank rank, int micro_batches, int warmup) {
  Row row;
  row.reserve(2 * static_cast<std::size_t>(micro_batches));
  for (Micro i = 0; i < warmup; ++i) row.push_back({Op::forward, rank, i});
  for (Micro i = warmup; i < micro_batches; ++i) {
    row.push_back({Op::forward, rank, i});
    row.push_back({Op::backward, rank, i - warmup});
  }
  for (Micro i = micro_batches - warmup; i < micro_batches; ++i)
    row.push_back({Op::backward, rank, i});
  return row;
}

/// Number of forward passes of the warm-up, after which forward and backward passes alternate. A
/// shared vocabulary adds `more` forward passes.
int warmup_of(Rank rank, const ProgramLayout& layout, int more) {
  return std::min(layout.micro_batches,
                  layout.ranks - 1 - rank + (layout.shares_vocabulary ? more : 0));
}

/// The order in which a rank processes chunks and micro-batches: p micro-batches in one chunk after
/// the other, then the next p micro-batches. m is rounded up to a multiple of p.
class Rounds {
 public:
  explicit Rounds(const ProgramLayout& layout) : layout_(layout) {
    const int rounds = (layout.micro_batches + layout.ranks - 1) / layout.ranks;
    steps_ = rounds * layout.ranks * layout.chunks;
  }
  int steps() const { return steps_; }
  int chunk(int step) const { return step / layout_.ranks % layout_.chunks; }
  Micro micro(int step) const {
    return step / (layout_.ranks * layout_.chunks) * layout_.ranks + step % layout_.ranks;
  }

 private:
  const ProgramLayout& layout_;
  int steps_;
};

/// The row for m rounded up to a multiple of p, without the micro-batches from m on.
Row interleaved_row(Rank rank, const ProgramLayout& layout) {
  const int p = layout.ranks;
  const Rounds rounds(layout);
  Row row;
  row.reserve(2 * static_cast<std::size_t>(layout.micro_batches * layout.chunks));
  const auto add = [&](Op op, int chunk, Micro micro) {
    if (micro < layout.micro_batches) row.push_back({op, chunk * p + rank, micro});
  };
  const auto forward = [&](int k) { add(Op::forward, rounds.chunk(k), rounds.micro(k)); };
  const auto backward = [&](int k) {
    add(Op::backward, layout.chunks - 1 - rounds.chunk(k), rounds.micro(k));
  };
  const int steps = rounds.steps();
  const int warmup = std::min(steps, (p - 1 - rank) * 2 + (layout.chunks - 1) * p);
  for (int k = 0; k < warmup; ++k) forward(k);
  for (int k = warmup; k < steps; ++k) {
    forward(k);
    backward(k - warmup);
  }
  for (int k = steps - warmup; k < steps; ++k) backward(k);
  return row;
}

/// 1F1B in which rank r computes a weight half r micro-batches after its input half. Every rank
/// keeps at most p micro-batches, or p + 1 with a shared vocabulary.
Row zero_bubble_row(Rank rank, const ProgramLayout& layout) {
  const int m = layout.micro_batches;
  const int warmup = warmup_of(rank, layout, 1);
  Row row;
  row.reserve(3 * static_cast<std::size_t>(m));
  Micro weight = 0;
  const auto backward = [&](Micro i) {
    row.push_back({Op::backward_input, rank, i});
    if (i - weight >= rank) row.push_back({Op::backward_weight, rank, weight++});
  };
  for (Micro i = 0; i < warmup; ++i) row.push_back({Op::forward, rank, i});
  for (Micro i = warmup; i < m; ++i) {
    row.push_back({Op::forward, rank, i});
    backward(i - warmup);
  }
  for (Micro i = m - warmup; i < m; ++i) backward(i);
  while (weight < m) row.push_back({Op::backward_weight, rank, weight++});
  return row;
}

/// The program with the row that `row_of` gives for each rank.
template <class RowOf>
Program of_rows(const ProgramLayout& layout, const RowOf& row_of) {
  Program program{layout, {}};
  for (Rank r = 0; r < layout.ranks; ++r) program.ranks.push_back(row_of(r));
  return program;
}

/// Passes in the order in which they can begin, if a micro-batch starts every `chunks` units.
Row evaluation_in_v(Rank rank, const ProgramLayout& layout) {
  Row row;
  for (const Stage stage : layout.map().stages_of(rank))
    for (Micro m = 0; m < layout.micro_batches; ++m) row.push_back({Op::evaluate, stage, m});
  std::ranges::stable_sort(row, {},
                           [&layout](const Instr& i) { return layout.chunks * i.micro + i.stage; });
  return row;
}

void check_layout(const ProgramLayout& layout) {
  check(layout.ranks >= 1 && layout.micro_batches >= 1 && layout.chunks >= 1,
        "cannot generate a schedule of ", layout.ranks, " ranks, ", layout.micro_batches,
        " micro-batches and ", layout.chunks, " chunks; each must be 1 or more");
}

}  // namespace

Program generate(ScheduleKind kind, const ProgramLayout& layout) {
  check_layout(layout);
  const Schedule& schedule = schedule_of(kind);
  check(schedule.generate != nullptr, "schedule ", schedule.word, " is not a named one");
  check(schedule.accepts(layout.chunks), "schedule ", schedule.word, " with ", layout.chunks,
        " chunks; expected ", schedule.least_chunks, schedule.has_fixed_chunks() ? "" : " or more");
  check(layout.placement == schedule.placement, "schedule ", schedule.word,
        " does not place its stages as ", name_of(layout.placement));
  return schedule.generate(layout);
}

Program gpipe_program(const ProgramLayout& layout) {
  const int m = layout.micro_batches;
  return of_rows(layout, [m](Rank r) { return alternating_row(r, m, m); });
}

Program alternating_program(const ProgramLayout& layout) {
  return of_rows(layout, [&](Rank r) {
    return alternating_row(r, layout.micro_batches, warmup_of(r, layout, 2));
  });
}

Program interleaved_program(const ProgramLayout& layout) {
  return of_rows(layout, [&](Rank r) { return interleaved_row(r, layout); });
}

Program zb_h1_program(const ProgramLayout& layout) {
  return of_rows(layout, [&](Rank r) { return zero_bubble_row(r, layout); });
}

Program two_bw_program(const ProgramLayout& layout) {
  return generate_overlapped(layout);
}

Program generate_evaluation(const ProgramLayout& layout) {
  check_layout(layout);
  Program program{layout, {}};
  const Rounds rounds(layout);
  for (Rank r = 0; r < layout.ranks; ++r) {
    Row& row = program.ranks.emplace_back();
    if (layout.placement == StagePlacement::v) {
      row = evaluation_in_v(r, layout);
      continue;
    }
    for (int k = 0; k < rounds.steps(); ++k)
      if (rounds.micro(k) < layout.micro_batches)
        row.push_back({Op::evaluate, layout.stage_of(r, rounds.chunk(k)), rounds.micro(k)});
  }
  return program;
}

// Schedules of two chunks in a V. A repeated block gives the order of forward passes and input
// halves; a simulation with unit costs places the weight halves.

namespace {

using Row = std::vector<Instr>;

constexpr int period = 6;  // number of passes and halves of a micro-batch on a rank

/// A micro-batch goes down the V with the first chunk and up with the second chunk; then its input
/// halves go down and up. `down` and `up` are the times between the passes of neighbouring ranks,
/// `turns` the times between the last pass of one leg and the first pass of the next leg.
struct Block {
  int down;
  int up;
  std::array<int, 3> turns{1, 1, 1};  ///< forward down → up, up → input halves down, down → up
};

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
  std::vector<int> end_;  ///< end of each forward pass and input half
};

/// The program that repeats the block, with at most `slots` saved forward passes on a rank.
Program repeated(const Block& block, int slots, const ProgramLayout& layout) {
  std::vector<Row> passes;
  for (Rank r = 0; r < layout.ranks; ++r) passes.push_back(passes_of(r, block, layout));
  return Filler(layout, std::move(passes), slots).run();
}

}  // namespace

Program zb_v_program(const ProgramLayout& layout) {
  return repeated({1, 5}, 2 * layout.ranks, layout);
}

Program v_half_program(const ProgramLayout& layout) {
  const int p = layout.ranks;
  return repeated({1, 2, {p % 2 == 0 ? 3 : 1, 1, 1}}, 2 * ((p + 2) / 2), layout);
}

Program v_min_program(const ProgramLayout& layout) {
  const int p = layout.ranks;
  return repeated(p % 3 == 0 ? Block{1, 1, {3, 1, 3}} : Block{1, 1}, 2 * ((p + 4) / 3), layout);
}

// Ring attention, simulated with the work of each step, and its chart.

namespace {

double work_of(const layout::AttentionRing& ring, int rank, int step) {
  double pairs = 0;
  for (const layout::ChunkPair& pair : ring.pairs(rank, step))
    pairs += static_cast<double>(pair.seen);
  return pairs;
}

std::string title_of(const layout::AttentionRing& ring) {
  std::string title =
      text("ring of attention: ", ring.ranks, " context ranks, ", with_commas(ring.sequence),
           " tokens, ", ring.causal ? "causal" : "not causal");
  if (ring.window > 0) title += text(", window ", with_commas(ring.window));
  return title;
}

}  // namespace

std::vector<RingStep> simulate(const layout::AttentionRing& ring) {
  const auto ranks = static_cast<std::size_t>(ring.ranks);
  std::vector<RingStep> steps;
  std::vector<double> begins(ranks, 0), ends(ranks, 0);
  for (int step = 0; step < ring.ranks; ++step) {
    for (int rank = 0; rank < ring.ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      ends[r] = begins[r] + work_of(ring, rank, step);
      steps.push_back({rank, step, ring.owner(rank, step), begins[r], ends[r]});
    }
    const std::vector<double> sent = begins;
    for (std::size_t r = 0; r < ranks; ++r)
      begins[r] = std::max({ends[r], sent[(r + ranks - 1) % ranks], sent[(r + 1) % ranks]});
  }
  return steps;
}

double idle_share(const std::vector<RingStep>& steps) {
  double busy = 0, end = 0;
  int ranks = 0;
  for (const RingStep& s : steps) {
    busy += s.end - s.begin;
    end = std::max(end, s.end);
    ranks = std::max(ranks, s.rank + 1);
  }
  return end > 0 ? 1 - busy / (end * ranks) : 0;
}

Picture ring_picture(const layout::AttentionRing& ring) {
  const std::vector<RingStep> steps = simulate(ring);
  Picture picture;
  picture.title = title_of(ring);
  picture.remark = "each block of keys and values has its colour and the number of its rank";
  Panel panel;
  panel.line = text("forward pass: idle ", fixed(100 * idle_share(steps), 1), " %");
  panel.ranks = ring.ranks;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const RingStep& s = steps[i];
    panel.end = std::max(panel.end, s.end);
    const double part = s.owner / std::max(1.0, ring.ranks - 1.0);
    if (s.end > s.begin)
      panel.boxes.push_back({s.rank, s.begin, s.end, mix(colours::blue, colours::amber, part), i});
  }
  panel.words = [steps](std::size_t i) {
    const RingStep& s = steps[i];
    const std::string owner = text(s.owner);
    return BoxWords{{"K" + owner, owner, "K"},
                    owner,
                    text("rank ", s.rank, ", step ", s.step, ": keys and values of rank ", owner)};
  };
  panel.digits = text(ring.ranks - 1).size();
  panel.label_width = panel.digits + 1;
  picture.panels.push_back(std::move(panel));
  return picture;
}

}  // namespace trireme::schedule
