#pragma once

#include <trireme/schedule/machine.hpp>

#include <array>
#include <deque>
#include <string>
#include <vector>

namespace trireme::schedule {

/// One simulation of a program with a given number of send buffers: the state of simulate().
class Simulator {
 public:
  Simulator(const Program& program, const Cost& cost, Transport transport, int send_buffers);
  Simulation run();

 private:
  using Kind = Value::Kind;

  /// Adjacent transfers in a rank's row, under ordered groups.
  struct Group {
    std::size_t first = 0;  ///< position of the first part
    std::size_t parts = 0;
    std::size_t waiting = 0;  ///< number of parts whose partner is not active yet
    Seconds ready = 0;        ///< time when the last part was issued
    Seconds complete = 0;     ///< arrival of the last matched part
  };
  struct RankState {
    std::size_t position = 0;
    Seconds free_at = 0;
    bool queued = false;
    bool at_collective = false;  ///< whether the rank has entered the collective at `position`
    bool group_open = false;     ///< whether the last group may still grow
    std::deque<Group> groups;
  };
  struct Collective {
    int arrived = 0;
    int left = 0;
    Seconds begin = 0;
  };
  /// A message among all pipeline ranks, by (operation, micro-batch).
  struct Shared {
    int arrived = 0;
    Seconds begin = 0;  ///< latest time at which a rank began the message
  };
  /// One transfer, by (receiving stage, micro-batch, direction).
  struct Transfer {
    Seconds sent;       ///< time when the send started, or under ordered groups became active
    Seconds posted;     ///< time when the receive was posted, or under ordered groups became active
    Seconds freed;      ///< time when the transfer's send buffer became free
    std::size_t event;  ///< index of the receive's event
  };

  const Instr& current(std::size_t r) const { return program_.ranks[r][states_[r].position]; }
  bool finished(std::size_t r) const { return states_[r].position >= program_.ranks[r].size(); }
  std::size_t event_index(std::size_t r, std::size_t position) const {
    return first_event_[r] + position;
  }
  std::size_t transfer_of(const Value& v) const;
  std::size_t transfer_of(const Instr& instr) const;
  std::size_t channel_of(const Value& v) const;

  void wake(Rank r);
  void advance(std::size_t r);
  bool step(std::size_t r);
  bool step_collective(std::size_t r, Seconds begin);
  Seconds latest_read() const;
  void enter_shared(const Instr& instr, Seconds at);
  bool may_send(const Value& message, Seconds& begin);
  void record(std::size_t r, Seconds begin, Seconds end);

  void arrive(const Instr& receive, Seconds at);
  void start_channel(std::size_t r, const Instr& instr, const Value& message, Seconds at);
  void enter_group(std::size_t r, Seconds at);
  void close_group(std::size_t r);
  void activate(std::size_t r, Seconds at);
  void part_met(std::size_t r, Seconds arrival);
  void complete_groups();
  void complete_group(std::size_t r);

  std::string reason(std::size_t r) const;
  std::string reason_of_shared(const Value& v) const;
  std::string reason_of_arrival(std::size_t r, const Instr& receive) const;
  std::string stuck_group(std::size_t r) const;
  void report(std::size_t r, const std::string& what);
  Simulation finish();

  const Program& program_;
  const Cost& cost_;
  const Transport transport_;
  const std::size_t send_buffers_;
  std::vector<RankState> states_;
  std::vector<std::size_t> first_event_;
  std::vector<Event> events_;
  std::vector<std::string> mistakes_;
  std::vector<Seconds> exists_since_;  ///< by index_of; NaN if absent
  std::vector<Transfer> transfers_;
  std::vector<std::vector<Micro>> started_;  ///< micro-batches sent through each channel
  std::array<Collective, 2> collectives_;    ///< reduce_tied, gradient_norm
  std::vector<Shared> shared_;               ///< empty unless the vocabulary is shared
  std::deque<std::size_t> runnable_;
  std::vector<std::size_t> complete_;  ///< ranks whose first group is fully matched
  Effects effects_;
};

}  // namespace trireme::schedule
