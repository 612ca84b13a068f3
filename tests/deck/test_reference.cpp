#include <trireme/deck/deck.hpp>

#include <trireme/deck/table.hpp>

#include <gtest/gtest.h>

#include <set>

#include "deck/example.hpp"
#include "support/temporary_folder.hpp"

namespace trireme::deck {
namespace {

TEST(Reference, PageInDocsIsTheOneMadeFromTheTable) {
  EXPECT_TRUE(testing::read_file(TRIREME_SOURCE_DIR "/docs/deck.md") == reference_markdown())
      << "mend with: trireme help deck --markdown > docs/deck.md";
}

TEST(Reference, TextNamesEveryKeyOfEverySection) {
  const std::string help = reference_text();
  for (const Section& section : sections()) expect_contains(help, "\n[" + section.name + "]");
  for (const Key& key : keys()) {
    expect_contains(help, "\n  " + key.name + " ");
    EXPECT_FALSE(key.help.empty()) << key.full_name();
  }
}

TEST(Table, EveryKeyHasASectionAndIsDeclaredOnce) {
  std::set<std::string> names, known;
  for (const Section& section : sections()) known.insert(section.name);
  for (const Key& key : keys()) {
    EXPECT_TRUE(known.contains(key.section)) << key.full_name();
    EXPECT_TRUE(names.insert(key.full_name()).second) << key.full_name();
    EXPECT_EQ(find_key(key.section, key.name), &key);
  }
}

TEST(Table, EveryKeyIsKeptInAPlaceOfItsOwn) {
  for (const Key& changed : keys()) {
    if (changed.type != KeyType::integer) continue;
    Config config;
    changed.store(config, Value(std::int64_t{12345}));
    for (const Key& key : keys())
      if (key.type == KeyType::integer && &key != &changed) {
        EXPECT_NE(key.load(config), Value(std::int64_t{12345}))
            << changed.full_name() << " " << key.full_name();
      }
  }
}

}  // namespace
}  // namespace trireme::deck
