#include <trireme/base/check.hpp>
#include <trireme/schedule/text_format.hpp>

#include "schedule/support.hpp"

#include <gtest/gtest.h>

namespace trireme::schedule {
namespace {

TEST(TextFormat, EveryGeneratedProgramReadsBackAsWritten) {
  for (const Case& c : cases(5, 7, 3)) {
    const Program program = generate(c.kind, c.layout);
    EXPECT_EQ(read_program(write_program(program), "a.program", c.layout), program) << c;
    // Of a lowered program only the computations are written.
    EXPECT_EQ(read_program(write_program(lowered(program)), "a.program", c.layout), program) << c;
  }
  for (int v = 1; v <= 3; ++v) {
    const Program program = generate_evaluation({3, 5, v});
    EXPECT_EQ(read_program(write_program(program), "a.program", program.layout), program);
  }
}

TEST(TextFormat, HandwrittenProgramsAreValid) {
  const std::string content =
      "# two ranks, two chunks\r\n"
      "\n"
      "F0.0 F1.0  F0.1\tF1.1 B0.1 I1.1 B0.0 W1.1 B1.0   # rank 0\n"
      "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 I0.0 I1.0 W0.0 W1.0";
  Program program = read_program(content, "mine.program", {2, 2, 2});
  ASSERT_EQ(program.ranks[0].size(), 9u);
  EXPECT_EQ(program.ranks[0][5], (Instr{Op::backward_input, 2, 1}));
  EXPECT_EQ(program.ranks[1][3], (Instr{Op::backward, 3, 0}));
  for (const Transport transport : transports)
    EXPECT_EQ(validate(lowered(program, {false, transport}), transport),
              std::vector<std::string>{});
  EXPECT_TRUE(needs(lowered(program), 1).split_backward);
}

std::string error_of(const std::string& content, const ProgramLayout& layout) {
  try {
    read_program(content, "my.program", layout);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

void expect_error(const std::string& content, const ProgramLayout& layout,
                  const std::string& beginning, const std::string& part) {
  const std::string error = error_of(content, layout);
  EXPECT_EQ(error.substr(0, beginning.size()), beginning) << error;
  EXPECT_NE(error.find(part), std::string::npos) << error;
}

TEST(TextFormat, MistakesNameLineWordAndRemedy) {
  const ProgramLayout two{1, 2};
  expect_error("F0 G1", two, "my.program:1:4: `G1`: expected a letter and a micro-batch such as F0",
               "letters are F forward");
  expect_error("F0 F", two, "my.program:1:4: `F`: expected a letter", "such as F0");
  expect_error("F0 F1x", two, "my.program:1:4: `F1x`: expected a letter", "such as F0");
  expect_error("F-1", two, "my.program:1:1: `F-1`: expected a letter", "such as F0");
  expect_error("# F9\n F0 F2", two, "my.program:2:5: `F2`: expected a micro-batch from 0 to 1",
               "[batch] global");
  expect_error("F99999999999", two, "my.program:1:1: `F99999999999`: expected a micro-batch",
               "0 to 1");
  expect_error("F0 F1.1", two, "my.program:1:4: `F1.1`: expected a chunk from 0 to 0",
               "[parallel] chunks");
  expect_error("F0.0 F1", {1, 2, 2}, "my.program:1:6: `F1`: expected a chunk after",
               "write F1.0 for the first stage");
  expect_error("F0 F1 F0", two, "my.program:1:7: `F0`: expected each computation once",
               "as F0 in line 1, column 1");
  expect_error("F0 F1 B0 I0", two, "my.program:1:10: `I0`: expected each computation once",
               "as B0 in line 1, column 7");
  expect_error("F0 F1 I0 B0", two, "my.program:1:10: `B0`: expected each computation once",
               "as I0 in line 1, column 7");
  expect_error("F0 B1", two, "my.program:1:4: `B1`: expected F1 before it", "move or add");
  expect_error("F0 F1 W0", two, "my.program:1:7: `W0`: expected I0 before it", "move or add");
  expect_error("F0 F1 B1 B0", two, "my.program:1:7: `B1`: expected B0 before it", "same bits");
  expect_error("F0 F1 E0", two, "my.program:1:7: `E0`: expected no E", "trains or evaluates");
  expect_error("E0 F1", two, "my.program:1:4: `F1`: expected E only", "trains or evaluates");
  expect_error("F0 F1 B0", two, "my.program:1:9: end of the line of rank 0: expected B1",
               "add it to the line");
  expect_error("F0 F1 I0 I1 W0", two, "my.program:1:15: end of the line of rank 0: expected W1",
               "add it to the line");
  expect_error("E1", two, "my.program:1:3: end of the line of rank 0: expected E0", "add it");
  expect_error("F0 B0\n", {2, 1}, "my.program:2:1: end of file: expected a line for each of the 2",
               "[parallel] pipeline");
  expect_error("F0 B0\nF0 B0\nF0 B0", {2, 1}, "my.program:3:1: `F0`: expected no more than 2 lines",
               "[parallel] pipeline");
  expect_error("", {2, 1}, "my.program:1:1: end of file: expected a line", "found 0");
}

TEST(TextFormat, VChunksMapToTheirStages) {
  ProgramLayout layout{2, 2, 2};
  layout.placement = StagePlacement::v;
  const Program program = generate(ScheduleKind::zb_v, layout);
  const std::string written = write_program(program);
  EXPECT_NE(written.find("[parallel] placement = \"v\""), std::string::npos);
  EXPECT_EQ(read_program(written, "a.program", layout), program);
  layout.placement = StagePlacement::round_robin;
  EXPECT_NE(read_program(written, "a.program", layout), program) << "other stages";
}

TEST(TextFormat, MutationsGiveAProgramOrAUsageError) {
  // A good program that is truncated anywhere or changed in any byte either reads or is a
  // UsageError.
  const ProgramLayout layout{2, 3, 2};
  const std::string good = write_program(generate(interleaved, layout));
  int errors = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    errors += error_of(good.substr(0, i), layout) != "no error";
    for (const char c : {'\0', ' ', '\n', '.', '9', 'W', '#', '\xff'}) {
      std::string changed = good;
      changed[i] = c;
      errors += error_of(changed, layout) != "no error";
    }
  }
  EXPECT_GT(errors, 300);
}

}  // namespace
}  // namespace trireme::schedule
