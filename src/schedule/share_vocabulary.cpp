// Inserts the passes of a shared vocabulary by list scheduling in virtual time. A free rank first
// takes instructions that other ranks wait for, then its next pass, and fills idle time with
// gradients of the output table.
#include <trireme/schedule/share_vocabulary.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <queue>
#include <tuple>

namespace trireme::schedule {
namespace {

using Row = std::vector<Instr>;

/// Time of a message in units of a forward pass.
constexpr double assumed_latency = 0.25;
/// If this many table gradients are due, one of them precedes the next pass.
constexpr int most_delayed = 2;

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

/// Messages of one kind among all ranks, by micro-batch.
class Messages {
 public:
  Messages(int ranks, int micro_batches)
      : ranks_(ranks), entered_(index(micro_batches)), arrived_(index(micro_batches), never) {}

  /// A rank begins the message of m. The last rank's call sets the arrival and returns true.
  bool begin(Micro m, Seconds time) {
    if (++entered_[index(m)] < ranks_) return false;
    arrived_[index(m)] = time;
    return true;
  }
  /// Whether the message of m has arrived; true for m < 0, which has no message.
  bool arrived(Micro m, Seconds time) const { return m < 0 || arrived_[index(m)] <= time; }

 private:
  int ranks_;
  std::vector<int> entered_;
  std::vector<Seconds> arrived_;
};

struct RankState {
  Row row;
  std::size_t position = 0;  ///< position in the rank's row of the given program
  Seconds free = 0;
  Micro forwards = 0;
  // The next micro-batch of each instruction.
  Micro look_up = 0, output = 0, logits = 0, combine = 0, table = 0, gradient = 0, rows = 0;
  std::vector<Seconds> input, output_gradient;  ///< arrivals from neighbouring ranks
};

class Inserter {
 public:
  Inserter(const Program& program, const Cost& cost)
      : program_(program),
        layout_(program.layout),
        cost_(cost),
        latency_(assumed_latency * cost({Op::forward, 0, 0})),
        last_(layout_.ranks - 1),
        trains_(program.ranks[0].empty() || program.ranks[0][0].op != Op::evaluate),
        looked_up_(layout_.ranks, layout_.micro_batches),
        outputs_(looked_up_),
        statistics_(looked_up_),
        gradients_(looked_up_),
        shared_(looked_up_),
        ranks_(index(layout_.ranks)) {
    for (RankState& rank : ranks_) {
      rank.input.assign(index(layout_.micro_batches), never);
      rank.output_gradient = rank.input;
    }
  }

  std::vector<Row> run() {
    wake_all(0);
    while (!wakes_.empty()) {
      const auto [time, r] = wakes_.top();
      wakes_.pop();
      RankState& rank = ranks_[index(r)];
      if (rank.free <= time && take_next(r, rank, time)) wake(rank.free, r);
    }
    std::vector<Row> rows;
    for (RankState& rank : ranks_) rows.push_back(std::move(rank.row));
    return rows;
  }

 private:
  void wake(Seconds time, Rank r) { wakes_.push({time, r}); }
  void wake_all(Seconds time) {
    for (Rank r = 0; r < layout_.ranks; ++r) wake(time, r);
  }

  /// Adds an instruction that begins at `begin`. Returns its end time.
  Seconds add(RankState& rank, Rank r, Op op, Micro m, Seconds begin) {
    const Instr& added = rank.row.emplace_back(Instr{op, layout_.first_stage(r), m});
    rank.free = begin + (is_compute(op) ? cost_(added) : 0);
    return rank.free;
  }
  void share(Messages& messages, Op op, Rank r, Micro m, Seconds begin) {
    const Seconds end = add(ranks_[index(r)], r, op, m, begin);
    if (messages.begin(m, end + latency_)) wake_all(end + latency_);
  }

  /// Adds one instruction that can begin. Returns false if there is no such instruction.
  bool take_next(Rank r, RankState& rank, Seconds t) {
    if (take_shared(r, rank, t)) return true;
    const bool table = trains_ && rank.table < rank.combine;
    if (table && rank.combine - rank.table >= most_delayed) return take_table(r, rank, t);
    if (take_pass(r, rank, t)) return true;
    return table && take_table(r, rank, t);
  }

  bool take_table(Rank r, RankState& rank, Seconds t) {
    add(rank, r, Op::logits_gradient, rank.table++, t);
    return true;
  }

  /// Adds one instruction of the shared vocabulary other than logits_gradient, if one can begin.
  bool take_shared(Rank r, RankState& rank, Seconds t) {
    const Micro all = layout_.micro_batches;
    const auto earlier = [](Micro m) { return m - shared_buffers; };
    if (rank.look_up < all && looked_up_.arrived(earlier(rank.look_up), t) &&
        (r > 0 || rank.forwards > earlier(rank.look_up))) {
      share(looked_up_, Op::look_up, r, rank.look_up++, t);
      return true;
    }
    if (rank.output < all && rank.logits > earlier(rank.output) &&
        (r < last_ || rank.forwards > rank.output)) {
      share(outputs_, Op::share_output, r, rank.output++, t);
      return true;
    }
    if (rank.combine < rank.logits && statistics_.arrived(rank.combine, t) &&
        gradients_.arrived(earlier(rank.combine), t)) {
      share(gradients_, Op::combine_logits, r, rank.combine++, t);
      return true;
    }
    if (rank.logits < all && rank.combine == rank.logits && outputs_.arrived(rank.logits, t)) {
      share(statistics_, trains_ ? Op::logits : Op::evaluate_logits, r, rank.logits++, t);
      return true;
    }
    if (!trains_) return false;
    if (r > 0 && rank.gradient < all && rank.rows > earlier(rank.gradient)) {
      share(shared_, Op::share_gradient, r, rank.gradient++, t);
      return true;
    }
    if (rank.rows >= all || !shared_.arrived(rank.rows, t)) return false;
    add(rank, r, Op::look_up_gradient, rank.rows++, t);
    return true;
  }

  bool can_pass(Rank r, const RankState& rank, const Instr& i, Seconds t) const {
    const Micro earlier = i.micro - shared_buffers;
    const bool forward = i.op == Op::forward || i.op == Op::evaluate;
    if (forward && r == last_ && rank.logits <= earlier) return false;
    if (forward) return r == 0 ? looked_up_.arrived(i.micro, t) : rank.input[index(i.micro)] <= t;
    if (r == 0 && i.op != Op::backward_input && rank.rows <= earlier) return false;
    if (i.op == Op::backward_weight) return true;
    return r == last_ ? gradients_.arrived(i.micro, t) : rank.output_gradient[index(i.micro)] <= t;
  }

  bool take_pass(Rank r, RankState& rank, Seconds t) {
    const Row& given = program_.ranks[index(r)];
    if (rank.position >= given.size()) return false;
    const Instr i = given[rank.position];
    if (!can_pass(r, rank, i, t)) return false;
    ++rank.position;
    add(rank, r, i.op, i.micro, t);
    const Seconds end = rank.free;
    if (i.op == Op::forward || i.op == Op::evaluate) {
      ++rank.forwards;
      if (r < last_) arrive(ranks_[index(r + 1)].input, r + 1, i.micro, end);
    } else if (i.op != Op::backward_weight && r > 0) {
      arrive(ranks_[index(r - 1)].output_gradient, r - 1, i.micro, end);
    }
    if (r == 0 && (i.op == Op::backward || i.op == Op::backward_weight))
      share(shared_, Op::share_gradient, r, rank.gradient++, end);
    return true;
  }

  void arrive(std::vector<Seconds>& arrivals, Rank r, Micro m, Seconds time) {
    arrivals[index(m)] = time;
    wake(time, r);
  }

  const Program& program_;
  const ProgramLayout& layout_;
  const Cost& cost_;
  const Seconds latency_;
  const Rank last_;
  const bool trains_;
  Messages looked_up_, outputs_, statistics_, gradients_, shared_;
  std::vector<RankState> ranks_;
  using Wake = std::tuple<Seconds, Rank>;
  std::priority_queue<Wake, std::vector<Wake>, std::greater<>> wakes_;
};

}  // namespace

void share_vocabulary(Program& program, const Cost& cost) {
  const ProgramLayout& layout = program.layout;
  check(layout.ranks > 1 && layout.chunks == 1, "a vocabulary cannot be shared by ", layout.ranks,
        " pipeline ranks with ", layout.chunks, " stages each");
  check(static_cast<int>(program.ranks.size()) == layout.ranks, "the program has ",
        program.ranks.size(), " rows for ", layout.ranks, " ranks");
  program.layout.shares_vocabulary = true;
  program.ranks = Inserter(program, cost).run();
}

}  // namespace trireme::schedule
