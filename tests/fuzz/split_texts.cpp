// Splits texts with patterns, for compare_patterns.py: a line of stdin is {"pattern": …, "texts":
// […]}, a line of stdout {"pieces": [[…], …]} or {"error": …}. Each text is split as a whole and in
// chunks of a few bytes.
#include <trireme/base/check.hpp>
#include <trireme/data/text_step.hpp>
#include <trireme/data/unicode.hpp>

#include <nlohmann/json.hpp>

#include <iostream>
#include <string>
#include <vector>

using namespace trireme;

namespace {

struct Pieces final : data::TextSink {
  std::vector<std::string> all;
  bool open = false;
  void piece(std::string_view text, bool last) override {
    if (!open) all.emplace_back();
    all.back() += text;
    open = !last;
  }
};

std::vector<std::string> split(const data::TextSteps& steps, const std::string& text,
                               std::size_t chunk_bytes) {
  Pieces pieces;
  data::TextChain chain(steps, pieces);
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(text.size(), at + chunk_bytes);
    end = end == text.size() ? end : std::max(at, data::character_begin(text, end));
    if (end == at) data::next_character(text, end);
    chain.piece(std::string_view(text).substr(at, end - at), end == text.size());
    at = end;
  }
  return pieces.all;
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto request = nlohmann::json::parse(line);
    nlohmann::json answer;
    try {
      data::TextSteps steps;
      steps.push_back(data::make_split_pattern(request["pattern"].get<std::string>(), "pattern",
                                               data::SplitBehavior::isolated, false));
      answer["pieces"] = nlohmann::json::array();
      for (const std::string text : request["texts"]) {
        answer["pieces"].push_back(split(steps, text, text.size()));
        if (split(steps, text, 5) != answer["pieces"].back())
          throw UsageError("pieces differ in chunks of the text '" + text + "'");
      }
    } catch (const UsageError& error) {
      answer = {{"error", error.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
}
