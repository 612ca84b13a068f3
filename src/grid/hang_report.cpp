// The report of a hang or a death: groups ranks by activity, suspects first.
#include <trireme/grid/hang_report.hpp>

#include <trireme/base/text.hpp>

#include <algorithm>
#include <map>
#include <tuple>

namespace trireme::grid {
namespace {

using Condition = Sighting::Condition;

/// The text of a field, which may lack a terminating zero after a kill during a write.
template <std::size_t N>
std::string_view word(const char (&field)[N]) {
  return {field, static_cast<std::size_t>(std::find(field, field + N, '\0') - field)};
}

/// Text such as "0-2, 5" for ranks in ascending order.
std::string ranges(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    parts.push_back(end - i == 1 ? text(ranks[i]) : text(ranks[i], "-", ranks[end - 1]));
    i = end;
  }
  return join(parts, ", ");
}

bool is_waiting(const Sighting& s) {
  return s.state.waits != 0;
}

/// The rank's current or last activity; if the rank waits, preceded by the verb for which it waits.
std::string place(const Sighting& s) {
  if (!is_waiting(s)) return describe_activity(s.state);
  return text(describe_wait(s.state), ", during ", describe_activity(s.state));
}

std::string predicate(const Sighting& s, bool several = false) {
  switch (s.condition) {
    case Condition::dead:
      return is_waiting(s) ? "died (killed, out of memory or crashed) waiting in"
                           : "died (killed, out of memory or crashed) in";
    case Condition::silent:
      return several ? "do not respond, last seen in" : "does not respond, last seen in";
    case Condition::stopped:
      return is_waiting(s) ? "is stopped (SIGSTOP) waiting in" : "is stopped (SIGSTOP) in";
    case Condition::runs:
      break;
  }
  if (several) return is_waiting(s) ? "wait in" : "compute:";
  return is_waiting(s) ? "waits in" : "computes:";
}

/// First criterion of the order of groups.
enum class Suspicion : std::uint8_t { dead, silent, stopped, computes, waits };

Suspicion suspicion(const Sighting& s) {
  switch (s.condition) {
    case Condition::dead:
      return Suspicion::dead;
    case Condition::silent:
      return Suspicion::silent;
    case Condition::stopped:
      return Suspicion::stopped;
    case Condition::runs:
      break;
  }
  return is_waiting(s) ? Suspicion::waits : Suspicion::computes;
}

struct Group {
  const Sighting* first = nullptr;
  std::vector<int> ranks;
  Seconds oldest = 0;
};

/// Groups of ranks with the same activity, ordered by suspicion and then by size. Dead and stopped
/// ranks form groups of one rank.
std::vector<Group> grouped(const std::vector<Sighting>& ranks) {
  std::map<std::string, Group> by_place;
  for (const Sighting& s : ranks) {
    if (s.state.life != RankState::alive && s.condition == Condition::runs) continue;
    const bool alone = s.condition == Condition::dead || s.condition == Condition::stopped;
    Group& group = by_place[alone ? text("rank ", s.state.rank) : predicate(s) + place(s)];
    if (group.ranks.empty()) group.first = &s;
    group.ranks.push_back(s.state.rank);
    group.oldest = std::max(group.oldest, s.age);
  }
  std::vector<Group> groups;
  for (auto& [key, group] : by_place) {
    std::sort(group.ranks.begin(), group.ranks.end());
    groups.push_back(group);
  }
  std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    return std::tuple(suspicion(*a.first), a.ranks.size(), a.ranks.front()) <
           std::tuple(suspicion(*b.first), b.ranks.size(), b.ranks.front());
  });
  return groups;
}

std::string who(const Group& g) {
  if (g.ranks.size() > 1) return "ranks " + ranges(g.ranks);
  return text("rank ", g.ranks.front(), " (pid ", g.first->state.pid, " on ", g.first->node, ")");
}

std::string line(const Group& g, bool names_suspects) {
  const bool suspect = names_suspects && suspicion(*g.first) < Suspicion::waits;
  return text(suspect ? "  suspect: " : "  ", who(g), " ", predicate(*g.first, g.ranks.size() > 1),
              " ", place(*g.first), ", for ", fixed(g.oldest, 1), " s\n");
}

}  // namespace

std::string describe_activity(const RankState& state) {
  const auto name = word(state.activity);
  std::string out = state.step >= 0 ? text("step ", state.step, ", ") : std::string();
  out += name.empty() ? "the start" : name;
  if (state.stage >= 0) out += text(" stage ", state.stage);
  if (state.micro >= 0) out += text(" micro ", state.micro);
  return out;
}

std::string describe_wait(const RankState& state) {
  std::string out = text(word(state.verb), " \"", word(state.what), "\"");
  if (word(state.communicator).empty()) return out;  // it waits for its own kernels
  if (state.peer >= 0) {
    out += text(word(state.verb) == "send" ? " to rank " : " from rank ", state.peer, ", channel ",
                state.number);
  } else {
    out += text(", number ", state.number);
  }
  return out + text(" on ", word(state.communicator));
}

std::string death_report(const Sighting& s) {
  return text("rank ", s.state.rank, " (pid ", s.state.pid, " on ", s.node, ") has died ",
              is_waiting(s) ? "waiting in " : "in ", place(s),
              ": killed, out of memory or crashed\n");
}

std::string hang_report(const std::vector<Sighting>& ranks, Seconds limit) {
  std::string out;
  if (limit > 0)
    out = text("no progress for ", fixed(limit, 1), " s ([run] watchdog); state of the ranks:\n");
  for (const Group& group : grouped(ranks)) out += line(group, limit > 0);
  return out;
}

}  // namespace trireme::grid
