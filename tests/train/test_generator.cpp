#include <trireme/base/check.hpp>
#include <trireme/train/generator.hpp>
#include <trireme/train/metrics.hpp>

#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace trireme::train {
namespace {

TEST(Draw, TemperatureZeroAndTopOneChooseTheLikeliest) {
  const std::vector<double> logits{0.1, 3.0, -1.0, 3.0};
  EXPECT_EQ(draw(logits, {0, 0, 1}, 0, 0), 1) << "the first of equals";
  EXPECT_EQ(draw(logits, {1, 1, 1}, 0, 0), 1);
}

/// The comparison of NaN orders nothing: sorting would be undefined.
TEST(Draw, RejectsNonFiniteLogits) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity()})
    for (const Sampling& sampling : {Sampling{0, 0, 1, 0}, {1, 0, 1, 0}, {1, 2, 1, 2}}) {
      const std::vector<double> logits{0.5, 1.0, bad, 0.25};
      try {
        draw(logits, sampling, 0, 7);
        ADD_FAILURE() << bad << " was accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::failed);
        EXPECT_NE(std::string(error.what()).find("token 2 after 7 generated"), std::string::npos);
      }
    }
}

TEST(Draw, NeverDrawsIdsWithoutText) {
  const std::vector<double> logits{0.0, 0.0, 50.0, 60.0};  // a vocabulary padded by two ids
  Sampling sampling;
  sampling.ids = 2;
  for (std::uint64_t position = 0; position < 100; ++position)
    EXPECT_LT(draw(logits, sampling, 0, position), 2);
}

TEST(Draw, FrequenciesFollowTheSoftmax) {
  const std::vector<double> logits{std::log(1.0), std::log(2.0), std::log(5.0), std::log(4.0)};
  const int n = 20000;
  for (const std::int64_t top_k : {0, 2}) {
    std::map<std::int32_t, int> counts;
    for (int i = 0; i < n; ++i)
      ++counts[draw(logits, {1, top_k, 9}, 3, static_cast<std::uint64_t>(i))];
    const double sum = top_k == 0 ? 12 : 9;
    for (std::int32_t id = 0; id < 4; ++id) {
      const double weight = std::exp(logits[static_cast<std::size_t>(id)]);
      const double p = top_k == 2 && id < 2 ? 0 : weight / sum;
      // Five deviations of a binomial count.
      EXPECT_NEAR(counts[id], n * p, 5 * std::sqrt(n * p * (1 - p)) + 1e-9) << id;
    }
  }
}

/// The probabilities are 5/12, 4/12, 2/12 and 1/12.
TEST(Draw, TopPAndMinPKeepTheLikeliest) {
  const std::vector<double> logits{std::log(1.0), std::log(2.0), std::log(5.0), std::log(4.0)};
  const auto drawn = [&](std::int64_t top_k, double top_p, double min_p) {
    std::set<std::int32_t> ids;
    for (std::uint64_t i = 0; i < 400; ++i)
      ids.insert(draw(logits, {1, top_k, 9, 0, top_p, min_p}, 3, i));
    return ids;
  };
  using Ids = std::set<std::int32_t>;
  EXPECT_EQ(drawn(0, 1, 0), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(drawn(0, 1e-9, 0), (Ids{2}));
  EXPECT_EQ(drawn(0, 5.0 / 12 - 1e-9, 0), (Ids{2}));
  EXPECT_EQ(drawn(0, 5.0 / 12 + 1e-9, 0), (Ids{2, 3}));
  EXPECT_EQ(drawn(0, 9.0 / 12 + 1e-9, 0), (Ids{1, 2, 3}));
  EXPECT_EQ(drawn(3, 5.0 / 11 + 1e-9, 0), (Ids{2, 3})) << "probabilities are those among the top k";
  EXPECT_EQ(drawn(3, 5.0 / 11 - 1e-9, 0), (Ids{2}));
  EXPECT_EQ(drawn(0, 1, 0.2 - 1e-9), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(drawn(0, 1, 0.2 + 1e-9), (Ids{1, 2, 3}));
  EXPECT_EQ(drawn(0, 1, 1), (Ids{2}));
  EXPECT_EQ(drawn(0, 10.0 / 12, 0.5), (Ids{2, 3}));
}

TEST(Draw, TopPFrequenciesFollowTheTruncatedSoftmax) {
  const std::vector<double> logits{std::log(1.0), std::log(2.0), std::log(5.0), std::log(4.0)};
  const int n = 20000;
  int likeliest = 0;
  for (int i = 0; i < n; ++i)
    likeliest += draw(logits, {1, 0, 9, 0, 0.7, 0}, 3, static_cast<std::uint64_t>(i)) == 2 ? 1 : 0;
  const double p = 5.0 / 9;
  EXPECT_NEAR(likeliest, n * p, 5 * std::sqrt(n * p * (1 - p)));
}

TEST(Draw, DependsOnSeedSampleAndPosition) {
  const std::vector<double> logits(1000, 0.0);
  const auto base = draw(logits, {1, 0, 1}, 0, 0);
  EXPECT_EQ(draw(logits, {1, 0, 1}, 0, 0), base);
  int same = 0;
  same += draw(logits, {1, 0, 2}, 0, 0) == base;
  same += draw(logits, {1, 0, 1}, 1, 0) == base;
  same += draw(logits, {1, 0, 1}, 0, 1) == base;
  EXPECT_LE(same, 1);
}

TEST(Metrics, ValuesReadBackExactly) {
  Metrics m;
  m.step = 7;
  m.loss = 0.1 + 0.2;
  m.learning_rate = 1.0 / 3;
  m.bits_per_byte = std::nextafter(2.0, 3.0);
  const std::string line = to_json(m);
  const auto number = [&](const std::string& key) {
    return std::strtod(line.c_str() + line.find("\"" + key + "\":") + key.size() + 3, nullptr);
  };
  EXPECT_EQ(number("loss"), m.loss);
  EXPECT_EQ(number("learning_rate"), m.learning_rate);
  EXPECT_EQ(number("bits_per_byte"), *m.bits_per_byte);
}

TEST(Metrics, NamesTheTermsOfTheObjective) {
  Metrics m;
  EXPECT_EQ(to_json(m).find("pair"), std::string::npos);
  m.other_losses = {{"pair_loss", 0.75}};
  m.validation_loss = 2.5;
  m.other_validation_losses = {{"pair_loss", 0.5}};
  const std::string line = to_json(m);
  EXPECT_NE(line.find(",\"pair_loss\":0.75,\"validation_loss\":2.5,"
                      "\"validation_pair_loss\":0.5}"),
            std::string::npos)
      << line;
}

TEST(Metrics, HaveTheLoadsOfExperts) {
  Metrics m;
  EXPECT_EQ(to_json(m).find("expert"), std::string::npos);
  m.expert_loads = {1, 2.5};
  EXPECT_NE(to_json(m).find(",\"expert_loads\":[1.0,2.5]}"), std::string::npos) << to_json(m);
  m.expert_tokens = {{4, 4}, {7, 1}};
  m.dropped_choices = {0, 0.25};
  EXPECT_NE(to_json(m).find(",\"expert_tokens\":[[4,4],[7,1]],\"expert_loads\":[1.0,2.5],"
                            "\"dropped_choices\":[0.0,0.25]}"),
            std::string::npos)
      << to_json(m);
}

TEST(Metrics, RestartedRunReadsAsOne) {
  const trireme::testing::TemporaryFolder folder;
  const auto write = [&](std::optional<std::int64_t> restored, std::int64_t first,
                         std::int64_t last) {
    MetricsFile file(folder.path().string(), restored);
    for (Metrics m; m.step <= last; ++m.step)
      if (m.step >= first) file.write(m);
  };
  const auto steps = [&](const std::string& name) {
    std::string found;
    std::ifstream in(folder.file(name));
    for (std::string line; std::getline(in, line);)
      found += line.substr(8, line.find(',') - 8) + " ";
    return found;
  };
  write(std::nullopt, 1, 5);
  write(3, 4, 6);
  EXPECT_EQ(steps("metrics.jsonl"), "1 2 3 4 5 6 ");
  write(std::nullopt, 1, 2);
  EXPECT_EQ(steps("metrics.jsonl"), "1 2 ");
  EXPECT_EQ(steps("metrics.previous-1.jsonl"), "1 2 3 4 5 6 ");
  write(std::nullopt, 1, 1);
  EXPECT_EQ(steps("metrics.previous-1.jsonl"), "1 2 3 4 5 6 ") << "nothing is overwritten";
  EXPECT_EQ(steps("metrics.previous-2.jsonl"), "1 2 ");
}

TEST(Metrics, RestartKeepsShortLinesInSinglePrecision) {
  EXPECT_EQ(to_json(StepLoss{12, 3.4012345678901, {{"pair_loss", 0.75}}, 0.1}),
            R"({"step":12,"loss":3.4012346,"gradient_norm":0.1,"pair_loss":0.75})");
  EXPECT_EQ(to_json(StepLoss{3, std::nan(""), {}, std::nullopt}), R"({"step":3,"loss":null})");
  EXPECT_EQ(to_json(StepLoss{3, 1e300, {}, 1e-300}),
            R"({"step":3,"loss":1e+300,"gradient_norm":0})");
  const trireme::testing::TemporaryFolder folder;
  Metrics logged;
  logged.step = 3;
  logged.time = "2026-11-22T20:20:23.045Z";
  {
    MetricsFile file(folder.path().string(), std::nullopt);
    file.write({StepLoss{1, 5, {}, 1}, StepLoss{2, 4, {}, 1}});
    file.write(logged);
    file.write({StepLoss{4, 3, {}, 1}});
  }
  const MetricsFile again(folder.path().string(), 3);
  EXPECT_EQ(again.last_logged()->step, 3);
  EXPECT_EQ(again.last_logged()->time, logged.time);
  EXPECT_EQ(again.last_kept()->step, 3);
  const std::string kept = trireme::testing::read_file(folder.file("metrics.jsonl"));
  EXPECT_EQ(kept, to_json(StepLoss{1, 5, {}, 1}) + "\n" + to_json(StepLoss{2, 4, {}, 1}) + "\n" +
                      to_json(logged) + "\n");
}

TEST(Metrics, RestartRemovesALineThatAKillTruncated) {
  const trireme::testing::TemporaryFolder folder;
  const auto line = [](std::int64_t step) {
    Metrics m;
    m.step = step;
    return to_json(m);
  };
  const std::string whole = line(8) + "\n" + line(9) + "\n";
  const std::string last = line(10);  // which begins like step 1
  const std::size_t digit = last.find("10") + 1;
  for (const std::size_t cut : {std::size_t{0}, std::size_t{1}, digit, digit + 1, last.size() / 2,
                                last.size() - 1, last.size()}) {
    folder.write("metrics.jsonl", whole + last.substr(0, cut));
    Metrics next;
    next.step = 11;
    MetricsFile(folder.path().string(), 10).write(next);
    EXPECT_EQ(trireme::testing::read_file(folder.file("metrics.jsonl")),
              whole + (cut == last.size() ? last + "\n" : "") + line(11) + "\n")
        << cut;
  }
}

}  // namespace
}  // namespace trireme::train
