#include <trireme/base/log.hpp>

#include <support/temporary_folder.hpp>

#include <gtest/gtest.h>

namespace trireme {
namespace {

using testing::read_file;

TEST(Log, EndsATruncatedLineBeforeTheNextMessage) {
  const testing::TemporaryFolder folder;
  for (const auto& [before, after] : {std::pair{"", "said\n"}, std::pair{"one\n", "one\nsaid\n"},
                                      std::pair{"one\ntw", "one\ntw\nsaid\n"}}) {
    const std::string path = folder.write("log.txt", before);
    log::set_file(path);
    say("said");
    log::set_file("");
    EXPECT_EQ(read_file(path), after);
  }
}

}  // namespace
}  // namespace trireme
