// Builds the Huffman tree of the weights and descends it for each index. Of the first m indices of
// a node, the lighter branch takes round(m·w), where w is the branch's fraction of the node's
// weight.
#include <trireme/data/blend.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/input.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <queue>
#include <string_view>
#include <utility>

namespace trireme::data {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr double weight_unit = 4294967296.0;  // 2^32, about the sum of integer weights
constexpr std::size_t parts_limit = 4096;

/// round(count · part / whole), halves rounded up.
std::int64_t share(std::int64_t count, std::uint64_t part, std::uint64_t whole) {
  const Wide product = Wide{static_cast<std::uint64_t>(count)} * part;
  return static_cast<std::int64_t>((product + whole / 2) / whole);
}

std::string_view without_blanks(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

/// The entry of a text such as "0.3 b.h5"; std::nullopt for a text without a weight.
std::optional<BlendEntry> parse_entry(std::string_view text) {
  BlendEntry entry;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), entry.weight);
  const auto digits = static_cast<std::size_t>(end - text.data());
  if (error != std::errc() || digits == text.size() || (*end != ' ' && *end != '\t'))
    return std::nullopt;
  entry.path = without_blanks(text.substr(digits));
  return entry;
}

}  // namespace

Blend::Blend(std::span<const double> weights) : parts_(weights.size()) {
  check_usage(parts_ >= 1 && parts_ <= parts_limit, "a blend of ", parts_, " files, expected 1 to ",
              parts_limit);
  for (const double weight : weights)
    check_usage(std::isfinite(weight) && weight > 0, "weight ", weight,
                " in a blend, expected a positive number");
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (const double weight : weights) sum += weight / largest;
  using Entry = std::pair<std::uint64_t, std::int32_t>;  // lightest node first
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  for (const double weight : weights) {
    const auto whole = static_cast<std::uint64_t>(weight / largest / sum * weight_unit + 0.5);
    check_usage(whole >= 1, "weight ", weight,
                " in a blend is less than 2^-33 of the sum of weights");
    queue.emplace(whole, static_cast<std::int32_t>(nodes_.size()));
    nodes_.push_back({whole, -1, -1});
  }
  while (queue.size() > 1) {
    const Entry lighter = queue.top();
    queue.pop();
    const Entry heavier = queue.top();
    queue.pop();
    queue.emplace(lighter.first + heavier.first, static_cast<std::int32_t>(nodes_.size()));
    nodes_.push_back({lighter.first + heavier.first, lighter.second, heavier.second});
  }
}

Blend::Place Blend::place(std::int64_t n) const {
  check(n >= 0, "number ", n, " of a blend, expected at least 0");
  std::size_t at = nodes_.size() - 1;
  while (nodes_[at].lighter >= 0) {
    const auto lighter = static_cast<std::size_t>(nodes_[at].lighter);
    const std::uint64_t part = nodes_[lighter].weight;
    const std::int64_t before = share(n, part, nodes_[at].weight);
    if (share(n + 1, part, nodes_[at].weight) > before) {
      at = lighter;
      n = before;
    } else {
      at = static_cast<std::size_t>(nodes_[at].heavier);
      n -= before;
    }
  }
  return {at, n};
}

std::vector<std::int64_t> Blend::counts(std::int64_t n) const {
  check(n >= 0, "the first ", n, " numbers of a blend, expected at least 0");
  std::vector<std::int64_t> of_node(nodes_.size());
  of_node.back() = n;
  for (std::size_t at = nodes_.size(); at-- > parts_;) {  // children precede their parent
    const auto lighter = static_cast<std::size_t>(nodes_[at].lighter);
    of_node[lighter] = share(of_node[at], nodes_[lighter].weight, nodes_[at].weight);
    of_node[static_cast<std::size_t>(nodes_[at].heavier)] = of_node[at] - of_node[lighter];
  }
  of_node.resize(parts_);
  return of_node;
}

std::vector<BlendEntry> parse_blend(const std::string& value) {
  std::vector<std::string_view> parts;
  std::string_view rest = value;
  while (true) {
    const std::size_t comma = rest.find(',');
    parts.push_back(without_blanks(rest.substr(0, comma)));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  std::vector<BlendEntry> entries;
  for (const auto part : parts)
    if (auto entry = parse_entry(part)) entries.push_back(std::move(*entry));
  if (entries.empty()) return {{1, value}};
  std::vector<double> weights;
  for (const auto part : parts)
    check_usage(parse_entry(part).has_value(), "[data] train = \"", value, "\": '", part,
                "' is not a weight and a file; write such as \"0.7 a.h5, 0.3 b.h5\"");
  for (const BlendEntry& entry : entries) {
    const std::string why = unexpanded(entry.path);
    check_usage(why.empty(), "[data] train: ", why);
    weights.push_back(entry.weight);
  }
  try {
    Blend{weights};
  } catch (const UsageError& error) {
    throw UsageError(text("[data] train = \"", value, "\": ", error.what()));
  }
  return entries;
}

}  // namespace trireme::data
