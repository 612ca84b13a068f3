// The named schedules: order of forward and backward passes of each pipeline rank, and of the
// forward passes of an evaluation.
#include <trireme/schedule/generate.hpp>

#include <trireme/base/check.hpp>
#include <trireme/schedule/generate_v.hpp>
#include <trireme/schedule/overlap.hpp>

#include <algorithm>

namespace trireme::schedule {
namespace {

using Row = std::vector<Instr>;

/// A row of 1F1B or GPipe. GPipe is 1F1B with a warm-up of all micro-batches; 1F1B's warm-up lasts
/// until the first backward pass can arrive.
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

/// Forward passes until the first gradient can arrive. With a shared vocabulary, the last stage
/// computes `more` of them while all ranks compute and sum their parts of its gradient.
int warmup_of(Rank rank, const ProgramLayout& layout, int more) {
  return std::min(layout.micro_batches,
                  layout.ranks - 1 - rank + (layout.shares_vocabulary ? more : 0));
}

/// The order in which a rank processes (chunk, micro-batch): p micro-batches of one chunk, the same
/// micro-batches of the next chunk, then the next p. m is rounded up to a multiple of p.
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

/// If m is not a multiple of p, the row is made for the next multiple without the micro-batches
/// beyond m. No remaining instruction depends on a removed one, so that the row cannot hang.
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

/// 1F1B in which rank r computes a weight half r micro-batches after its input half. Later ranks
/// have fewer micro-batches in flight and can delay more weight halves, so that every rank keeps at
/// most p. The remaining weight halves fill the wait for the last gradients.
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

Row row_of(ScheduleKind kind, Rank rank, const ProgramLayout& layout) {
  const int m = layout.micro_batches;
  switch (kind) {
    case ScheduleKind::gpipe:
      return alternating_row(rank, m, m);
    case ScheduleKind::one_forward_one_backward:
      return alternating_row(rank, m, warmup_of(rank, layout, 2));
    case ScheduleKind::interleaved:
      return interleaved_row(rank, layout);
    case ScheduleKind::zb_h1:
      return zero_bubble_row(rank, layout);
    case ScheduleKind::zb_v:
    case ScheduleKind::v_half:
    case ScheduleKind::v_min:
    case ScheduleKind::two_bw:
    case ScheduleKind::automatic:
    case ScheduleKind::file:
      break;
  }
  check(false, "schedule ", name_of(kind), " is not a named one");
  return {};
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
  if (is_v_schedule(kind)) return generate_v(kind, layout);
  check((kind == ScheduleKind::interleaved) == (layout.chunks >= 2), "schedule ", name_of(kind),
        " with ", layout.chunks, " chunks; interleaved needs 2 or more, every other schedule 1");
  check(layout.placement == StagePlacement::round_robin, "schedule ", name_of(kind),
        " does not place its stages in a V");
  if (kind == ScheduleKind::two_bw) return generate_overlapped(layout);
  Program program{layout, {}};
  for (Rank r = 0; r < layout.ranks; ++r) program.ranks.push_back(row_of(kind, r, layout));
  return program;
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

}  // namespace trireme::schedule
