#include <trireme/architecture/outer_steps.hpp>

#include <trireme/base/alignment.hpp>

#include <algorithm>

namespace trireme::architecture {

std::optional<int> OuterSteps::sent(std::int64_t step) const {
  if (step < 1) return std::nullopt;
  for (std::int64_t f = 0; f < local_.fragments; ++f)
    if (step % local_.inner_steps == f * local_.inner_steps / local_.fragments)
      return static_cast<int>(f);
  return std::nullopt;
}

bool OuterSteps::summed(std::int64_t step) const {
  const std::int64_t half = (local_.delay + 1) / 2;
  return step > half && sent(step - half).has_value();
}

std::optional<int> OuterSteps::in_flight(std::int64_t step) const {
  for (std::int64_t before = 0; before < local_.delay; ++before)
    if (const auto fragment = sent(step - before)) return fragment;
  return std::nullopt;
}

bool OuterSteps::together(std::int64_t step) const {
  return local_.fragments == 1 && local_.delay == 0 && local_.mixing == 0 &&
         step % local_.inner_steps == 0;
}

int fragment_of(const ArraySpec& array, const deck::ModelConfig& model,
                const deck::LocalConfig& local) {
  const std::int64_t layer = array.block - block_of_layer(0);
  if (layer < 0 || layer >= model.all_layers()) return 0;  // the embedding and the head
  return static_cast<int>(layer % local.fragments);
}

std::int64_t fragment_elements(const Architecture& architecture,
                               const std::vector<RankArray>& arrays, const deck::Config& config,
                               std::int64_t state_elements) {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(config.local.fragments));
  for (const RankArray& array : arrays)
    if (!array.frozen)
      sums[static_cast<std::size_t>(fragment_of(architecture.arrays[array.number], config.model,
                                                config.local))] += array.elements();
  return std::min(state_elements, std::ranges::max(sums));
}

std::int64_t exchanged_elements(const deck::Config& config, std::int64_t fragment, Bytes element) {
  if (config.local.delay > 0) return fragment;
  return std::min(fragment, std::max<std::int64_t>(1, config.parallel.bucket_bytes / element));
}

Bytes exchange_bytes(const deck::ParallelConfig& parallel, std::int64_t elements, Bytes element) {
  const std::int64_t groups = parallel.worker_groups();
  const std::int64_t part = (elements + groups - 1) / groups;
  return aligned(parallel.workers_per_rank() * elements * element) + aligned(elements * element) +
         (groups > 1 ? aligned(parallel.workers * part * element) : 0);
}

}  // namespace trireme::architecture
