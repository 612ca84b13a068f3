// Workers of local training: their states from a checkpoint.
#include <trireme/base/log.hpp>
#include <trireme/train/load.hpp>
#include <trireme/train/progress.hpp>
#include <trireme/train/typed_worker.hpp>

#include <algorithm>
#include <array>

namespace trireme::train {

/// Whether a checkpoint has the mean of a whole fragment, in the type of this run's messages: the
/// same on all ranks.
template <class P>
bool TypedWorker<P>::holds_means(const checkpoint::Reader& reader, int fragment) const {
  const DType type =
      config_.local.differences == Differences::bf16 ? DType::bf16 : dtype_of<typename P::Master>;
  return std::ranges::all_of(architecture_.arrays, [&](const architecture::ArraySpec& spec) {
    if (spec.frozen || architecture::fragment_of(spec, config_.model, config_.local) != fragment)
      return true;
    const auto found = std::ranges::find(reader.arrays(), optim::outer_difference + spec.name,
                                         &checkpoint::ArrayInfo::name);
    return found != reader.arrays().end() && found->dtype == type;
  });
}

/// After the shared weights and the first worker's state: what else a checkpoint holds. Without it,
/// all workers continue from these.
template <class P>
void TypedWorker<P>::load_workers(const checkpoint::Reader& reader) {
  local_->begin(handle_);
  if (lacks_adapters(reader, architecture_)) return;  // a new run of adapters
  const std::int64_t step = reader.state().step;
  const auto stored =
      std::ranges::find(reader.arrays(), worker_progress, &checkpoint::ArrayInfo::name);
  const std::int64_t workers = stored == reader.arrays().end() ? 0 : stored->shape.front();
  if (workers == 0 && step > 0)
    say(reader.folder(), " holds no workers of local training; all start from its weights");
  else if (workers > 0 && workers != local_->workers())
    say(reader.folder(), " holds ", workers, " workers; ",
        workers < local_->workers()
            ? "the others start from the shared weights, with the first one's optimizer state"
            : "the others are ignored");
  for (const auto& block : parts_.optimizer->state())
    if (const auto momentum = local_->outer_momentum(block);
        momentum.data.data() != nullptr && reader.has(momentum.name))
      load_array(handle_, reader, momentum);
  if (const auto fragment = local_->schedule().in_flight(step);
      fragment && holds_means(reader, *fragment))
    local_->load_means(step, [&](const auto& means) {
      for (const auto& [first, mean] : means) load_staged(handle_, reader, mean, rounding_bytes);
    });
  for (std::int64_t w = 0; w < local_->workers_here(); ++w) {
    const std::int64_t worker = local_->first_worker() + w;
    if (worker >= workers) continue;
    local_->select(handle_, w);
    load_worker(reader, worker);
    load_progress(reader, worker);
    if (parts_.weight_gather) parts_.weight_gather->forget_windows();
  }
}

template <class P>
void TypedWorker<P>::load_worker(const checkpoint::Reader& reader, std::int64_t worker) {
  const auto as_worker = [&](auto tensor) {
    const std::string name = name_of_worker(worker, tensor.name);
    if (reader.has(name)) tensor.name = name;
    return tensor;
  };
  parts_.parameters.set_weights(
      handle_, [&](const auto& entry) { load_array(handle_, reader, as_worker(entry.weight)); });
  for (const auto& block : parts_.optimizer->state()) {
    if constexpr (optim::Optimizer<P>::has_masters)
      load_array(handle_, reader, as_worker(block.updated));
    for (const auto& array : block.arrays) load_array(handle_, reader, as_worker(array));
  }
}

template <class P>
void TypedWorker<P>::load_progress(const checkpoint::Reader& reader, std::int64_t worker) {
  const auto stored =
      std::ranges::find(reader.arrays(), worker_progress, &checkpoint::ArrayInfo::name);
  std::array<double, progress_numbers> numbers{};
  reader.read_slice(worker_progress, DType::fp64, stored->shape, {worker, 0}, {1, progress_numbers},
                    numbers.data());
  Skips skips;
  skips.total = static_cast<std::int64_t>(numbers[0]);
  skips.in_row = static_cast<std::int64_t>(numbers[1]);
  skips.loss_scale = numbers[2];
  skips.scale_steps = static_cast<std::int64_t>(numbers[3]);
  parts_.optimizer->set_progress(handle_, progress_of(config_, skips, reader.state().step));
}

template bool TypedWorker<model::Fp32>::holds_means(const checkpoint::Reader&, int) const;
template void TypedWorker<model::Fp32>::load_workers(const checkpoint::Reader&);
template void TypedWorker<model::Fp32>::load_worker(const checkpoint::Reader&, std::int64_t);
template void TypedWorker<model::Fp32>::load_progress(const checkpoint::Reader&, std::int64_t);
template bool TypedWorker<model::Fp64>::holds_means(const checkpoint::Reader&, int) const;
template void TypedWorker<model::Fp64>::load_workers(const checkpoint::Reader&);
template void TypedWorker<model::Fp64>::load_worker(const checkpoint::Reader&, std::int64_t);
template void TypedWorker<model::Fp64>::load_progress(const checkpoint::Reader&, std::int64_t);
template bool TypedWorker<model::MixedBf16>::holds_means(const checkpoint::Reader&, int) const;
template void TypedWorker<model::MixedBf16>::load_workers(const checkpoint::Reader&);
template void TypedWorker<model::MixedBf16>::load_worker(const checkpoint::Reader&, std::int64_t);
template void TypedWorker<model::MixedBf16>::load_progress(const checkpoint::Reader&, std::int64_t);
template bool TypedWorker<model::MixedFp16>::holds_means(const checkpoint::Reader&, int) const;
template void TypedWorker<model::MixedFp16>::load_workers(const checkpoint::Reader&);
template void TypedWorker<model::MixedFp16>::load_worker(const checkpoint::Reader&, std::int64_t);
template void TypedWorker<model::MixedFp16>::load_progress(const checkpoint::Reader&, std::int64_t);

}  // namespace trireme::train
