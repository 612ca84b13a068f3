// Simulates a program in virtual time. A rank advances until an instruction lacks a value; the
// event that provides the value wakes the rank.
#include <trireme/schedule/simulator.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/schedule/machine.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::schedule {
namespace {

constexpr Seconds not_sent = std::numeric_limits<Seconds>::quiet_NaN();

bool exists(Seconds since) {
  return !std::isnan(since);
}

}  // namespace

Simulator::Simulator(const Program& program, const Cost& cost, Transport transport,
                     int send_buffers)
    : program_(program),
      cost_(cost),
      transport_(transport),
      send_buffers_(static_cast<std::size_t>(send_buffers)),
      states_(program.ranks.size()),
      exists_since_(values(program.layout), not_sent),
      transfers_(2 * static_cast<std::size_t>(program.layout.stages()) *
                     static_cast<std::size_t>(program.layout.passes()),
                 Transfer{not_sent, not_sent, not_sent, 0}),
      started_(2 * static_cast<std::size_t>(program.layout.stages())),
      shared_(program.layout.shares_vocabulary
                  ? static_cast<std::size_t>(ops * program.layout.micro_batches)
                  : 0) {
  std::size_t events = 0;
  for (const auto& row : program.ranks) {
    first_event_.push_back(events);
    events += row.size();
  }
  events_.resize(events);
}

Simulation Simulator::run() {
  for (std::size_t r = 0; r < states_.size(); ++r) wake(static_cast<Rank>(r));
  while (!runnable_.empty()) {
    const std::size_t r = runnable_.front();
    runnable_.pop_front();
    states_[r].queued = false;
    advance(r);
    complete_groups();
  }
  return finish();
}

void Simulator::wake(Rank r) {
  RankState& state = states_[static_cast<std::size_t>(r)];
  if (state.queued) return;
  state.queued = true;
  runnable_.push_back(static_cast<std::size_t>(r));
}

void Simulator::advance(std::size_t r) {
  while (true) {
    const bool joins = !finished(r) && is_transfer(current(r).op) && !current(r).opens_group &&
                       !program_.layout.is_local(current(r));
    if (states_[r].group_open && !joins) close_group(r);
    if (finished(r) || !step(r)) return;
  }
}

std::size_t Simulator::channel_of(const Value& v) const {
  const bool gradient = v.kind == Kind::sent_gradient || v.kind == Kind::posted_gradient;
  return 2 * static_cast<std::size_t>(v.stage) + (gradient ? 1 : 0);
}

std::size_t Simulator::transfer_of(const Value& v) const {
  return channel_of(v) * static_cast<std::size_t>(program_.layout.passes()) +
         static_cast<std::size_t>(v.micro);
}

std::size_t Simulator::transfer_of(const Instr& instr) const {
  const Instr receive = is_send(instr.op) ? partner_of(instr) : instr;
  return transfer_of(
      {receive.op == Op::receive_gradient ? Kind::posted_gradient : Kind::posted_activation,
       receive.stage, receive.micro});
}

void Simulator::record(std::size_t r, Seconds begin, Seconds end) {
  RankState& state = states_[r];
  events_[event_index(r, state.position)] = {static_cast<Rank>(r), static_cast<int>(state.position),
                                             current(r), begin, end};
  state.free_at = end;
  ++state.position;
}

/// Runs the rank's current instruction if it can begin. Returns whether it could begin.
bool Simulator::step(std::size_t r) {
  const Instr& instr = current(r);
  if (!misplaced(instr, program_.layout, static_cast<Rank>(r)).empty()) return false;
  effects(instr, program_.layout, effects_);
  Seconds begin = states_[r].free_at;
  for (const Value& v : effects_.reads) {
    const Seconds since = exists_since_[index_of(v, program_.layout)];
    if (!exists(since)) return false;
    begin = std::max(begin, since);
  }
  if (is_collective(instr.op) && !program_.layout.overlaps_steps())
    return step_collective(r, begin);
  if (is_send(instr.op) && !program_.layout.is_local(instr) &&
      !may_send(effects_.writes.front(), begin))
    return false;
  // With overlapping steps, a collective that all ranks began earlier overlaps with passes.
  const bool posts = is_receive(instr.op) || (is_shared(instr.op) && !is_compute(instr.op));
  const Seconds end = is_collective(instr.op)
                          ? std::max(states_[r].free_at, latest_read() + cost_(instr))
                          : begin + (posts ? 0 : cost_(instr));
  if (is_transfer(instr.op)) {
    record(r, begin, end);
    if (transport_ == Transport::independent_channels || program_.layout.is_local(instr))
      start_channel(r, instr, effects_.writes.front(), begin);
    else
      enter_group(r, end);
    return true;
  }
  for (const Value& v : effects_.writes) exists_since_[index_of(v, program_.layout)] = end;
  record(r, begin, end);
  if (is_begin(instr.op))
    for (std::size_t other = 0; other < states_.size(); ++other) wake(static_cast<Rank>(other));
  if (is_shared(instr.op)) enter_shared(instr, end);
  return true;
}

/// Time when the last value read by the current instruction came to exist.
Seconds Simulator::latest_read() const {
  Seconds latest = 0;
  for (const Value& v : effects_.reads)
    latest = std::max(latest, exists_since_[index_of(v, program_.layout)]);
  return latest;
}

/// Counts the ranks that have begun the message. All ranks receive the message cost(share_output)
/// after the last rank has begun it, or at once if the message consists of statistics.
void Simulator::enter_shared(const Instr& instr, Seconds at) {
  const ProgramLayout& layout = program_.layout;
  Shared& message = shared_[static_cast<std::size_t>(
      static_cast<int>(instr.op) * layout.micro_batches + instr.micro)];
  message.begin = std::max(message.begin, at);
  if (++message.arrived < layout.ranks) return;
  const bool small = arrival_of(instr.op) == Kind::statistics;
  const Seconds arrival =
      message.begin + (small ? 0 : cost_({Op::share_output, instr.stage, instr.micro}));
  for (Rank r = 0; r < layout.ranks; ++r) {
    exists_since_[index_of({arrival_of(instr.op), layout.first_stage(r), instr.micro}, layout)] =
        arrival;
    wake(r);
  }
}

/// Enters the collective, or leaves it if all members have entered. Returns whether the rank left.
bool Simulator::step_collective(std::size_t r, Seconds begin) {
  const Instr& instr = current(r);
  Collective& c = collectives_[instr.op == Op::reduce_tied ? 0 : 1];
  const int members = members_of(instr.op, program_.layout);
  if (!states_[r].at_collective) {
    states_[r].at_collective = true;
    c.begin = c.arrived == 0 ? begin : std::max(c.begin, begin);
    if (++c.arrived == members)
      for (std::size_t other = 0; other < states_.size(); ++other)
        if (states_[other].at_collective) wake(static_cast<Rank>(other));
  }
  if (c.arrived < members) return false;
  const Seconds end = c.begin + cost_(instr);
  for (const Value& v : effects_.writes) exists_since_[index_of(v, program_.layout)] = end;
  states_[r].at_collective = false;
  record(r, c.begin, end);
  if (++c.left == members) c = {};
  return true;
}

/// Takes a send buffer of the message's channel, and delays `begin` until the buffer is free.
/// Returns false if it is not known when a buffer becomes free.
bool Simulator::may_send(const Value& message, Seconds& begin) {
  std::vector<Micro>& started = started_[channel_of(message)];
  if (started.size() >= send_buffers_) {
    const Micro earlier = started[started.size() - send_buffers_];
    const Seconds freed = transfers_[transfer_of({message.kind, message.stage, earlier})].freed;
    if (!exists(freed)) return false;
    begin = std::max(begin, freed);
  }
  started.push_back(message.micro);
  return true;
}

/// Independent channels: the transfer arrives cost(receive) after both sides are ready.
void Simulator::start_channel(std::size_t r, const Instr& instr, const Value& message, Seconds at) {
  Transfer& t = transfers_[transfer_of(message)];
  const bool sends = is_send(instr.op);
  (sends ? t.sent : t.posted) = at;
  if (!sends) t.event = event_index(r, states_[r].position - 1);
  if (!exists(t.sent) || !exists(t.posted)) return;
  const Instr receive = sends ? partner_of(instr) : instr;
  const Seconds begin = std::max(t.sent, t.posted);
  events_[t.event].begin = begin;
  events_[t.event].end = begin + cost_(receive);
  t.freed = events_[t.event].end;
  arrive(receive, t.freed);
  wake(static_cast<Rank>(r));
  wake(peer_of(instr, program_.layout));
}

/// Marks the received value as present, so that its consumer may run.
void Simulator::arrive(const Instr& receive, Seconds at) {
  const bool gradient = receive.op == Op::receive_gradient;
  for (const Kind kind : {gradient ? Kind::sent_gradient : Kind::sent_activation,
                          gradient ? Kind::posted_gradient : Kind::posted_activation})
    exists_since_[index_of({kind, receive.stage, receive.micro}, program_.layout)] = at;
}

Simulation simulate(const Program& program, const Cost& cost, const SimulateOptions& options) {
  check(static_cast<int>(program.ranks.size()) == program.layout.ranks, "the program has ",
        program.ranks.size(), " rows for ", program.layout.ranks, " ranks");
  const auto with = [&](int send_buffers) {
    return Simulator(program, cost, options.transport.value_or(program.layout.transport),
                     send_buffers)
        .run();
  };
  if (options.send_buffers > 0) return with(options.send_buffers);
  Simulation simulation = with(2);
  if (simulation.mistakes.empty()) return simulation;
  // If n buffers suffice, so do more buffers. Bisection finds the smallest sufficient number.
  int fails = 2;
  int works = std::max(program.layout.passes(), 3);
  simulation = with(works);
  if (!simulation.mistakes.empty()) return simulation;
  while (works - fails > 1) {
    const int middle = fails + (works - fails) / 2;
    Simulation tried = with(middle);
    if (tried.mistakes.empty()) {
      works = middle;
      simulation = std::move(tried);
    } else {
      fails = middle;
    }
  }
  return simulation;
}

/// Ordered groups: appends the newly issued transfer to the open group, or opens a group.
void Simulator::enter_group(std::size_t r, Seconds at) {
  RankState& state = states_[r];
  if (!state.group_open) {
    state.groups.push_back({state.position - 1, 0, 0, at, 0});
    state.group_open = true;
  }
  Group& group = state.groups.back();
  ++group.parts;
  ++group.waiting;
  group.ready = at;
}

/// Ends the open group of a rank. If it is the rank's first group, makes it active.
void Simulator::close_group(std::size_t r) {
  RankState& state = states_[r];
  state.group_open = false;
  if (state.groups.size() == 1) activate(r, state.groups.front().ready);
}

/// Makes the rank's first group active: its parts can match the parts of other active groups.
void Simulator::activate(std::size_t r, Seconds at) {
  const Group group = states_[r].groups.front();
  states_[r].groups.front().complete = at;
  for (std::size_t p = group.first; p < group.first + group.parts; ++p) {
    const Instr& instr = program_.ranks[r][p];
    Transfer& t = transfers_[transfer_of(instr)];
    (is_send(instr.op) ? t.sent : t.posted) = at;
    if (is_receive(instr.op)) t.event = event_index(r, p);
    if (std::isnan(t.sent) || std::isnan(t.posted)) continue;
    const Seconds begin = std::max(t.sent, t.posted);
    const Seconds arrival = begin + cost_(is_send(instr.op) ? partner_of(instr) : instr);
    events_[t.event].begin = begin;
    part_met(r, arrival);
    part_met(static_cast<std::size_t>(peer_of(instr, program_.layout)), arrival);
  }
}

void Simulator::part_met(std::size_t r, Seconds arrival) {
  Group& group = states_[r].groups.front();
  group.complete = std::max(group.complete, arrival);
  if (--group.waiting == 0) complete_.push_back(r);
}

void Simulator::complete_groups() {
  while (!complete_.empty()) {
    const std::size_t r = complete_.back();
    complete_.pop_back();
    complete_group(r);
  }
}

/// Marks the group's receives as arrived and its send buffers as free, and starts the next group.
void Simulator::complete_group(std::size_t r) {
  RankState& state = states_[r];
  const Group group = state.groups.front();
  for (std::size_t p = group.first; p < group.first + group.parts; ++p) {
    const Instr& instr = program_.ranks[r][p];
    if (is_send(instr.op)) {
      transfers_[transfer_of(instr)].freed = group.complete;
    } else {
      events_[event_index(r, p)].end = group.complete;
      arrive(instr, group.complete);
    }
  }
  state.groups.pop_front();
  wake(static_cast<Rank>(r));
  const bool next = state.groups.size() > (state.group_open ? 1u : 0u);
  if (next) activate(r, std::max(group.complete, state.groups.front().ready));
}

// The result of a simulation, and the reasons why unfinished ranks wait.
Simulation Simulator::finish() {
  std::vector<Event> ran;
  for (std::size_t r = 0; r < states_.size(); ++r) {
    if (!finished(r))
      report(r, reason(r));
    else if (!states_[r].groups.empty())
      mistakes_.push_back(text("rank ", r, ", end of the row: deadlock: ", stuck_group(r)));
  }
  Simulation simulation;
  simulation.timeline.layout = program_.layout;
  simulation.send_buffers = static_cast<int>(send_buffers_);
  simulation.mistakes = std::move(mistakes_);
  if (simulation.mistakes.empty()) {
    simulation.timeline.events = std::move(events_);
    return simulation;
  }
  for (std::size_t r = 0; r < states_.size(); ++r)
    for (std::size_t p = 0; p < states_[r].position; ++p) ran.push_back(events_[event_index(r, p)]);
  simulation.timeline.events = std::move(ran);
  return simulation;
}

void Simulator::report(std::size_t r, const std::string& what) {
  mistakes_.push_back(text("rank ", r, ", position ", states_[r].position, ", ",
                           to_string(current(r)), ": ", what));
}

std::string Simulator::reason(std::size_t r) const {
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

/// Reason that names the ranks that have not begun the message.
std::string Simulator::reason_of_shared(const Value& v) const {
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

std::string Simulator::reason_of_arrival(std::size_t r, const Instr& receive) const {
  const Instr send = partner_of(receive);
  const std::string what = text("deadlock: ", to_string(receive), " waits for ", to_string(send),
                                " on rank ", program_.layout.rank_of(send.stage));
  if (states_[r].groups.empty()) return what;
  return text(what, "; ", stuck_group(r));
}

/// Reason that names the first unmatched part of the rank's first group.
std::string Simulator::stuck_group(std::size_t r) const {
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
