#pragma once

#include <trireme/deck/deck.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// [parallel] layout = "auto": the keys that it chooses, and the keys that the deck fixes.
namespace trireme::deck {

/// The keys that make a layout: tensor, pipeline, data, schedule, chunks, sequence_parallel,
/// recompute, shard, shard_group and expert of [parallel], and batch.micro.
const std::vector<const Key*>& layout_keys();

/// Whether layout = "auto" keeps the key's value because the deck sets it; parallel.data = 0 does
/// not count as set. Also valid after set_layout.
bool is_fixed(const Deck& deck, std::string_view section, std::string_view name);

/// Whether layout = "auto" has yet to choose the key's value.
bool is_open(const Deck& deck, std::string_view section, std::string_view name);

/// Full names of the layout's keys that are fixed.
std::vector<std::string> fixed_keys(const Deck& deck);

/// Messages about keys that cannot be combined with layout = "auto" for any number of ranks.
std::vector<std::string> layout_mistakes(const Deck& deck);

/// Sizes of the axes and of the micro-batch.
struct Axes {
  std::int64_t tensor = 1;
  std::int64_t pipeline = 1;
  std::int64_t data = 1;
  std::int64_t micro = 1;  ///< smallest possible value, unless the deck fixes it
  bool operator==(const Axes&) const = default;
};

/// All sizes with tensor · pipeline · data = ranks that the model, the batch and the fixed keys
/// allow, sorted by descending data, then descending tensor. Memory is not considered.
std::vector<Axes> possible_axes(const Deck& deck, std::int64_t ranks);

/// UsageError with the fixed keys and nearby rank counts if no layout fits the number of ranks.
void expect_layout(const Deck& deck, std::int64_t ranks);

/// The values of the layout's keys as overrides: "parallel.tensor=2".
std::vector<std::string> layout_overrides(const Deck& deck);

/// Sets the layout's keys by overrides in the form of layout_overrides(), layout to "given", and
/// layout_reason to `reason`. UsageError if the deck with these values has mistakes; Error if an
/// override changes a fixed key.
void set_layout(Deck& deck, const std::vector<std::string>& overrides, const std::string& reason);

}  // namespace trireme::deck
