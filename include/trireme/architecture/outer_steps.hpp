#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/deck/config.hpp>

#include <cstdint>
#include <optional>
#include <vector>

/// Local training: the steps after which workers are synchronised, and the sizes of messages.
/// Douillard et al. 2023, "DiLoCo", arXiv 2311.08105; in fragments: Douillard et al. 2025,
/// "Streaming DiLoCo", arXiv 2501.18512.
namespace trireme::architecture {

/// Outer steps of a run with n fragments. Differences of fragment f are sent after each step whose
/// number modulo inner_steps is ⌊f inner_steps / n⌋, and its outer step follows `delay` steps
/// later.
class OuterSteps {
 public:
  explicit OuterSteps(const deck::LocalConfig& local) : local_(local) {}

  /// The fragment whose differences are sent after step `step` ≥ 1; std::nullopt if there is none.
  std::optional<int> sent(std::int64_t step) const;
  /// The fragment whose outer step follows step `step`, because it was sent `delay` steps before;
  /// std::nullopt if there is none.
  std::optional<int> updated(std::int64_t step) const {
    return step > local_.delay ? sent(step - local_.delay) : std::nullopt;
  }
  /// Whether the sums in flight must be complete after step `step`, so that half of the delay
  /// remains for the messages with the results.
  bool summed(std::int64_t step) const;
  /// The fragment that is in flight after step `step`; std::nullopt if there is none.
  std::optional<int> in_flight(std::int64_t step) const;
  /// Whether all workers have the shared weights after step `step`.
  bool together(std::int64_t step) const;

 private:
  deck::LocalConfig local_;
};

/// The fragment of an array. Layers are assigned to the fragments in turn; arrays outside the
/// layers belong to fragment 0.
int fragment_of(const ArraySpec& array, const deck::ModelConfig& model,
                const deck::LocalConfig& local);

/// Elements of the largest fragment on a rank that holds `arrays`; at most `state_elements`, the
/// number of elements that the rank updates.
std::int64_t fragment_elements(const Architecture& architecture,
                               const std::vector<RankArray>& arrays, const deck::Config& config,
                               std::int64_t state_elements);

/// Number of elements of a fragment that are sent at a time: all, or without a delay at most
/// [parallel] bucket_bytes. `fragment`: elements of the fragment; `element`: bytes of an element.
std::int64_t exchanged_elements(const deck::Config& config, std::int64_t fragment, Bytes element);

/// Bytes of the buffers for an exchange of `elements` elements: differences that the rank's workers
/// send, received differences, and the mean.
Bytes exchange_bytes(const deck::ParallelConfig& parallel, std::int64_t elements, Bytes element);

}  // namespace trireme::architecture
