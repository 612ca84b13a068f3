#include <trireme/commands/report/run_events.hpp>

#include <support/temporary_folder.hpp>

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

/// docs/events.md against base/events.hpp.
namespace trireme::commands {
namespace {

std::string page() {
  return testing::read_file(TRIREME_SOURCE_DIR "/docs/events.md");
}

template <class E>
void expect_row_of() {
  const std::string text = page();
  const auto at = text.find("\n| `" + std::string(E::name) + "` | ");
  ASSERT_NE(at, std::string::npos) << "no row for the event " << E::name;
  const std::string row = text.substr(at + 1, text.find('\n', at + 1) - at);
  std::apply(
      [&](const auto&... field) {
        for (const char* key : {field.first...})
          EXPECT_NE(row.find("`" + std::string(key) + "`"), std::string::npos)
              << key << " of " << E::name;
      },
      E::fields);
}

template <class... E>
void expect_rows(std::variant<E...>*) {
  (expect_row_of<E>(), ...);
}

TEST(EventsPage, ListsEveryEventWithItsKeys) {
  expect_rows(static_cast<events::Event*>(nullptr));
}

TEST(EventsPage, ListsEveryCause) {
  const std::string text = page();
  for (const std::string_view cause : names<events::StopCause>())
    EXPECT_NE(text.find("\n| `" + std::string(cause) + "` | "), std::string::npos) << cause;
}

TEST(EventsPage, ExamplesMatchTheWrittenLines) {
  std::istringstream in(page());
  std::vector<std::string> shown;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("{")) shown.push_back(line);
  ASSERT_GT(shown.size(), 8u);
  const testing::TemporaryFolder folder;
  std::string content;
  for (const std::string& line : shown) content += line + "\n";
  const RunEvents found = read_events(folder.write("events.jsonl", content));
  ASSERT_EQ(found.events.size(), shown.size());
  for (std::size_t i = 0; i < shown.size(); ++i)
    EXPECT_EQ(
        events::to_json(found.events[i].event, to_text(found.events[i].time), found.events[i].step),
        shown[i]);
}

}  // namespace
}  // namespace trireme::commands
