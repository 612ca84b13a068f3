#include <trireme/base/check.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/deck/parallel_checks.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

/// The first line is split at tabs into overrides, the rest is the deck. Anything but success or a
/// UsageError is a finding, and so is a deck whose resolved form does not read back to the same.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> overrides;
  std::string_view first = input.substr(0, input.find('\n'));
  while (!first.empty()) {
    const std::size_t end = std::min(first.find('\t'), first.size());
    overrides.emplace_back(first.substr(0, end));
    first.remove_prefix(std::min(end + 1, first.size()));
  }
  input.remove_prefix(std::min(input.find('\n'), input.size()));
  try {
    using namespace trireme::deck;
    Deck deck = parse_deck(input, "fuzz.toml", overrides);
    if (!(parse_deck(resolved_toml(deck), "resolved.toml").config == deck.config)) std::abort();
    if (deck.config.parallel.layout == trireme::LayoutMode::automatic)
      expect_layout(deck, 1 + static_cast<std::int64_t>(size % 8));
    resolve_parallel(deck, 1 + static_cast<std::int64_t>(size % 8));
  } catch (const trireme::UsageError&) {
  }
  return 0;
}
