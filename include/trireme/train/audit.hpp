#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/train/audit_report.hpp>
#include <trireme/train/audit_state.hpp>
#include <trireme/train/engine_parts.hpp>
#include <trireme/train/hash_list.hpp>
#include <trireme/train/step_actions.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace trireme::train {

/// Audits of steps against wrong results of a processor or of memory (docs/reliability.md). In an
/// audited step, each replica computes the gradients of the next replica's samples and of its own
/// samples. Two results for the same samples are bit-for-bit equal unless one of them is wrong.
/// Hashes of messages identify the wrong rank: its results differ although everything that it
/// received is equal. Before the update, replicas also compare hashes of their state.
template <class P>
class Audit {
 public:
  using Run = std::function<void(StepPhase)>;

  /// Arguments must outlive this object.
  Audit(const deck::RunConfig& run, EngineParts<P>& parts, StepActions<P>& actions,
        const kernels::Handle& handle, grid::Grid& grid);
  ~Audit();
  Audit(const Audit&) = delete;
  Audit& operator=(const Audit&) = delete;

  bool due(std::int64_t step) const { return step % run_.audit_every == 0; }
  /// Runs an audited step: `run` executes a part of the step. Throws on all ranks, before the
  /// update, if results or state are wrong and were not repaired. Collective.
  void step(std::int64_t step, const Run& run);
  /// Call after every step. If the next step is audited, keeps hashes of the state.
  void after(std::int64_t step);
  /// See StateAudit::compare.
  bool compare_state(std::int64_t step) { return state_.compare(step); }

  Bytes bytes() const { return list_.bytes(); }

 private:
  /// A pass of all micro-batches: data rank r computes the samples of data rank (r + offset) mod d.
  struct Pass {
    int offset = 0;
    /// Hashes of this rank's messages and results in the pass.
    std::vector<HashEntry> mine;
    std::vector<std::uint64_t> results;  ///< by data rank: hash over all ranks with this data rank
  };
  Pass pass(int offset);
  std::vector<Voice> voices(std::span<const Pass> passes, int samples) const;
  bool unanimous_passes(std::span<const Pass> passes) const;
  void settle(std::vector<Pass>& passes);
  Finding examine(std::span<const Pass> passes, int samples,
                  std::optional<std::uint64_t> right) const;

  const deck::RunConfig& run_;
  EngineParts<P>& parts_;
  StepActions<P>& actions_;
  const kernels::Handle& handle_;
  grid::Grid& grid_;
  HashList list_;
  StateAudit<P> state_;
  std::int64_t step_ = 0;
  const Run* run_part_ = nullptr;
};

extern template class Audit<model::Fp32>;
extern template class Audit<model::Fp64>;
extern template class Audit<model::MixedBf16>;
extern template class Audit<model::MixedFp16>;

}  // namespace trireme::train
