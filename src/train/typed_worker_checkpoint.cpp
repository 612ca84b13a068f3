// A worker's slices of a checkpoint, and the way back.
#include <trireme/architecture/saved.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/region.hpp>
#include <trireme/train/load.hpp>
#include <trireme/train/progress.hpp>
#include <trireme/train/slices.hpp>
#include <trireme/train/typed_worker.hpp>

#include <algorithm>

namespace trireme::train {
namespace {

/// State array `kind` of a block, or one without data if the block's array has none.
template <class Block>
auto array_of(const Block& block, std::size_t kind) {
  using Tensor = std::remove_cvref_t<decltype(block.updated)>;
  return kind < block.arrays.size() ? block.arrays[kind] : Tensor();
}

}  // namespace

template <class P>
std::vector<checkpoint::SliceView> TypedWorker<P>::share() {
  parts_.finish_gathers();
  fence(handle_, "train/share waits for the step");
  if (parts_.servers) return {};  // they write
  const auto& entries = parts_.parameters_of(actions_.step()).entries();
  std::vector<architecture::LocalArray> arrays;
  for (const auto& entry : entries) arrays.push_back(entry.local);
  const auto all = architecture::saved_parts(architecture_, parts_.parameters.shard(), arrays,
                                             parts_.replicas.size(), parts_.replicas.rank());
  std::vector<checkpoint::SliceView> slices;
  auto mine = all;  // trained arrays
  if (parts_.optimizer)
    std::erase_if(mine, [&](const auto& part) { return arrays[part.local].frozen; });
  const auto add_weights = [&] {
    for (const auto& part : mine)
      slices.push_back(slice_of(handle_, entries[part.local].weight, part));
  };
  if (!parts_.optimizer) {
    add_weights();
    return slices;
  }
  const auto state = parts_.optimizer->state();
  const bool writes = parts_.replicas.rank() < parts_.shards.size();
  // Adds a tensor of each block, unless that has no data.
  const auto add_state = [&](const auto& tensor_of) {
    const auto add = [&](const auto& tensor, const architecture::SavedPart& part) {
      if (tensor.data.data() != nullptr) slices.push_back(slice_of(handle_, tensor, part));
    };
    if (parts_.weight_gather) {  // each replica of the first group writes its own part
      for (const auto& block : state)
        if (block.counted && writes) {
          const auto tensor = tensor_of(block);
          add(tensor, {0, tensor.offset, tensor.extent, 0});
        }
    } else {
      for (const auto& part : mine)
        add(tensor_of(*std::ranges::lower_bound(state, part.local, {},
                                                [](const auto& b) { return b.local; })),
            part);
    }
  };
  if (local_) {
    share_workers(add_state);
    share_progress(slices);
  } else {
    // For two-byte weights the checkpoint stores the master weights; a restart rounds them again.
    if (optim::Optimizer<P>::has_masters || parts_.parameters.weight_places().has_windows())
      add_state([](const auto& block) { return block.updated; });
    else
      add_weights();
    for (std::size_t kind = 0; kind < state_arrays(); ++kind)
      add_state([kind](const auto& block) { return array_of(block, kind); });
  }
  if (local_ && local_->first_worker() > 0) return slices;  // the rest is the same of all workers
  if (parts_.parameters.weight_places().has_windows()) {
    if (writes)
      for (const auto& block : parts_.parameters.owned_frozen())
        slices.push_back(frozen_slice_of(handle_, block, {0, block.offset, block.extent, 0}));
  } else {
    for (const auto& part : all)
      if (arrays[part.local].frozen)
        slices.push_back(frozen_slice_of(handle_, entries[part.local].weight, part));
  }
  if (parts_.second)
    for (const auto& part : all) {
      auto earlier = parts_.parameters_of(actions_.step() + 1).entries()[part.local].weight;
      earlier.name = second_weights + earlier.name;
      slices.push_back(slice_of(handle_, earlier, part));
    }
  if (parts_.fp8 && grid_.world().rank() == 0) {  // the same on all ranks
    const NamedTensor<float> maxima = parts_.fp8->history();
    slices.push_back(slice_of(handle_, maxima, {0, maxima.offset, maxima.extent, 0}));
  }
  return slices;
}

/// The shared weights have the names of a model's; those of a worker are saved unless they are
/// equal.
template <class P>
template <class AddState>
void TypedWorker<P>::share_workers(const AddState& add_state) {
  const std::int64_t step = actions_.step();
  for (std::int64_t w = 0; w < local_->workers_here(); ++w) {
    const auto as_worker = [&](auto tensor) {
      tensor.name = name_of_worker(local_->first_worker() + w, tensor.name);
      tensor.data = local_->of_worker(w, tensor.data);
      return tensor;
    };
    if (!local_->schedule().together(step))
      add_state([&](const auto& block) { return as_worker(block.updated); });
    for (std::size_t kind = 0; kind < state_arrays(); ++kind)
      add_state([&](const auto& block) { return as_worker(array_of(block, kind)); });
  }
  const bool first = local_->first_worker() == 0;
  local_->use_means(handle_, step, [&](const auto& means) {
    using Tensor = typename std::remove_cvref_t<decltype(means)>::mapped_type;
    if (first)
      add_state([&](const auto& block) {
        const auto found = means.find(block.first);
        return found == means.end() || block.updated.elements() == 0 ? Tensor() : found->second;
      });
  });
  if (!first) return;
  add_state([&](const auto& block) { return local_->outer_weights(block); });
  add_state([&](const auto& block) { return local_->outer_momentum(block); });
}

template <class P>
void TypedWorker<P>::share_progress(std::vector<checkpoint::SliceView>& slices) {
  const std::vector<double> all = statuses();
  fence(handle_, "train/share waits for the differences of workers");
  if (grid_.world().rank() > 0) return;
  progress_.clear();
  for (std::int64_t w = 0; w < local_->workers_here(); ++w)
    for (const auto number : {kernels::status_skipped, kernels::status_skipped_in_row,
                              kernels::status_loss_scale, kernels::status_scale_steps})
      progress_.push_back(all[static_cast<std::size_t>(
          (local_->first_worker() + w) * kernels::status_size + number)]);
  checkpoint::SliceView slice{worker_progress,
                              DType::fp64,
                              {local_->workers(), progress_numbers},
                              {local_->first_worker(), 0},
                              {local_->workers_here(), progress_numbers}};
  slice.data = progress_.data();
  slices.push_back(slice);
}

template <class P>
void TypedWorker<P>::copy_second_weights(std::int64_t step) {
  if (!parts_.second) return;
  kernels::copy<T>(handle_, parts_.parameters_of(step + 1).all_weights(),
                   parts_.parameters_of(step).all_weights());
  parts_.parameters_of(step + 1).changed();
}

/// A run that continues another schedule's checkpoint, or one in another precision, begins with two
/// equal versions, as every new run.
template <class P>
void TypedWorker<P>::load_second_weights(const checkpoint::Reader& reader) {
  if (!parts_.second) return;
  const std::int64_t step = reader.state().step;
  copy_second_weights(step);
  const auto stored = [&](const std::string& name) {
    const auto found = std::ranges::find(reader.arrays(), name, &checkpoint::ArrayInfo::name);
    return found != reader.arrays().end() && found->dtype == dtype_of<T>;
  };
  const auto& entries = parts_.parameters_of(step + 1).entries();
  if (step > 0 && !std::ranges::all_of(entries, [&](const auto& entry) {
        return stored(second_weights + entry.weight.name);
      }))
    return say(reader.folder(), " holds one version of the weights in ", name_of(dtype_of<T>),
               "; the second one starts equal to it");
  if (step == 0) return;
  for (const auto& entry : entries) {
    auto weight = entry.weight;
    weight.name = second_weights + weight.name;
    load_staged(handle_, reader, weight, rounding_bytes);
  }
}

/// A history of another length keeps the maxima of the latest steps.
template <class P>
void TypedWorker<P>::load_fp8(const checkpoint::Reader& reader) {
  if (!parts_.fp8) return;
  const NamedTensor<float> history = parts_.fp8->history();
  const auto stored =
      std::ranges::find(reader.arrays(), history.name, &checkpoint::ArrayInfo::name);
  parts_.fp8->reset(handle_);
  if (stored == reader.arrays().end()) {
    say(reader.folder(), " holds no maxima of fp8 tensors; their scales start as in a new run");
    return;
  }
  const std::int64_t tensors = history.shape[1], rows = history.shape[0];
  const std::int64_t stored_rows = stored->shape.front();
  std::vector<float> all(static_cast<std::size_t>(stored_rows * tensors));
  reader.read(history.name, DType::fp32, {stored_rows, tensors}, all.data());
  std::vector<float> mine(static_cast<std::size_t>(rows * tensors), 0.0F);
  const std::int64_t step = reader.state().step;
  for (std::int64_t s = std::max<std::int64_t>(0, step - std::min(rows, stored_rows)); s < step;
       ++s)
    std::copy_n(all.begin() + s % stored_rows * tensors, tensors,
                mine.begin() + s % rows * tensors);
  copy_to_device<float>(handle_, history.data, mine);
  fence(handle_, "train/load copies the maxima of fp8 tensors to the device");
  parts_.fp8->resume(handle_, step);
}

template <class P>
void TypedWorker<P>::load(const checkpoint::Reader& reader) {
  if (history_) history_->forget();
  const Region region("load");
  load_model(reader);
  if (parts_.optimizer && reader.has(worker_progress) && !lacks_adapters(reader, architecture_))
    load_progress(reader, 0);  // the state that was loaded is that of the first worker
  if (local_) load_workers(reader);
}

template <class P>
void TypedWorker<P>::load_model(const checkpoint::Reader& reader) {
  const std::int64_t step = reader.state().step;
  actions_.resume(step);
  begun_ = false;
  parts_.finish_gathers();
  const bool fresh = lacks_adapters(reader, architecture_);
  load_weights(handle_, reader, architecture_, parts_.parameters_of(step),
               static_cast<std::uint64_t>(config_.run.seed));
  if (fresh && parts_.optimizer)
    say(reader.folder(), " holds no adapters; they start as in a new run");
  load_fp8(reader);
  if (parts_.weight_gather) parts_.weight_gather->forget_windows();
  if (!parts_.optimizer) return;
  load_second_weights(reader);
  const auto state = parts_.optimizer->state();
  if constexpr (optim::Optimizer<P>::has_masters) {
    if (fresh) parts_.optimizer->copy_masters_from_weights(handle_);
    for (const auto& block : state)
      if (!fresh || !parts_.parameters.entries()[block.local].spec->adapter)
        load_array(handle_, reader, block.updated);
  }
  const bool begins = fresh || holds_weights_only(reader);
  if (begins)
    parts_.optimizer->zero_state(handle_);
  else
    for (const auto& block : state)
      for (const auto& array : block.arrays) load_array(handle_, reader, array);
  parts_.optimizer->set_progress(handle_, progress_after(config_, reader, begins));
  if (begins && !fresh) say(reader.folder(), " holds no optimizer state; it starts at zero");
}

template std::vector<checkpoint::SliceView> TypedWorker<model::Fp32>::share();
template void TypedWorker<model::Fp32>::load_fp8(const checkpoint::Reader&);
template void TypedWorker<model::Fp32>::copy_second_weights(std::int64_t);
template void TypedWorker<model::Fp32>::load_second_weights(const checkpoint::Reader&);
template void TypedWorker<model::Fp32>::share_progress(std::vector<checkpoint::SliceView>&);
template void TypedWorker<model::Fp32>::load_model(const checkpoint::Reader&);
template void TypedWorker<model::Fp32>::load(const checkpoint::Reader&);
template std::vector<checkpoint::SliceView> TypedWorker<model::Fp64>::share();
template void TypedWorker<model::Fp64>::load_fp8(const checkpoint::Reader&);
template void TypedWorker<model::Fp64>::copy_second_weights(std::int64_t);
template void TypedWorker<model::Fp64>::load_second_weights(const checkpoint::Reader&);
template void TypedWorker<model::Fp64>::share_progress(std::vector<checkpoint::SliceView>&);
template void TypedWorker<model::Fp64>::load_model(const checkpoint::Reader&);
template void TypedWorker<model::Fp64>::load(const checkpoint::Reader&);
template std::vector<checkpoint::SliceView> TypedWorker<model::MixedBf16>::share();
template void TypedWorker<model::MixedBf16>::load_fp8(const checkpoint::Reader&);
template void TypedWorker<model::MixedBf16>::copy_second_weights(std::int64_t);
template void TypedWorker<model::MixedBf16>::load_second_weights(const checkpoint::Reader&);
template void TypedWorker<model::MixedBf16>::share_progress(std::vector<checkpoint::SliceView>&);
template void TypedWorker<model::MixedBf16>::load_model(const checkpoint::Reader&);
template void TypedWorker<model::MixedBf16>::load(const checkpoint::Reader&);
template std::vector<checkpoint::SliceView> TypedWorker<model::MixedFp16>::share();
template void TypedWorker<model::MixedFp16>::load_fp8(const checkpoint::Reader&);
template void TypedWorker<model::MixedFp16>::copy_second_weights(std::int64_t);
template void TypedWorker<model::MixedFp16>::load_second_weights(const checkpoint::Reader&);
template void TypedWorker<model::MixedFp16>::share_progress(std::vector<checkpoint::SliceView>&);
template void TypedWorker<model::MixedFp16>::load_model(const checkpoint::Reader&);
template void TypedWorker<model::MixedFp16>::load(const checkpoint::Reader&);

}  // namespace trireme::train
