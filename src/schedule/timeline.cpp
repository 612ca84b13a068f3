// Timelines: idle share, mean costs, and a text format with one event per line.
#include <trireme/schedule/timeline.hpp>

#include <trireme/base/check.hpp>
#include <trireme/schedule/overlap.hpp>

#include <algorithm>
#include <array>
#include <charconv>

namespace trireme::schedule {

Seconds unit_cost(const Instr& instr) {
  if (!is_pass(instr.op)) return 0;
  return instr.op == Op::backward ? 2 : 1;
}

Seconds Timeline::begin() const {
  bool found = false;
  Seconds first = 0;
  for (const Event& e : events)
    if (is_compute(e.instr.op) && (!found || e.begin < first)) {
      first = e.begin;
      found = true;
    }
  return first;
}

Seconds Timeline::end() const {
  bool found = false;
  Seconds last = 0;
  for (const Event& e : events)
    if (is_compute(e.instr.op) && (!found || e.end > last)) {
      last = e.end;
      found = true;
    }
  return last;
}

double Timeline::idle_share() const {
  if (layout.overlaps_steps()) return steady_step(*this).idle_share;
  Seconds busy = 0;
  for (const Event& e : events)
    if (is_compute(e.instr.op)) busy += e.end - e.begin;
  const Seconds total = span() * layout.ranks;
  return total > 0 ? (total - busy) / total : 0;
}

Cost mean_costs(const Timeline& timeline) {
  struct Sum {
    Seconds seconds = 0;
    int count = 0;
  };
  const int stages = timeline.layout.stages();
  std::vector<Sum> sums(static_cast<std::size_t>(ops * stages));
  const auto index = [stages](const Instr& i) {
    return static_cast<std::size_t>(static_cast<int>(i.op) * stages + i.stage);
  };
  for (const Event& e : timeline.events) {
    check(e.instr.stage >= 0 && e.instr.stage < stages, "an event of ", e.instr,
          " in a timeline of ", stages, " stages");
    Sum& sum = sums[index(e.instr)];
    sum.seconds += e.end - e.begin;
    ++sum.count;
  }
  return [sums = std::move(sums), index, stages](const Instr& i) {
    if (i.stage < 0 || i.stage >= stages) return Seconds{0};
    const Sum& sum = sums[index(i)];
    return sum.count > 0 ? sum.seconds / sum.count : 0;
  };
}

std::string write_timeline(const Timeline& t) {
  std::string out =
      text("trireme timeline 1\nranks ", t.layout.ranks, " micro_batches ", t.layout.micro_batches,
           " chunks ", t.layout.chunks, " tied ", static_cast<int>(t.layout.tied),
           t.layout.placement == StagePlacement::v ? " placement v" : "",
           t.layout.shares_vocabulary ? " vocabulary pipeline" : "",
           t.layout.overlaps_steps() ? text(" steps ", t.layout.steps) : "", "\n",
           "# rank position operation stage micro begin end, times in seconds\n");
  for (const Event& e : t.events)
    out += text(e.rank, " ", e.position, " ", name_of(e.instr.op), " ", e.instr.stage, " ",
                e.instr.micro, " ", e.begin, " ", e.end, "\n");
  return out;
}

namespace {

/// Iterates over the lines of a text and the words of a line.
class LineReader {
 public:
  LineReader(std::string_view all, std::string_view file) : rest_(all), file_(file) {}

  /// Moves to the next line that is neither empty nor a comment.
  bool next_line() {
    while (!rest_.empty()) {
      const std::size_t end = std::min(rest_.find('\n'), rest_.size());
      line_ = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++number_;
      if (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
      if (!line_.empty() && line_.front() != '#') return true;
    }
    return false;
  }
  std::string_view word() {
    const std::size_t begin = std::min(line_.find_first_not_of(' '), line_.size());
    line_.remove_prefix(begin);
    const std::string_view found = line_.substr(0, line_.find(' '));
    line_.remove_prefix(found.size());
    return found;
  }
  void expect(std::string_view wanted) {
    const std::string_view found = word();
    if (found != wanted) fail(found, text("`", wanted, "`"));
  }
  template <class Number>
  Number number(std::string_view what, Number least, Number most) {
    const std::string_view found = word();
    Number value{};
    const auto result = std::from_chars(found.data(), found.data() + found.size(), value);
    // This form also rejects NaN.
    if (result.ec != std::errc{} || result.ptr != found.data() + found.size() ||
        !(value >= least && value <= most))
      fail(found, text(what, ", a number from ", least, " to ", most));
    return value;
  }
  void end_of_line() {
    const std::string_view found = word();
    if (!found.empty()) fail(found, "the end of the line");
  }
  [[noreturn]] void fail(std::string_view found, std::string_view expected) const {
    throw UsageError(text(file_, ":", number_, ": `", found, "`: expected ", expected,
                          "; a timeline is written by a run with [run] timeline = true"));
  }

 private:
  std::string_view rest_;
  std::string_view file_;
  std::string_view line_;
  int number_ = 0;
};

Op read_op(LineReader& reader) {
  const std::string_view word = reader.word();
  for (int i = 0; i < ops; ++i)
    if (name_of(static_cast<Op>(i)) == word) return static_cast<Op>(i);
  reader.fail(word, "the name of an instruction such as `forward`");
}

}  // namespace

Timeline read_timeline(std::string_view content, std::string_view file_name) {
  constexpr int most = 1 << 20;
  constexpr Seconds longest = 1e12;
  LineReader reader(content, file_name);
  if (!reader.next_line()) reader.fail("", "`trireme timeline 1`");
  for (const auto* word : {"trireme", "timeline", "1"}) reader.expect(word);
  reader.end_of_line();
  if (!reader.next_line()) reader.fail("", "`ranks`");
  Timeline t;
  reader.expect("ranks");
  t.layout.ranks = reader.number("the number of ranks", 1, most);
  reader.expect("micro_batches");
  t.layout.micro_batches = reader.number("the number of micro-batches", 1, most);
  reader.expect("chunks");
  t.layout.chunks = reader.number("the number of chunks", 1, most / t.layout.ranks);
  reader.expect("tied");
  t.layout.tied = reader.number("whether the token table is tied", 0, 1) == 1;
  for (std::string_view word = reader.word(); !word.empty(); word = reader.word()) {
    if (word == "placement") {
      reader.expect("v");
      t.layout.placement = StagePlacement::v;
    } else if (word == "vocabulary") {
      reader.expect("pipeline");
      t.layout.shares_vocabulary = true;
    } else if (word == "steps") {
      t.layout.steps = reader.number("the number of steps", 1, overlapped_steps);
    } else {
      reader.fail(word, "`placement`, `vocabulary`, `steps` or the end of the line");
    }
  }
  while (reader.next_line()) {
    Event e;
    e.rank = reader.number("a rank", 0, t.layout.ranks - 1);
    e.position = reader.number("a position", 0, 1 << 30);
    e.instr.op = read_op(reader);
    e.instr.stage = reader.number("a stage", 0, t.layout.stages() - 1);
    e.instr.micro = reader.number("a micro-batch", 0, t.layout.passes() - 1);
    e.begin = reader.number("a time", -longest, longest);
    e.end = reader.number("a time not before the begin", e.begin, longest);
    reader.end_of_line();
    t.events.push_back(e);
  }
  return t;
}

}  // namespace trireme::schedule
