#pragma once

#include <trireme/checkpoint/reader.hpp>
#include <trireme/train/engine_parts.hpp>
#include <trireme/train/step_actions.hpp>
#include <trireme/train/step_results.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::train {

/// A rank's slices of checkpoints, and the restart of the rank from a checkpoint.
template <class P>
class RankCheckpoint {
 public:
  using T = typename P::Compute;

  /// Arguments must outlive this object.
  RankCheckpoint(const deck::Config& config, const architecture::Architecture& architecture,
                 EngineParts<P>& parts, StepActions<P>& actions, StepResults<P>& results,
                 const kernels::Handle& handle, grid::Grid& grid);

  /// See Engine::share.
  std::vector<checkpoint::SliceView> share();
  /// See Engine::load.
  void load(const checkpoint::Reader& reader);

 private:
  /// Largest number of state arrays of the optimizer per array of weights.
  std::size_t state_arrays() const {
    return config_.optimizer.rule().states(config_.optimizer).size();
  }
  template <class AddState>
  void share_workers(const AddState& add_state);
  void share_factors(std::vector<checkpoint::SliceView>& slices);
  void share_progress(std::vector<checkpoint::SliceView>& slices);
  void load_model(const checkpoint::Reader& reader);
  void load_fp8(const checkpoint::Reader& reader);
  void load_second_weights(const checkpoint::Reader& reader);
  void load_workers(const checkpoint::Reader& reader);
  bool holds_means(const checkpoint::Reader& reader, int fragment) const;
  void load_worker(const checkpoint::Reader& reader, std::int64_t worker);
  void load_progress(const checkpoint::Reader& reader, std::int64_t worker);

  const deck::Config& config_;
  const architecture::Architecture& architecture_;
  EngineParts<P>& parts_;
  StepActions<P>& actions_;
  StepResults<P>& results_;
  const kernels::Handle& handle_;
  grid::Grid& grid_;
  std::vector<double> progress_;  ///< progress of this rank's workers
};

extern template class RankCheckpoint<model::Fp32>;
extern template class RankCheckpoint<model::Fp64>;
extern template class RankCheckpoint<model::MixedBf16>;
extern template class RankCheckpoint<model::MixedFp16>;

}  // namespace trireme::train
