// Validates a lowered program: tracks the state of every value in each row, compares queues and
// collectives between rows, and then simulates the program.
#include <trireme/schedule/validate.hpp>

#include <trireme/base/text.hpp>
#include <trireme/schedule/machine.hpp>
#include <trireme/schedule/needs.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace trireme::schedule {
namespace {

using Kind = Value::Kind;
using Row = std::vector<Instr>;

constexpr std::size_t most_mistakes = 32;  // listed mistakes; one cause can produce thousands

enum class State : std::uint8_t { absent, written, freed };

struct Placed {
  Rank rank = 0;
  std::size_t position = 0;
  Instr instr;
};

/// All checks without simulation.
class Checker {
 public:
  Checker(const Program& program, Transport transport, const ValidateOptions& options)
      : program_(program),
        layout_(program.layout),
        transport_(transport),
        options_(options),
        states_(values(layout_), State::absent),
        sends_(queues()),
        receives_(queues()) {}

  std::vector<std::string> run() {
    if (!check_placement()) return finish();
    for (Rank r = 0; r < layout_.ranks; ++r) check_row(r);
    check_completeness();
    check_queues();
    check_collectives();
    check_shared();
    check_slots();
    return finish();
  }

 private:
  const Row& row(Rank r) const { return program_.ranks[static_cast<std::size_t>(r)]; }

  void report(Rank r, std::size_t position, const Instr& instr, const std::string& what) {
    report(r, text(position), instr, what);
  }
  void report(Rank r, const std::string& position, const Instr& instr, const std::string& what) {
    if (mistakes_.size() < most_mistakes)
      mistakes_.push_back(
          text("rank ", r, ", position ", position, ", ", to_string(instr), ": ", what));
    else
      ++more_;
  }
  void report_missing(Stage stage, const Instr& instr) {
    const Rank r = layout_.rank_of(stage);
    report(r, text(row(r).size(), " (the end)"), instr, "is missing");
  }
  std::vector<std::string> finish() {
    if (more_ > 0) mistakes_.push_back(text("and ", more_, " more mistakes"));
    return std::move(mistakes_);
  }

  bool check_placement() {
    if (static_cast<int>(program_.ranks.size()) != layout_.ranks) {
      mistakes_.push_back(
          text("the program has ", program_.ranks.size(), " rows for ", layout_.ranks, " ranks"));
      return false;
    }
    for (Rank r = 0; r < layout_.ranks; ++r)
      for (std::size_t p = 0; p < row(r).size(); ++p)
        if (const std::string what = misplaced(row(r)[p], layout_, r); !what.empty())
          report(r, p, row(r)[p], what);
    return mistakes_.empty();
  }

  /// The position at which the row writes `v`; empty if the row does not write it.
  std::optional<std::size_t> find_writer(Rank r, const Value& v) const {
    for (std::size_t p = 0; p < row(r).size(); ++p) {
      const Effects e = effects(row(r)[p], layout_);
      if (std::find(e.writes.begin(), e.writes.end(), v) != e.writes.end()) return p;
    }
    return std::nullopt;
  }

  void check_row(Rank r) {
    std::vector<Placed> unsent;  // sends that are due: their outputs are in scratch
    for (std::size_t p = 0; p < row(r).size(); ++p) {
      const Instr& instr = row(r)[p];
      effects(instr, layout_, effects_);
      check_reads(r, p);
      check_writes(r, p);
      for (const Value& v : effects_.frees)
        if (State& state = states_[index_of(v, layout_)]; state == State::written)
          state = State::freed;
      if (is_pass(instr.op)) {
        for (const Placed& send : unsent)
          report(r, p, instr,
                 text("overwrites the output that ", to_string(send.instr),
                      " sends; the send must directly follow position ", send.position));
        unsent.clear();
        if (has(Kind::output) && instr.stage + 1 < layout_.stages())
          unsent.push_back({r, p, {Op::send_activation, instr.stage, instr.micro}});
        if (has(Kind::input_gradient))
          unsent.push_back({r, p, {Op::send_gradient, instr.stage, instr.micro}});
        if (has(Kind::embedding_gradient))
          unsent.push_back({r, p, {Op::share_gradient, instr.stage, instr.micro}});
      } else if (instr.op == Op::share_gradient) {
        std::erase_if(unsent, [&](const Placed& send) { return send.instr == instr; });
      } else if (is_send(instr.op)) {
        std::erase_if(unsent, [&](const Placed& send) { return send.instr == instr; });
        sends_[queue(r, instr)].push_back({r, p, instr});
      } else if (is_receive(instr.op)) {
        receives_[queue(peer_of(instr, layout_), instr)].push_back({r, p, instr});
      }
    }
    for (const Placed& send : unsent)
      report(r, text(row(r).size(), " (the end)"), send.instr, "is missing");
  }

  bool has(Kind kind) const {
    return std::any_of(effects_.writes.begin(), effects_.writes.end(),
                       [kind](const Value& v) { return v.kind == kind; });
  }

  void check_reads(Rank r, std::size_t p) {
    for (const Value& v : effects_.reads) {
      // check_queues, check_shared and the simulation check arrivals.
      if (is_arrival(v.kind)) continue;
      if (layout_.rank_of(v.stage) != r) continue;  // checked on that rank
      const State state = states_[index_of(v, layout_)];
      if (state == State::written) continue;
      if (state == State::freed) {
        report(r, p, row(r)[p], text("needs ", to_string(v), ", which was freed before"));
        continue;
      }
      const auto writer = find_writer(r, v);
      report(r, p, row(r)[p],
             text("needs ", to_string(v), ", which ",
                  writer ? text("comes later, at position ", *writer, " (",
                                to_string(row(r)[*writer]), ")")
                         : text("no instruction on this rank provides")));
    }
  }

  void check_writes(Rank r, std::size_t p) {
    for (const Value& v : effects_.writes) {
      State& state = states_[index_of(v, layout_)];
      if (state != State::absent)
        report(r, p, row(r)[p], text("provides ", to_string(v), " a second time"));
      state = State::written;
    }
  }

  bool was_written(Kind kind, Stage s, Micro m) const {
    return states_[index_of({kind, s, m}, layout_)] != State::absent;
  }

  void check_completeness() {
    bool evaluates = false;
    bool trains = false;
    for (const Row& row : program_.ranks)
      for (const Instr& i : row) (i.op == Op::evaluate ? evaluates : trains) |= is_pass(i.op);
    if (evaluates && trains) report_mixture();
    for (Stage s = 0; s < layout_.stages(); ++s)
      for (Micro m = 0; m < layout_.passes(); ++m) {
        if (!was_written(Kind::output, s, m))
          report_missing(s, {evaluates ? Op::evaluate : Op::forward, s, m});
        if (!evaluates && !was_written(Kind::weight_gradient, s, m))
          report_missing(s, {Op::backward, s, m});
        if (layout_.shares_vocabulary && !was_written(Kind::combined, s, m))
          report_missing(s, {Op::combine_logits, s, m});
      }
    if (evaluates) return;
    for (int step = 0; step < layout_.steps; ++step) {
      for (Stage s = 0; s < layout_.stages(); ++s) {
        if (!was_written(Kind::reduced, s, step))
          report_missing(s, {Op::reduce_gradients, s, step});
        if (!was_written(Kind::weights, s, step))
          report_missing(s, {Op::optimizer_step, layout_.first_stage(layout_.rank_of(s)), step});
      }
      if (!layout_.tied) continue;
      for (const Stage s : layout_.ends_of_table())
        if (!was_written(Kind::tied, s, step)) report_missing(s, {Op::reduce_tied, s, step});
    }
  }

  void report_mixture() {
    for (Rank r = 0; r < layout_.ranks; ++r)
      for (std::size_t p = 0; p < row(r).size(); ++p)
        if (row(r)[p].op == Op::evaluate) report(r, p, row(r)[p], "is in a program for training");
  }

  /// Number of queues. Independent channels: two per stage, for activations and for gradients.
  /// Ordered groups: three per sender, to itself, to the next rank and to the previous rank.
  std::size_t queues() const {
    return transport_ == Transport::ordered_groups ? 3 * static_cast<std::size_t>(layout_.ranks)
                                                   : 2 * static_cast<std::size_t>(layout_.stages());
  }
  std::size_t queue(Rank sender, const Instr& instr) const {
    const Instr receive = is_receive(instr.op) ? instr : partner_of(instr);
    if (transport_ == Transport::ordered_groups) {
      const int ahead = (layout_.rank_of(receive.stage) - sender + layout_.ranks) % layout_.ranks;
      return 3 * static_cast<std::size_t>(sender) + static_cast<std::size_t>(std::min(ahead, 2));
    }
    return 2 * static_cast<std::size_t>(receive.stage) +
           (receive.op == Op::receive_gradient ? 1 : 0);
  }

  void check_queues() {
    for (std::size_t l = 0; l < sends_.size(); ++l) {
      const std::size_t both = std::min(sends_[l].size(), receives_[l].size());
      bool in_order = true;
      for (std::size_t i = 0; i < both && in_order; ++i) {
        const Placed& send = sends_[l][i];
        const Placed& receive = receives_[l][i];
        in_order = partner_of(send.instr) == receive.instr;
        if (!in_order)
          report(receive.rank, receive.position, receive.instr,
                 text("is number ", i, " of its queue, but ", to_string(send.instr), " (rank ",
                      send.rank, ", position ", send.position, ") is sent at that place"));
      }
      for (const auto* side : {&sends_[l], &receives_[l]})
        for (std::size_t i = both; in_order && i < side->size(); ++i)
          report((*side)[i].rank, (*side)[i].position, (*side)[i].instr,
                 text("has no ", to_string(partner_of((*side)[i].instr)), " on rank ",
                      peer_of((*side)[i].instr, layout_)));
    }
  }

  std::vector<Placed> collectives_of(Rank r) const {
    std::vector<Placed> found;
    for (std::size_t p = 0; p < row(r).size(); ++p)
      if (layout_.overlaps_steps() ? is_begin(row(r)[p].op) : is_collective(row(r)[p].op))
        found.push_back({r, p, row(r)[p]});
    return found;
  }

  /// Every rank must call its collectives in the order of rank 0, which calls all collectives.
  void check_collectives() {
    const std::vector<Placed> first = collectives_of(0);
    for (Rank r = 1; r < layout_.ranks; ++r) {
      const std::vector<Placed> mine = collectives_of(r);
      std::vector<Placed> shared;
      for (const Placed& c : first)
        if (c.instr.op == Op::gradient_norm || c.instr.op == Op::begin_norm ||
            layout_.holds_table(r))
          shared.push_back(c);
      for (std::size_t i = 0; i < std::min(mine.size(), shared.size()); ++i) {
        if (mine[i].instr.op == shared[i].instr.op) continue;
        report(r, mine[i].position, mine[i].instr,
               text("is this rank's collective number ", i, ", but rank 0's is ",
                    to_string(shared[i].instr), " (position ", shared[i].position,
                    "); the order must be the same"));
        break;
      }
      for (const std::vector<Placed>* side : {&mine, &std::as_const(shared)})
        for (std::size_t i = std::min(mine.size(), shared.size()); i < side->size(); ++i)
          report((*side)[i].rank, (*side)[i].position, (*side)[i].instr,
                 text("is a collective that rank ", side == &mine ? 0 : r, " does not call"));
    }
  }

  /// Every rank begins the messages of each kind in the order of the micro-batches.
  void check_shared() {
    if (!layout_.shares_vocabulary) return;
    for (Rank r = 0; r < layout_.ranks; ++r) {
      std::array<Micro, ops> next{};
      for (std::size_t p = 0; p < row(r).size(); ++p) {
        const Instr& i = row(r)[p];
        if (is_shared(i.op) && i.micro != next.at(static_cast<std::size_t>(i.op))++)
          report(r, p, i, "is not in the order of the micro-batches");
      }
    }
  }

  void check_slots() {
    if (options_.slots <= 0) return;
    for (Rank r = 0; r < layout_.ranks; ++r) {
      int live = 0;
      for (std::size_t p = 0; p < row(r).size(); ++p) {
        effects(row(r)[p], layout_, effects_);
        for (const Value& v : effects_.writes) live += v.kind == Kind::saved;
        if (live > options_.slots) {
          report(r, p, row(r)[p],
                 text("needs slot number ", live, " of saved activations, but the limit is ",
                      options_.slots, " (the whole row needs ", slots_needed(program_, r), ")"));
          break;
        }
        for (const Value& v : effects_.frees) live -= v.kind == Kind::saved;
      }
    }
  }

  const Program& program_;
  const ProgramLayout& layout_;
  const Transport transport_;
  const ValidateOptions& options_;
  std::vector<State> states_;
  std::vector<std::vector<Placed>> sends_;
  std::vector<std::vector<Placed>> receives_;
  std::vector<std::string> mistakes_;
  std::size_t more_ = 0;
  Effects effects_;
};

}  // namespace

std::vector<std::string> validate(const Program& program, std::optional<Transport> given,
                                  const ValidateOptions& options) {
  const Transport transport = given.value_or(program.layout.transport);
  std::vector<std::string> mistakes = Checker(program, transport, options).run();
  if (!mistakes.empty()) return mistakes;
  mistakes = simulate(program, unit_cost, {transport, options.send_buffers}).mistakes;
  if (!mistakes.empty() && transport != Transport::independent_channels) {
    // If a program hangs even with independent channels, the order of its computations is the
    // cause. The mistakes of that simulation are more useful.
    const SimulateOptions channels{Transport::independent_channels, options.send_buffers};
    if (auto causes = simulate(program, unit_cost, channels).mistakes; !causes.empty())
      return causes;
  }
  return mistakes;
}

}  // namespace trireme::schedule
