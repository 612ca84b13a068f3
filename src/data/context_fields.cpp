#include <trireme/data/context_fields.hpp>

#include <algorithm>

namespace trireme::data {
namespace {

using Field = std::span<std::int32_t>;

Field part(Field field, std::int64_t first, std::int64_t count) {
  return field.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

void take_tokens(const layout::TokenPlaces& places, std::int64_t sequence, Field whole, Field own) {
  const auto samples = std::ssize(whole) / sequence;
  auto to = own.begin();
  for (std::int64_t b = 0; b < samples; ++b)
    for (const layout::Chunk& chunk : {places.head, places.tail})
      to = std::ranges::copy(part(whole, b * sequence + chunk.first, chunk.count), to).out;
}

void renumber(const layout::TokenPlaces& places, std::int64_t sequence, Field whole, Field own) {
  std::ranges::transform(whole, own.begin(), [&](std::int32_t row) {
    const std::int64_t token = places.token_at(row % sequence);
    return static_cast<std::int32_t>(token < 0 ? -1 : row / sequence * places.held + token);
  });
}

}  // namespace

void take_own_fields(const architecture::TrainingObjective& objective,
                     const architecture::Shard& shard, const architecture::LocalSizes& sizes,
                     std::int64_t sequence, BatchFields whole, BatchFields own) {
  using architecture::Rows;
  const layout::TokenPlaces places = shard.places(sequence);
  for (std::size_t i = 0; i < objective.fields.size(); ++i) {
    const architecture::BatchField& field = objective.fields[i];
    check(std::ssize(own[i]) == rows_of(field.rows, sizes), "field ", field.name, " has ",
          own[i].size(), " numbers, expected ", rows_of(field.rows, sizes));
    const bool of_tokens =
        field.rows == Rows::tokens || (field.rows == Rows::targets && !objective.chooses_targets());
    if (of_tokens) {
      take_tokens(places, sequence, whole[i], own[i]);
    } else if (field.rows == Rows::head_rows) {
      renumber(places, sequence, whole[i], own[i]);
    } else {
      const layout::Slice mine = shard.context_part(std::ssize(whole[i]));
      std::ranges::copy(part(whole[i], mine.offset, mine.extent), own[i].begin());
    }
  }
}

}  // namespace trireme::data
