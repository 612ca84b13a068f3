#include <trireme/commands/report/chart.hpp>
#include <trireme/commands/report/markup.hpp>
#include <trireme/commands/report/ticks.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace trireme::commands {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> labels(const Ticks& ticks) {
  std::vector<std::string> found;
  for (const Tick& t : ticks.ticks) found.push_back(t.label);
  return found;
}

using Words = std::vector<std::string>;

TEST(Markup, EscapesMarkupControlCharactersAndInvalidUtf8) {
  EXPECT_EQ(escaped("<a href=\"x\">&'\n\t\x01\x7F"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;\n   ");
  EXPECT_EQ(escaped("é – 😀"), "é – 😀");
  const std::string replaced = "\xEF\xBF\xBD";
  EXPECT_EQ(escaped("\xC3"), replaced);
  EXPECT_EQ(escaped("\x80z\xFF"), replaced + "z" + replaced);
  EXPECT_EQ(escaped("\xC0\xAF"), replaced + replaced) << "overlong";
  EXPECT_EQ(escaped("\xED\xA0\x80"), replaced + replaced + replaced) << "half a surrogate pair";
  EXPECT_EQ(escaped("\xEF\xBF\xBF"), replaced + replaced + replaced) << "XML refuses U+FFFF";
}

TEST(Ticks, AreRoundAndCoverTheRange) {
  EXPECT_EQ(labels(round_ticks(0.13, 4.9, 5)), (Words{"0", "1", "2", "3", "4", "5"}));
  EXPECT_EQ(labels(round_ticks(2.61, 2.78, 5)), (Words{"2.60", "2.65", "2.70", "2.75", "2.80"}));
  EXPECT_EQ(labels(round_ticks(0, 3e-4, 5)), (Words{"0", "1e-4", "2e-4", "3e-4"}));
  EXPECT_EQ(labels(round_ticks(0, 2.4e-4, 5)),
            (Words{"0", "5e-5", "1e-4", "1.5e-4", "2e-4", "2.5e-4"}));
  EXPECT_EQ(labels(round_ticks(0, 26000, 5)), (Words{"0", "10,000", "20,000", "30,000"}));
  EXPECT_EQ(labels(round_ticks(0, 2.1e6, 5)),
            (Words{"0", "0.5 M", "1.0 M", "1.5 M", "2.0 M", "2.5 M"}));
  EXPECT_EQ(labels(round_ticks(-2, 2, 5)), (Words{"-2", "-1", "0", "1", "2"}));
}

TEST(Ticks, ASingleValueHasRoomOnBothSides) {
  for (const double value : {0.0, 5.5, -3.0, 1e-9, 1e12}) {
    const Ticks t = round_ticks(value, value, 5);
    EXPECT_LT(t.low, t.high);
    EXPECT_LE(t.low, value);
    EXPECT_GE(t.high, value);
    EXPECT_GE(t.ticks.size(), 2u) << value;
  }
}

TEST(Ticks, StepTicksAreIntegersWithinTheRun) {
  EXPECT_EQ(labels(step_ticks(0, 1, 5)), (Words{"0", "1"}));
  EXPECT_EQ(labels(step_ticks(0, 7, 5)), (Words{"0", "2", "4", "6"}));
  const Ticks t = step_ticks(0, 99999, 5);
  EXPECT_EQ(labels(t), (Words{"0", "20,000", "40,000", "60,000", "80,000"}));
  EXPECT_EQ(t.high, 99999);
}

TEST(Ticks, LogarithmicTicksAreDecadesAndTheirParts) {
  EXPECT_EQ(labels(log_ticks(0.3, 40, 5)), (Words{"0.2", "0.5", "1", "2", "5", "10", "20", "50"}));
  EXPECT_EQ(labels(log_ticks(2e-3, 3, 5)), (Words{"1e-3", "0.01", "0.1", "1", "10"}));
  EXPECT_EQ(labels(log_ticks(2.5e5, 1.6e6, 5)), (Words{"2e5", "5e5", "1e6", "2e6"}));
  EXPECT_EQ(labels(log_ticks(2.6, 2.8, 5)), (Words{"2.60", "2.65", "2.70", "2.75", "2.80"}));
  for (const auto& [low, high] :
       {std::pair{1e-9, 1e9}, {7.0, 7.0}, {65536.0, 65536.0}, {1.0, 9.9}}) {
    const Ticks t = log_ticks(low, high, 5);
    EXPECT_GT(t.low, 0);
    EXPECT_LE(t.low, low * (1 + 1e-9));
    EXPECT_GE(t.high, high * (1 - 1e-9));
    EXPECT_GE(t.ticks.size(), 2u) << low;
    EXPECT_LE(t.ticks.size(), 9u) << low;
  }
}

TEST(Ticks, LabelsAreShort) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(2.645012801), "2.645");
  EXPECT_EQ(short_number(2.5), "2.5");
  EXPECT_EQ(short_number(26011.4), "26,011");
  EXPECT_EQ(short_number(99.96, 3), "100");
  EXPECT_EQ(short_number(0.01234567), "0.01235");
  EXPECT_EQ(short_number(2.28e-7), "2.28e-7");
  EXPECT_EQ(short_number(-1234567), "-1,234,567");
  EXPECT_EQ(short_number(nan), "not finite");
}

TEST(PlotColumns, HoldEveryPointIfRoomAllows) {
  const std::vector<Point> points{{1, 5}, {2, nan}, {4, 3}};
  const auto columns = plot_columns(points, 3);
  ASSERT_EQ(columns.size(), 3u);
  EXPECT_EQ(columns[0].mean, 5);
  EXPECT_EQ(columns[1].points, 0);
  EXPECT_EQ(columns[1].not_finite, 1);
  EXPECT_EQ(columns[2].x, 4);
  EXPECT_TRUE(plot_columns({}, 3).empty());
  EXPECT_EQ(plot_columns(std::vector<Point>{{7, 1}}, 1).size(), 1u);
}

/// 100,000 points: nothing is lost, neither a peak nor a mean.
TEST(PlotColumns, KeepMinimumMaximumAndMean) {
  std::vector<Point> points;
  double sum = 0;
  for (int i = 1; i <= 100000; ++i) {
    const double y = std::sin(i * 0.01) + (i == 54321 ? 40 : 0);
    points.push_back({static_cast<double>(i), i == 777 ? nan : y});
    sum += i == 777 ? 0 : y;
  }
  const auto columns = plot_columns(points, 480);
  ASSERT_EQ(columns.size(), 480u);
  double largest = 0;
  double total = 0;
  std::int64_t finite = 0;
  std::int64_t others = 0;
  double before = 0;
  for (const PlotColumn& c : columns) {
    EXPECT_GT(c.first_x, before);
    EXPECT_LE(c.minimum, c.mean);
    EXPECT_LE(c.mean, c.maximum);
    EXPECT_GE(c.x, c.first_x);
    EXPECT_LE(c.x, c.last_x);
    before = c.last_x;
    largest = std::max(largest, c.maximum);
    total += c.mean * static_cast<double>(c.points);
    finite += c.points;
    others += c.not_finite;
  }
  EXPECT_EQ(before, 100000);
  EXPECT_EQ(largest, points[54320].y);
  EXPECT_EQ(finite, 99999);
  EXPECT_EQ(others, 1);
  EXPECT_NEAR(total, sum, 1e-8);
}

/// Points on one side of a gap do not make columns of the gap.
TEST(PlotColumns, GapsHaveNoColumns) {
  std::vector<Point> points;
  for (int i = 0; i < 1000; ++i) points.push_back({static_cast<double>(i), 1});
  points.push_back({1e6, 2});
  const auto columns = plot_columns(points, 100);
  ASSERT_EQ(columns.size(), 2u);
  EXPECT_EQ(columns[0].points, 1000);
  EXPECT_EQ(columns[1].mean, 2);
}

TEST(Chart, DescribesItselfInWords) {
  const std::vector<Series> series{{"training", "first", {{1, 5.5}, {2, nan}, {3, 2.25}}},
                                   {"validation", "second", {{3, 3.125}}}};
  const std::vector<Mark> marks{{MarkKind::restart, 2, "restart behind <2>"}};
  const std::vector<XAxis> axes{{.last = 3}};
  const std::string page =
      chart(series, {.title = "Loss", .unit = "nats", .axes = axes, .marks = marks});
  for (const char* part :
       {"<b class=\"y-title\" aria-hidden=\"true\">nats</b>", "<b>step</b>",
        "aria-label=\"Loss, nats, steps 0 to 3. training: from 2.25 to 5.5, last 2.25. "
        "validation: from 3.125 to 3.125, last 3.125.\"",
        "<title>step 3\ntraining 2.25\nvalidation 3.125</title>", "step 2\ntraining not finite",
        "restart behind &lt;2&gt;", "class=\"mark restart\" d=\"M666.7 0V1000\""})
    EXPECT_NE(page.find(part), std::string::npos) << part << " in:\n" << page;
  EXPECT_EQ(page.find("nan"), std::string::npos);
}

TEST(Chart, ReportsThatNoValueIsFinite) {
  const std::vector<XAxis> axes{{.last = 2}};
  EXPECT_NE(chart({{"loss", "first", {{1, nan}}}}, {.title = "Loss", .axes = axes})
                .find("No number to show"),
            std::string::npos);
  EXPECT_NE(chart({{"norm", "first", {{1, 0}, {2, -1}}}},
                  {.title = "Norm", .logarithmic = true, .axes = axes})
                .find("No number"),
            std::string::npos)
      << "a logarithmic axis has no place for what is not above 0";
}

int occurrences(const std::string& text, const std::string& part) {
  int n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Chart, HasOnePicturePerIndependentAxis) {
  XAxis tokens{"tokens", "tokens", "tokens", 300, [](std::size_t, double s) { return 100 * s; }};
  const XAxis time{"time", "hours in steps", "hours", 9,
                   [](std::size_t run, double s) { return s * s * (run == 0 ? 1 : 0.25); }};
  const std::vector<Series> series{{"a", "run-1", {{1, 5}, {3, 2}}, 0},
                                   {"b", "run-2", {{2, 4}}, 1}};
  const auto page_with = [&](double per_step) {
    tokens.per_step = per_step;
    const std::vector<XAxis> axes{{.last = 3}, tokens, time};
    return chart(series, {.title = "Loss", .axes = axes});
  };
  const std::string page = page_with(100);
  EXPECT_EQ(occurrences(page, "<svg"), 2);
  EXPECT_EQ(occurrences(page, "<svg class=\"by by-steps by-tokens\""), 1);
  EXPECT_EQ(occurrences(page, "class=\"x-labels by by-tokens\""), 1);
  EXPECT_EQ(occurrences(page_with(0), "<svg"), 3);
  for (const char* part : {"<title>1 hours", "d=\"M111.1 0L1000 1000\"", "<b>hours in steps</b>"})
    EXPECT_NE(page.find(part), std::string::npos) << part << " in:\n" << page;
}

/// Neighbours of a colour are one rectangle; cells with the smallest value have no colour.
TEST(Chart, DrawsAHeatMap) {
  const std::vector<Series> rows{{"layer 1", "first", {{1, 1}, {2, 1}, {3, 2}, {4, 2}}},
                                 {"layer 3", "first", {{1, 3}, {2, 3}, {3, nan}, {4, 2}}}};
  const std::vector<XAxis> axes{{.last = 4}};
  const std::string page =
      chart(rows, {.title = "Load", .unit = "layer", .rows = {"1", "3"}, .axes = axes});
  for (const char* part :
       {"<path class=\"cells\" fill-opacity=\"0.5\" "
        "d=\"M625 500H1000V1000H625ZM875 0H1000V500H875Z\"/>",
        "<path class=\"cells\" fill-opacity=\"1\" d=\"M0 0H625V500H0Z\"/>",
        "<span style=\"top:75%\">1</span><span style=\"top:25%\">3</span>",
        "aria-label=\"Load, layer, steps 0 to 4. From 1 to 3, the largest in layer 3.\"",
        "<title>step 2\nlayer 3 3\nlayer 1 1</title>", "<title>step 3\nlayer 1 2</title>",
        "<span>1 <span class=\"colours\"></span> 3</span>"})
    EXPECT_NE(page.find(part), std::string::npos) << part << " in:\n" << page;
  EXPECT_EQ(occurrences(page, "class=\"cells\""), 2);
  EXPECT_EQ(occurrences(page, "class=\"line"), 0);
}

/// 60 layers and 100,000 steps: names of some rows, 100 cells in each, values of three.
TEST(Chart, DrawsAHeatMapOfManySteps) {
  std::vector<Series> rows;
  ChartOptions options{.title = "Load"};
  for (int layer = 0; layer < 60; ++layer) {
    options.rows.push_back(std::to_string(layer));
    rows.push_back({"layer " + options.rows.back(), "first", {}});
    for (int step = 1; step <= 100000; ++step)
      rows.back().points.push_back(
          {static_cast<double>(step), 1 + std::abs(std::sin(layer + step * 1e-3))});
  }
  const std::vector<XAxis> axes{{.last = 100000}};
  options.axes = axes;
  const std::string page = chart(rows, options);
  EXPECT_LT(page.size(), 300000u);
  EXPECT_EQ(occurrences(page, "<span style=\"top:"), 8);
  EXPECT_EQ(occurrences(page, "<title>"), 100);
  EXPECT_EQ(occurrences(page, "\nlayer "), 300);
}

TEST(Chart, DrawsTheMovingAverageOfANoisyCurve) {
  Series noisy{"loss", "first", {}, 0, true};
  for (int i = 1; i <= 200; ++i)
    noisy.points.push_back({static_cast<double>(i), i % 2 ? 1.0 : 3.0});
  const auto average = moving_average(plot_columns(noisy.points, 400));
  ASSERT_EQ(average.size(), 200u);
  for (std::size_t i = 10; i < 190; ++i) EXPECT_NEAR(average[i], 2, 1e-3) << i;
  const std::vector<XAxis> axes{{.last = 200}};
  const auto page = [&] { return chart({noisy}, {.title = "Loss", .axes = axes}); };
  EXPECT_EQ(occurrences(page(), "class=\"raw first\""), 1);
  EXPECT_EQ(occurrences(page(), "class=\"line first\""), 1);
  noisy.points.resize(20);
  EXPECT_EQ(occurrences(page(), "class=\"raw first\""), 0) << "too short for an average";
}

}  // namespace
}  // namespace trireme::commands
