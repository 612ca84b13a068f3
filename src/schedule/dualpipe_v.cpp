// DualPipeV: the half of DualPipe's bidirectional pipeline, folded into a V (DeepSeek-AI 2025,
// github.com/deepseek-ai/DualPipe; Sea AI Lab 2025, "DualPipe could be better without the Dual").
// A forward pass of one chunk and a backward pass of the other form a pair, whose messages may
// overlap with passes; here the pair's passes run one after the other.
#include <trireme/schedule/program.hpp>
#include <trireme/schedule/schedules.hpp>

#include <algorithm>
#include <array>
#include <deque>

namespace trireme::schedule {
namespace {

constexpr int descending = 0,
              ascending = 1;  ///< chunks: the stages from rank 0 to p − 1, and those back

/// Writes a rank's row. Each pass takes the next micro-batch of its chunk.
class DualPipeRow {
 public:
  DualPipeRow(const ProgramLayout& layout, Rank rank)
      : micro_batches_(layout.micro_batches),
        stages_{layout.stage_of(rank, descending), layout.stage_of(rank, ascending)} {}

  void forward(int chunk) { add({Op::forward, stage(chunk), next(forwards_, chunk)}); }
  void backward(int chunk) { add({Op::backward, stage(chunk), next(backwards_, chunk)}); }
  /// The input half; its weight half is postponed.
  void input(int chunk) {
    const Micro micro = next(backwards_, chunk);
    add({Op::backward_input, stage(chunk), micro});
    postponed_.push_back({Op::backward_weight, stage(chunk), micro});
  }
  /// The weight half that is postponed for the longest time.
  void weight() {
    add(postponed_.front());
    postponed_.pop_front();
  }
  bool has_postponed() const { return !postponed_.empty(); }
  std::vector<Instr> take() { return std::move(row_); }

 private:
  Stage stage(int chunk) const { return stages_[static_cast<std::size_t>(chunk)]; }
  static Micro next(std::array<Micro, 2>& counts, int chunk) {
    return counts[static_cast<std::size_t>(chunk)]++;
  }
  void add(const Instr& instr) {
    if (instr.micro < micro_batches_) row_.push_back(instr);
  }

  int micro_batches_;
  std::array<Stage, 2> stages_;
  std::array<Micro, 2> forwards_{};
  std::array<Micro, 2> backwards_{};
  std::deque<Instr> postponed_;
  std::vector<Instr> row_;
};

/// The eight phases of a rank. They need m ≥ 2 p micro-batches; of a shorter step, the phases of 2
/// p micro-batches lack the passes of the others.
std::vector<Instr> row_of_phases(const ProgramLayout& layout, Rank rank) {
  const int after = layout.ranks - 1 - rank;  // number of later ranks
  const int turns = rank + 1;
  const int m = std::max(layout.micro_batches, 2 * layout.ranks);
  DualPipeRow row(layout, rank);
  const auto repeat = [](int times, const auto& passes) {
    for (int i = 0; i < times; ++i) passes(i);
  };
  repeat(2 * after, [&](int) { row.forward(descending); });
  repeat(turns, [&](int) {
    row.forward(descending);
    row.forward(ascending);
  });
  repeat(after, [&](int) {
    row.input(ascending);
    row.weight();
    row.forward(ascending);
  });
  repeat(m - 2 * layout.ranks + turns, [&](int) {
    row.forward(descending);
    row.backward(ascending);
    row.forward(ascending);
    row.backward(descending);
  });
  repeat(after, [&](int) {
    row.backward(ascending);
    row.forward(ascending);
    row.backward(descending);
  });
  // The second half of these backward passes is split.
  repeat(2 * turns, [&](int i) {
    const int chunk = i % 2 == 0 ? ascending : descending;
    if (i < turns)
      row.backward(chunk);
    else
      row.input(chunk);
  });
  repeat(after, [&](int) {
    row.weight();
    row.input(descending);
  });
  while (row.has_postponed()) row.weight();
  return row.take();
}

}  // namespace

Program dualpipe_v_program(const ProgramLayout& layout) {
  Program program{layout, {}};
  for (Rank r = 0; r < layout.ranks; ++r) program.ranks.push_back(row_of_phases(layout, r));
  return program;
}

}  // namespace trireme::schedule
