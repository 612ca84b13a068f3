#include <trireme/schedule/draw.hpp>

#include "schedule/support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

namespace trireme::schedule {
namespace {

Timeline simulated(ScheduleKind kind, const ProgramLayout& layout, const Cost& cost = unit_cost) {
  return simulate(lowered(kind, layout), cost).timeline;
}

std::size_t count(std::string_view text, std::string_view word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + word.size()))
    ++found;
  return found;
}

TEST(Draw, TextShowsEveryRankAndTheIdleShare) {
  const std::string expected =
      "1f1b: 2 pipeline ranks, 3 micro-batches\n"
      "idle 25.0 %\n"
      "rank 0 |F0-F1-......B0----F2-B1----...B2----|\n"
      "rank 1 |...F0-B0----F1-B1----F2-B2----......|\n";
  EXPECT_EQ(text_chart(simulated(one_f_one_b, {2, 3}), {"1f1b"}), expected);
}

TEST(Draw, TextFitsItsColumns) {
  for (const Case& c : {Case{one_f_one_b, {16, 64}}, Case{interleaved, {12, 24, 3}},
                        Case{zb_h1, {4, 100}}, Case{gpipe, {1, 1}}}) {
    std::istringstream lines(text_chart(simulated(c.kind, c.layout), {}));
    std::size_t widest = 0;
    for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
    EXPECT_LE(widest, 180u + 12) << c;
  }
}

TEST(Draw, PictureHasANumberedBoxPerComputation) {
  const std::string picture = svg(simulated(zb_h1, {4, 8}), {"zb-h1"});
  EXPECT_EQ(count(picture, "<title>"), 3u * 4 * 8);
  EXPECT_EQ(count(picture, "text-anchor=\"middle\""), 3u * 4 * 8);
  EXPECT_EQ(count(picture, ">rank "), 4u + 3u * 4 * 8);
  EXPECT_EQ(count(picture, "backward, weight half"), 1u);
  EXPECT_NE(picture.find(">zb-h1: 4 pipeline ranks, 8 micro-batches<"), std::string::npos);
  EXPECT_NE(picture.find(">idle 11.1 %<"), std::string::npos);
}

TEST(Draw, EscapesTitles) {
  const Timeline t = simulated(gpipe, {1, 1});
  const std::string picture = svg(t, {"a<b> & \"c\"\x01"});
  EXPECT_NE(picture.find(">a&lt;b&gt; &amp; &quot;c&quot; : 1 pipeline rank,"), std::string::npos);
  const std::string trace = perfetto_trace(t, {"a\"b\\c\n"});
  EXPECT_NE(trace.find("\"a\\\"b\\\\c\\u000a: 1 pipeline rank"), std::string::npos) << trace;
}

TEST(Draw, ShowsPredictedAndMeasuredSideBySide) {
  const Timeline measured = simulated(one_f_one_b, {3, 4}, [](const Instr& i) {
    return unit_cost(i) * (i.stage == 1 ? 0.02 : 0.01);
  });
  const Timeline predicted =
      simulated(one_f_one_b, {3, 4}, [](const Instr& i) { return unit_cost(i) * 0.01; });
  const DrawOptions options{"1f1b", &measured, true};
  const std::string lines[] = {idle_line(predicted, "predicted", true),
                               idle_line(measured, "measured", true)};
  EXPECT_EQ(lines[0], "predicted: idle 33.3 %, 180.00 ms");
  for (const std::string& drawing : {svg(predicted, options), text_chart(predicted, options),
                                     perfetto_trace(predicted, options)})
    for (const std::string& line : lines) EXPECT_EQ(count(drawing, line), 1u) << drawing;
}

TEST(Draw, TraceHasASlicePerInstruction) {
  const Program program = lowered(interleaved, {2, 4, 2}, {true});
  std::size_t instructions = 0, sends = 0, receives = 0;
  for (const auto& row : program.ranks)
    for (const Instr& i : row) {
      ++instructions;
      sends += is_send(i.op);
      receives += is_receive(i.op);
    }
  const std::string trace = perfetto_trace(simulate(program, unit_cost).timeline, {"interleaved"});
  EXPECT_EQ(count(trace, "\"ph\":\"X\""), instructions - sends - receives);
  EXPECT_EQ(count(trace, "\"ph\":\"b\""), receives);
  EXPECT_EQ(count(trace, "\"ph\":\"e\""), receives);
  EXPECT_EQ(count(trace, "{"), count(trace, "}"));
}

TEST(Draw, LargeProgramsGiveSmallPictures) {
  for (const auto& [kind, chunks] : {std::pair{one_f_one_b, 1}, std::pair{interleaved, 4}}) {
    const std::string picture = svg(simulated(kind, {64, 512, chunks}), {"large"});
    EXPECT_LT(picture.size(), 4u << 20);
    EXPECT_EQ(count(picture, "<title>"), 0u);
    EXPECT_NE(picture.find("width=\"1688\""), std::string::npos) << picture.substr(0, 200);
  }
}

TEST(Draw, DrawsAnEmptyTimeline) {
  const Timeline nothing;
  EXPECT_NE(svg(nothing).find("</svg>"), std::string::npos);
  EXPECT_EQ(text_chart(nothing), "1 pipeline rank, 1 micro-batch\nidle 0.0 %\nrank 0 ||\n");
  EXPECT_NE(perfetto_trace(nothing).find("traceEvents"), std::string::npos);
}

}  // namespace
}  // namespace trireme::schedule
