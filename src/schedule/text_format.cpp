// Reads and writes programs as text. Each word is checked against earlier words, so that errors
// name the mistake's line and column.
#include <trireme/schedule/text_format.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <charconv>

namespace trireme::schedule {
namespace {

constexpr std::string_view letters = "FEBIW";  // in the order of Op
static_assert(letters.size() == static_cast<std::size_t>(Op::backward_weight) + 1);

/// The instruction as text: "F3.1", without the chunk if ranks have one stage each.
std::string word_of(const Instr& i, const ProgramLayout& layout) {
  std::string out = text(letters[static_cast<std::size_t>(i.op)], i.micro);
  if (layout.chunks > 1) out += text(".", layout.chunk_of(i.stage));
  return out;
}

struct Place {
  int line = 0;  ///< 0: absent
  int column = 0;
};

class Reader {
 public:
  Reader(std::string_view content, std::string_view file, const ProgramLayout& layout)
      : rest_(content),
        file_(file),
        program_{layout, {}},
        seen_(letters.size() * static_cast<std::size_t>(layout.stages() * layout.micro_batches)) {}

  Program read() {
    while (!rest_.empty()) {
      const std::size_t end = std::min(rest_.find('\n'), rest_.size());
      std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++line_;
      read_line(line.substr(0, std::min(line.find('#'), line.size())));
    }
    const int found = static_cast<int>(program_.ranks.size());
    if (found < layout().ranks)
      fail_at(text(file_, ":", line_ + 1, ":1: end of file"),
              text("a line for each of the ", layout().ranks, " pipeline ranks, found ", found),
              "write the missing lines, or change [parallel] pipeline");
    return std::move(program_);
  }

 private:
  const ProgramLayout& layout() const { return program_.layout; }
  Rank rank() const { return static_cast<Rank>(program_.ranks.size()) - 1; }

  [[noreturn]] static void fail_at(const std::string& where, const std::string& expected,
                                   const std::string& remedy) {
    throw UsageError(text(where, ": expected ", expected, "; ", remedy));
  }
  [[noreturn]] void fail(std::string_view word, const std::string& expected,
                         const std::string& remedy) const {
    fail_at(text(file_, ":", line_, ":", column_, ": `", word, "`"), expected, remedy);
  }

  void read_line(std::string_view line) {
    constexpr std::string_view blank = " \t\r";
    std::size_t begin = line.find_first_not_of(blank);
    if (begin == std::string_view::npos) return;
    program_.ranks.emplace_back();
    while (begin != std::string_view::npos) {
      const std::size_t end = std::min(line.find_first_of(blank, begin), line.size());
      column_ = static_cast<int>(begin) + 1;
      const std::string_view word = line.substr(begin, end - begin);
      if (rank() >= layout().ranks)
        fail(word, text("no more than ", layout().ranks, " lines, one for each pipeline rank"),
             "remove the line, or change [parallel] pipeline");
      add(word, parse(word));
      begin = line.find_first_not_of(blank, end);
    }
    ++column_;
    check_complete(line.size());
  }

  Instr parse(std::string_view word) const {
    const std::size_t letter = letters.find(word.front());
    std::string_view number = word.substr(1);
    Micro micro = 0;
    int chunk = 0;
    const bool good = letter != std::string_view::npos && take_number(number, micro) &&
                      (number.empty() ||
                       (number.front() == '.' &&
                        (number.remove_prefix(1), take_number(number, chunk)) && number.empty()));
    if (!good)
      fail(word,
           layout().chunks > 1 ? "a letter, a micro-batch and a chunk such as F0.1"
                               : "a letter and a micro-batch such as F0",
           "letters are F forward, B backward, I and W its input and weight halves, E evaluate");
    if (layout().chunks > 1 && word.find('.') == std::string_view::npos)
      fail(word,
           "a chunk after the micro-batch, because [parallel] chunks = " +
               std::to_string(layout().chunks),
           text("write ", word, ".0 for the first stage of the rank"));
    if (micro >= layout().micro_batches)
      fail(word, text("a micro-batch from 0 to ", layout().micro_batches - 1),
           "change the word, or [batch] global, which determines the number of micro-batches "
           "together with [batch] micro and [parallel] data");
    if (chunk >= layout().chunks)
      fail(word, text("a chunk from 0 to ", layout().chunks - 1),
           "change the word, or [parallel] chunks");
    return {static_cast<Op>(letter), layout().stage_of(rank(), chunk), micro};
  }

  /// Takes digits from the front. A number that does not fit an int becomes 2^30.
  static bool take_number(std::string_view& from, int& value) {
    const auto result = std::from_chars(from.data(), from.data() + from.size(), value);
    if (from.empty() || from.front() == '-' || result.ec == std::errc::invalid_argument)
      return false;
    if (result.ec == std::errc::result_out_of_range) value = 1 << 30;
    from.remove_prefix(static_cast<std::size_t>(result.ptr - from.data()));
    return true;
  }

  Place& seen(Op op, const Instr& i) {
    const std::size_t micro =
        static_cast<std::size_t>(i.stage) * static_cast<std::size_t>(layout().micro_batches) +
        static_cast<std::size_t>(i.micro);
    return seen_[micro * letters.size() + static_cast<std::size_t>(op)];
  }

  bool is_there(Op op, Instr i) {
    i.op = op;
    return seen(op, i).line > 0;
  }

  /// Checks that no instruction of `others` exists for this stage and micro-batch. B includes I and
  /// W, and therefore excludes them.
  void check_once(std::string_view word, const Instr& instr, std::initializer_list<Op> others) {
    for (const Op op : others)
      if (is_there(op, instr)) {
        const Place first = seen(op, instr);
        fail(word, "each computation once",
             text("it exists already as ", word_of({op, instr.stage, instr.micro}, layout()),
                  " in line ", first.line, ", column ", first.column, "; remove one of them"));
      }
  }
  void check_before(std::string_view word, const Instr& instr, Op wanted) {
    if (!is_there(wanted, instr))
      fail(word,
           text(word_of({wanted, instr.stage, instr.micro}, layout()),
                " before it in the same line"),
           "move or add one of them");
  }
  void check_chain(std::string_view word, const Instr& instr) {
    if (instr.micro == 0) return;
    const Instr before{instr.op, instr.stage, instr.micro - 1};
    if (!is_there(Op::backward, before) && !is_there(Op::backward_weight, before))
      fail(word, text(word_of(before, layout()), " before it in the same line"),
           "weight gradients are added in the order of the micro-batches, so that every schedule "
           "gives the same bits");
  }

  void add(std::string_view word, const Instr& instr) {
    if (evaluates_ == -1) evaluates_ = instr.op == Op::evaluate;
    if ((instr.op == Op::evaluate) != (evaluates_ == 1))
      fail(word, evaluates_ == 1 ? "E only, as in the words before" : "no E among F, B, I and W",
           "a program either trains or evaluates");
    if (instr.op == Op::backward) {
      check_once(word, instr, {Op::backward, Op::backward_input, Op::backward_weight});
      check_before(word, instr, Op::forward);
      check_chain(word, instr);
    } else if (instr.op == Op::backward_input) {
      check_once(word, instr, {Op::backward, Op::backward_input});
      check_before(word, instr, Op::forward);
    } else if (instr.op == Op::backward_weight) {
      check_once(word, instr, {Op::backward, Op::backward_weight});
      check_before(word, instr, Op::backward_input);
      check_chain(word, instr);
    } else {
      check_once(word, instr, {instr.op});
    }
    seen(instr.op, instr) = {line_, column_};
    program_.ranks.back().push_back(instr);
  }

  /// Checks at the end of a rank's line that no computation is missing.
  void check_complete(std::size_t length) {
    for (const Stage s : layout().map().stages_of(rank()))
      for (Micro m = 0; m < layout().micro_batches; ++m) {
        const Instr i{Op::forward, s, m};
        const auto there = [&](Op op) { return is_there(op, i); };
        Op missing = Op::forward;
        if (evaluates_ == 1) {
          if (there(Op::evaluate)) continue;
          missing = Op::evaluate;
        } else if (there(Op::forward)) {
          if (there(Op::backward) || there(Op::backward_weight)) continue;
          missing = there(Op::backward_input) ? Op::backward_weight : Op::backward;
        }
        fail_at(text(file_, ":", line_, ":", length + 1, ": end of the line of rank ", rank()),
                word_of({missing, s, m}, layout()),
                "every rank computes every micro-batch of its stages; add it to the line");
      }
  }

  std::string_view rest_;
  std::string_view file_;
  Program program_;
  std::vector<Place> seen_;  ///< by stage, micro-batch and operation
  int line_ = 0;
  int column_ = 0;
  int evaluates_ = -1;  ///< -1: unknown before the first word
};

}  // namespace

Program read_program(std::string_view content, std::string_view file_name,
                     const ProgramLayout& layout) {
  return Reader(content, file_name, layout).read();
}

std::string write_program(const Program& program) {
  const ProgramLayout& layout = program.layout;
  std::string out =
      text("# One line for each of ", layout.ranks, " pipeline ranks; ", layout.micro_batches,
           " micro-batches, ", layout.chunks, layout.chunks == 1 ? " stage" : " stages",
           " per rank.\n# F forward, B backward, I and W its input and weight halves, E evaluate; ",
           layout.chunks > 1 ? "micro-batch.chunk.\n" : "then the micro-batch.\n");
  if (layout.placement == StagePlacement::v)
    out += "# Stages are placed in a V: [parallel] placement = \"v\".\n";
  for (const auto& row : program.ranks) {
    std::string line;
    for (const Instr& i : row)
      if (is_pass(i.op)) line += (line.empty() ? "" : " ") + word_of(i, layout);
    out += line + "\n";
  }
  return out;
}

}  // namespace trireme::schedule
