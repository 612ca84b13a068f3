// The table of update rules, and its description in docs/optimizers.md.
#include <trireme/rules/kinds.hpp>

#include "support/source_folder.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <string_view>

namespace trireme::rules {
namespace {

/// Settings with which every rule has all its state.
Settings with_momentum() {
  Settings settings;
  settings.momentum = 0.9;
  return settings;
}

const Description& rule(std::string_view word) {
  return rule_of(parse<OptimizerKind>(word).value());
}

TEST(Rules, AreDescribedInTheDocumentWithTheirState) {
  std::ifstream in(testing::source_folder() + "/docs/optimizers.md");
  if (!in) GTEST_SKIP() << "a bundle of tests has no documents";
  std::set<std::string> found;
  for (std::string line; std::getline(in, line);)
    for (const std::string_view word : names<OptimizerKind>()) {
      if (!line.starts_with("| `" + std::string(word) + "` |")) continue;
      found.emplace(word);
      for (const StateArray& state : rule(word).states(with_momentum()))
        EXPECT_NE(line.find("`optimizer." + std::string(state.name) + "`"), std::string::npos)
            << word << " has " << state.name;
    }
  EXPECT_EQ(found.size(), names<OptimizerKind>().size());
}

TEST(Rules, HaveTheKeysThatTheyRead) {
  EXPECT_EQ(readers_of("trust_coefficient"), "lars");
  EXPECT_EQ(readers_of("nesterov", " or ", "\""), "\"sgd\" or \"muon\"");
  EXPECT_EQ(readers_of("beta1"), "adamw, lamb, muon and lion");
  for (const std::string_view word : names<OptimizerKind>())
    EXPECT_NE(rule(word).keys.find("weight_decay"), std::string_view::npos) << word;
}

TEST(Rules, NeedNormsAndMatricesByTheirPasses) {
  const Settings settings = with_momentum();
  EXPECT_EQ(rule("adamw").norms(settings), 0);
  EXPECT_EQ(rule("lars").norms(settings), 1);
  EXPECT_EQ(rule("lamb").norms(settings), 2);
  EXPECT_EQ(rule("adafactor").norms(settings), 2);
  EXPECT_TRUE(rule("muon").has(PassKind::whole_matrices, settings));
  EXPECT_TRUE(rule("adafactor").has(PassKind::means, settings));
  EXPECT_FALSE(rule("lion").has(PassKind::means, settings));
}

/// Rules with fewer state arrays or other passes for some settings have passes that suit the state.
TEST(Rules, ChangeOnlyStateThatTheyHave) {
  for (const std::string_view word : names<OptimizerKind>())
    for (const double momentum : {0.0, 0.9})
      for (const bool nesterov : {false, true}) {
        Settings settings;
        settings.momentum = momentum;
        settings.nesterov = nesterov && momentum > 0;
        int updates = 0;
        for (const Pass& pass : rule(word).passes(settings)) {
          EXPECT_LE(pass.states, std::ssize(rule(word).states(settings))) << word;
          updates += pass.kind == PassKind::elements ? 1 : 0;
        }
        EXPECT_GE(updates, 1) << word;
      }
}

}  // namespace
}  // namespace trireme::rules
