// The result of a play, and the reasons why ranks that did not finish wait.
#include <trireme/schedule/player.hpp>

#include <trireme/base/text.hpp>

#include <cmath>

namespace trireme::schedule {

Played Player::finish() {
  std::vector<Event> ran;
  for (std::size_t r = 0; r < states_.size(); ++r) {
    if (!finished(r))
      report(r, reason(r));
    else if (!states_[r].groups.empty())
      mistakes_.push_back(text("rank ", r, ", end of the row: deadlock: ", stuck_group(r)));
  }
  Played played;
  played.timeline.layout = program_.layout;
  played.send_buffers = static_cast<int>(send_buffers_);
  played.mistakes = std::move(mistakes_);
  if (played.mistakes.empty()) {
    played.timeline.events = std::move(events_);
    return played;
  }
  for (std::size_t r = 0; r < states_.size(); ++r)
    for (std::size_t p = 0; p < states_[r].position; ++p) ran.push_back(events_[event_index(r, p)]);
  played.timeline.events = std::move(ran);
  return played;
}

void Player::report(std::size_t r, const std::string& what) {
  mistakes_.push_back(text("rank ", r, ", position ", states_[r].position, ", ",
                           to_string(current(r)), ": ", what));
}

std::string Player::reason(std::size_t r) const {
  const Instr& instr = current(r);
  const ProgramLayout& layout = program_.layout;
  if (const std::string what = misplaced(instr, layout, static_cast<Rank>(r)); !what.empty())
    return what;
  for (const Value& v : effects(instr, layout).reads) {
    if (!std::isnan(exists_since_[index_of(v, layout)])) continue;
    const bool activation = v.kind == Kind::sent_activation || v.kind == Kind::posted_activation;
    const bool gradient = v.kind == Kind::sent_gradient || v.kind == Kind::posted_gradient;
    if (is_arrival(v.kind) && !activation && !gradient) return reason_of_shared(v);
    if (activation) return reason_of_arrival(r, {Op::receive_activation, v.stage, v.micro});
    if (gradient) return reason_of_arrival(r, {Op::receive_gradient, v.stage, v.micro});
    if (const Rank other = layout.rank_of(v.stage); static_cast<std::size_t>(other) != r)
      return text("deadlock: needs ", to_string(v), ", and rank ", other, " never reaches it");
    return text("deadlock: needs ", to_string(v));
  }
  if (is_collective(instr.op)) {
    std::string absent_ranks;
    for (std::size_t other = 0; other < states_.size(); ++other) {
      const bool member =
          instr.op == Op::gradient_norm || layout.holds_table(static_cast<Rank>(other));
      const bool there =
          !finished(other) && states_[other].at_collective && current(other).op == instr.op;
      if (member && !there) absent_ranks += text(absent_ranks.empty() ? "" : ", ", other);
    }
    return text("deadlock: rank ", absent_ranks, " never reaches this collective");
  }
  const auto& started = started_[channel_of(effects(instr, layout).writes.front())];
  const Instr oldest{instr.op, instr.stage, started[started.size() - send_buffers_]};
  return text("deadlock: its ", send_buffers_, " send buffers are in use, the oldest by ",
              to_string(oldest), ", which waits for ", to_string(partner_of(oldest)), " on rank ",
              peer_of(oldest, layout));
}

/// The ranks that have not begun the message.
std::string Player::reason_of_shared(const Value& v) const {
  std::string absent_ranks;
  for (std::size_t r = 0; r < states_.size(); ++r) {
    const auto& row = program_.ranks[r];
    bool begun = false;
    for (std::size_t p = 0; p < states_[r].position && !begun; ++p)
      begun = is_shared(row[p].op) && row[p].micro == v.micro && arrival_of(row[p].op) == v.kind;
    if (!begun) absent_ranks += text(absent_ranks.empty() ? "" : ", ", r);
  }
  return text("deadlock: needs ", to_string(v), ", which rank ", absent_ranks, " never begins");
}

std::string Player::reason_of_arrival(std::size_t r, const Instr& receive) const {
  const Instr send = partner_of(receive);
  const std::string what = text("deadlock: ", to_string(receive), " waits for ", to_string(send),
                                " on rank ", program_.layout.rank_of(send.stage));
  if (states_[r].groups.empty()) return what;
  return text(what, "; ", stuck_group(r));
}

/// The first unmatched part of the rank's first group.
std::string Player::stuck_group(std::size_t r) const {
  const Group& group = states_[r].groups.front();
  for (std::size_t p = group.first; p < group.first + group.parts; ++p) {
    const Instr& instr = program_.ranks[r][p];
    const Transfer& t = transfers_[transfer_of(instr)];
    if (!std::isnan(t.sent) && !std::isnan(t.posted)) continue;
    return text("the queue of rank ", r, " is at the group of positions ", group.first, " … ",
                group.first + group.parts - 1, ", where ", to_string(instr), " (position ", p,
                ") waits for its partner on rank ", peer_of(instr, program_.layout));
  }
  return text("the queue of rank ", r, " is at position ", group.first);
}

}  // namespace trireme::schedule
