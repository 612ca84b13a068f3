#include <trireme/base/text.hpp>
#include <trireme/schedule/machine.hpp>

#include <algorithm>
#include <map>
#include <optional>

namespace trireme::schedule {

Seconds Timeline::span() const {
  if (events.empty()) return 0;
  Seconds first = events.front().begin;
  Seconds last = events.front().end;
  for (const Event& e : events) {
    first = std::min(first, e.begin);
    last = std::max(last, e.end);
  }
  return last - first;
}

double Timeline::idle_share() const {
  Seconds busy = 0;
  for (const Event& e : events) busy += e.end - e.begin;
  const Seconds total = span() * ranks;
  return total > 0 ? 1 - busy / total : 0;
}

namespace {

/// The state of a play: which values exist since when, and where each rank stands.
class Player {
 public:
  Player(const Program& program, const Cost& cost)
      : program_(program),
        cost_(cost),
        position_(program.ranks.size(), 0),
        free_at_(program.ranks.size(), 0) {
    played_.timeline.ranks = static_cast<int>(program.ranks.size());
  }

  Played run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t r = 0; r < position_.size(); ++r)
        while (step(r)) moved = true;
    }
    for (std::size_t r = 0; r < position_.size(); ++r)
      if (position_[r] < program_.ranks[r].size()) report(r, "waits for ever: needs " + missing(r));
    return std::move(played_);
  }

 private:
  const Instr& current(std::size_t r) const { return program_.ranks[r][position_[r]]; }

  void report(std::size_t r, const std::string& what) {
    played_.mistakes.push_back(
        text("rank ", r, ", position ", position_[r], ", ", to_string(current(r)), ": ", what));
  }

  std::string missing(std::size_t r) const {
    for (const Value& v : effects(current(r), program_.layout).reads)
      if (!exists_.contains(v)) return text(name(v), " of stage ", v.stage, " micro ", v.micro);
    return "nothing";
  }

  static std::string_view name(const Value& v) {
    constexpr std::string_view names[] = {"activation",  "saved activations", "input gradient",
                                          "weight work", "weight gradient",   "reduced gradient",
                                          "weights"};
    return names[static_cast<std::size_t>(v.kind)];
  }

  bool step(std::size_t r) {
    if (position_[r] >= program_.ranks[r].size()) return false;
    const Instr& instr = current(r);
    const Effects e = effects(instr, program_.layout);
    Seconds begin = free_at_[r];
    for (const Value& v : e.reads) {
      const auto found = exists_.find(v);
      if (found == exists_.end()) return false;
      begin = std::max(begin, found->second);
    }
    const Seconds end = begin + cost_(instr);
    for (const Value& v : e.writes)
      if (!exists_.emplace(v, end).second)
        report(r, text("writes ", name(v), " of stage ", v.stage, " micro ", v.micro,
                       " a second time"));
    played_.timeline.events.push_back(
        {static_cast<Rank>(r), static_cast<int>(position_[r]), instr, begin, end});
    free_at_[r] = end;
    ++position_[r];
    return true;
  }

  const Program& program_;
  const Cost& cost_;
  std::vector<std::size_t> position_;
  std::vector<Seconds> free_at_;
  std::map<Value, Seconds> exists_;
  Played played_;
};

std::optional<std::string> misplaced(const Program& program, const Instr& i, Rank rank) {
  const ProgramLayout& layout = program.layout;
  if (i.stage < 0 || i.stage >= layout.stages())
    return text("stage is not in 0 … ", layout.stages() - 1);
  if (i.micro < 0 || i.micro >= layout.micro_batches)
    return text("micro-batch is not in 0 … ", layout.micro_batches - 1);
  if (layout.rank_of(i.stage) != rank) return text("stage lives on rank ", layout.rank_of(i.stage));
  return std::nullopt;
}

}  // namespace

Played play(const Program& program, const Cost& cost) {
  return Player(program, cost).run();
}

std::vector<std::string> validate(const Program& program) {
  std::vector<std::string> mistakes;
  if (static_cast<int>(program.ranks.size()) != program.layout.ranks)
    return {text("the program has ", program.ranks.size(), " rows for ", program.layout.ranks,
                 " ranks")};
  for (std::size_t r = 0; r < program.ranks.size(); ++r)
    for (std::size_t p = 0; p < program.ranks[r].size(); ++p)
      if (const auto what = misplaced(program, program.ranks[r][p], static_cast<Rank>(r)))
        mistakes.push_back(
            text("rank ", r, ", position ", p, ", ", to_string(program.ranks[r][p]), ": ", *what));
  if (!mistakes.empty()) return mistakes;

  const Played played = play(program, [](const Instr&) { return 1.0; });
  mistakes = played.mistakes;
  std::map<Value, int> written;
  for (const Event& e : played.timeline.events)
    for (const Value& v : effects(e.instr, program.layout).writes) ++written[v];
  for (Stage s = 0; s < program.layout.stages(); ++s) {
    const Value last{Value::Kind::weights, s, 0};
    if (!written.contains(last) && mistakes.empty())
      mistakes.push_back(text("rank ", program.layout.rank_of(s), ": the weights of stage ", s,
                              " are never updated"));
  }
  return mistakes;
}

}  // namespace trireme::schedule
