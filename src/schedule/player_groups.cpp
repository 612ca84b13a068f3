#include <trireme/schedule/player.hpp>

#include <algorithm>
#include <cmath>

/// Ordered groups: the transfers of a rank form one queue.
namespace trireme::schedule {

/// Appends the transfer just issued to the open group, or opens one.
void Player::enter_group(std::size_t r, Seconds at) {
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

/// Queues the group. If no group is before it, its parts look for partners.
void Player::close_group(std::size_t r) {
  RankState& state = states_[r];
  state.group_open = false;
  if (state.groups.size() == 1) activate(r, state.groups.front().ready);
}

/// Makes the rank's first group active.
void Player::activate(std::size_t r, Seconds at) {
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

void Player::part_met(std::size_t r, Seconds arrival) {
  Group& group = states_[r].groups.front();
  group.complete = std::max(group.complete, arrival);
  if (--group.waiting == 0) complete_.push_back(r);
}

void Player::complete_groups() {
  while (!complete_.empty()) {
    const std::size_t r = complete_.back();
    complete_.pop_back();
    complete_group(r);
  }
}

/// Marks the group's receives as arrived and its send buffers as free, and starts the next group.
void Player::complete_group(std::size_t r) {
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

}  // namespace trireme::schedule
