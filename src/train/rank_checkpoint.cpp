// A rank's slices of a checkpoint, and the restart from a checkpoint: weights, optimizer state, fp8
// scales, the second version of weights, and workers of local training.
#include <trireme/train/rank_checkpoint.hpp>

#include <trireme/architecture/saved.hpp>
#include <trireme/base/log.hpp>
#include <trireme/base/text.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/region.hpp>
#include <trireme/train/load.hpp>
#include <trireme/train/progress.hpp>
#include <trireme/train/slices.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <type_traits>

namespace trireme::train {
namespace {

/// Prefix of the names of a checkpoint's arrays with the weights before the last update, if steps
/// overlap. The arrays have the type P::Compute.
const std::string second_weights = "optimizer.earlier_weight.";

/// Name of a checkpoint's array with the progress of all workers of local training: [workers, 4],
/// the first four values of optim::Progress.
const std::string worker_progress = "optimizer.worker_progress";
constexpr std::int64_t progress_numbers = 4;
/// Name of a worker's array in a checkpoint. The first worker's state has the usual names.
std::string name_of_worker(std::int64_t worker, const std::string& array) {
  constexpr std::string_view state = "optimizer.";
  if (!array.starts_with(state)) return text(state, "worker_", worker, ".weight.", array);
  return worker == 0 ? array : text(state, "worker_", worker, '.', array.substr(state.size()));
}

/// A state array of a block's list; without data if the block's array has no such state.
template <class Tensor>
Tensor array_of(const std::vector<Tensor>& arrays, std::size_t kind) {
  return kind < arrays.size() ? arrays[kind] : Tensor();
}

}  // namespace

template <class P>
RankCheckpoint<P>::RankCheckpoint(const deck::Config& config,
                                  const architecture::Architecture& architecture,
                                  EngineParts<P>& parts, StepActions<P>& actions,
                                  StepResults<P>& results, const kernels::Handle& handle,
                                  grid::Grid& grid)
    : config_(config),
      architecture_(architecture),
      parts_(parts),
      actions_(actions),
      results_(results),
      handle_(handle),
      grid_(grid) {}

template <class P>
std::vector<checkpoint::SliceView> RankCheckpoint<P>::share() {
  parts_.finish_gathers();
  fence(handle_, "train/share waits for the step");
  if (parts_.servers) return {};  // servers write all slices
  const auto& entries = parts_.parameters_of(actions_.step()).entries();
  std::vector<architecture::RankArray> arrays;
  for (const auto& entry : entries) arrays.push_back(entry.local);
  const auto all = architecture::saved_parts(architecture_, parts_.parameters.shard(), arrays,
                                             parts_.replicas.size(), parts_.replicas.rank());
  std::vector<checkpoint::SliceView> slices;
  auto mine = all;  // trained arrays, if the rank trains
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
  // Adds the tensors with data that tensor_of returns for the blocks of this rank.
  const auto add_state = [&](const auto& tensor_of) {
    const auto add = [&](const auto& tensor, const architecture::SavedPart& part) {
      if (tensor.data.data() != nullptr) slices.push_back(slice_of(handle_, tensor, part));
    };
    if (parts_.weight_gather) {  // replicas of the first shard group write their own parts
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
  if (parts_.local) {
    share_workers(add_state);
    share_progress(slices);
  } else {
    // For two-byte weights the checkpoint stores the master weights, which a restart rounds again.
    if (optim::Optimizer<P>::has_masters || parts_.parameters.weight_places().has_windows())
      add_state([](const auto& block) { return block.updated; });
    else
      add_weights();
    for (std::size_t kind = 0; kind < state_arrays(); ++kind) {
      add_state([kind](const auto& block) { return array_of(block.arrays, kind); });
      add_state([kind](const auto& block) { return array_of(block.narrow_arrays, kind); });
    }
    share_factors(slices);
  }
  if (parts_.local && parts_.local->first_worker() > 0)
    return slices;  // the rest is equal for all workers
  if (parts_.parameters.weight_places().has_windows()) {
    if (writes)
      for (const auto& block : parts_.parameters.owned_frozen())
        slices.push_back(frozen_slice_of(handle_, block, {0, block.offset, block.extent, 0}));
  } else {
    for (const auto& part : all)
      if (arrays[part.local].frozen)
        slices.push_back(frozen_slice_of(handle_, entries[part.local].weight, part));
  }
  if (parts_.other_version)
    for (const auto& part : all) {
      auto earlier = parts_.parameters_of(actions_.step() + 1).entries()[part.local].weight;
      earlier.name = second_weights + earlier.name;
      slices.push_back(slice_of(handle_, earlier, part));
    }
  if (parts_.fp8 && grid_.world().rank() == 0) {  // equal on all ranks
    const NamedTensor<float> maxima = parts_.fp8->history();
    slices.push_back(slice_of(handle_, maxima, {0, maxima.offset, maxima.extent, 0}));
  }
  return slices;
}

/// Adds the state of rows and columns, which is equal on all tensor ranks and replicas.
template <class P>
void RankCheckpoint<P>::share_factors(std::vector<checkpoint::SliceView>& slices) {
  if (parts_.parameters.shard().tensor_rank > 0 || parts_.replicas.rank() > 0) return;
  for (const auto& array : parts_.optimizer->factor_state())
    if (!array.copy) slices.push_back(slice_of(handle_, array, {0, array.offset, array.extent, 0}));
}

/// Adds the arrays of local training. The shared weights have the names of the model's weights.
/// Workers' weights are saved unless they are equal to the shared weights.
template <class P>
template <class AddState>
void RankCheckpoint<P>::share_workers(const AddState& add_state) {
  const std::int64_t step = actions_.step();
  for (std::int64_t w = 0; w < parts_.local->workers_here(); ++w) {
    const auto as_worker = [&](auto tensor) {
      tensor.name = name_of_worker(parts_.local->first_worker() + w, tensor.name);
      tensor.data = parts_.local->of_worker(w, tensor.data);
      return tensor;
    };
    if (!parts_.local->schedule().together(step))
      add_state([&](const auto& block) { return as_worker(block.updated); });
    for (std::size_t kind = 0; kind < state_arrays(); ++kind) {
      add_state([&](const auto& block) { return as_worker(array_of(block.arrays, kind)); });
      add_state([&](const auto& block) { return as_worker(array_of(block.narrow_arrays, kind)); });
    }
  }
  const bool first = parts_.local->first_worker() == 0;
  parts_.local->use_means(handle_, step, [&](const auto& means) {
    using Tensor = typename std::remove_cvref_t<decltype(means)>::mapped_type;
    if (first)
      add_state([&](const auto& block) {
        const auto found = means.find(block.first);
        return found == means.end() || block.updated.elements() == 0 ? Tensor() : found->second;
      });
  });
  if (!first) return;
  add_state([&](const auto& block) { return parts_.local->outer_weights(block); });
  add_state([&](const auto& block) { return parts_.local->outer_momentum(block); });
}

template <class P>
void RankCheckpoint<P>::share_progress(std::vector<checkpoint::SliceView>& slices) {
  const std::vector<double> all = results_.statuses();
  fence(handle_, "train/share waits for the differences of workers");
  if (grid_.world().rank() > 0) return;
  progress_.clear();
  for (std::int64_t w = 0; w < parts_.local->workers_here(); ++w)
    for (const auto number : {kernels::status_skipped, kernels::status_skipped_in_row,
                              kernels::status_loss_scale, kernels::status_scale_steps})
      progress_.push_back(all[static_cast<std::size_t>(
          (parts_.local->first_worker() + w) * kernels::status_size + number)]);
  checkpoint::SliceView slice{worker_progress,
                              DType::fp64,
                              {parts_.local->workers(), progress_numbers},
                              {parts_.local->first_worker(), 0},
                              {parts_.local->workers_here(), progress_numbers}};
  slice.data = progress_.data();
  slices.push_back(slice);
}

template <class P>
void RankCheckpoint<P>::load(const checkpoint::Reader& reader) {
  const Region region("load");
  load_model(reader);
  if (parts_.optimizer && reader.has(worker_progress) && !lacks_adapters(reader, architecture_))
    load_progress(reader, 0);  // the loaded state is the state of the first worker
  if (parts_.local) load_workers(reader);
}

template <class P>
void RankCheckpoint<P>::load_model(const checkpoint::Reader& reader) {
  const std::int64_t step = reader.state().step;
  actions_.resume(step);
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
  else {
    for (const auto& block : state) load_state(handle_, reader, block);
    for (const auto& array : parts_.optimizer->factor_state()) load_array(handle_, reader, array);
  }
  parts_.optimizer->set_progress(handle_, progress_after(config_, reader, begins));
  if (begins && !fresh) say(reader.folder(), " holds no optimizer state; it starts at zero");
}

/// If the stored history has another length, the maxima of the latest steps are kept.
template <class P>
void RankCheckpoint<P>::load_fp8(const checkpoint::Reader& reader) {
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

/// If the checkpoint has no second version in this run's precision, both versions begin equal.
template <class P>
void RankCheckpoint<P>::load_second_weights(const checkpoint::Reader& reader) {
  if (!parts_.other_version) return;
  const std::int64_t step = reader.state().step;
  parts_.copy_second_weights(handle_, step);
  const auto stored = [&](const std::string& name) {
    const auto found = std::ranges::find(reader.arrays(), name, &checkpoint::ArrayInfo::name);
    return found != reader.arrays().end() && found->dtype == dtype_of<T>;
  };
  const auto& entries = parts_.parameters_of(step + 1).entries();
  if (step > 0 && !std::ranges::all_of(entries, [&](const auto& entry) {
        return stored(second_weights + entry.weight.name);
      }))
    return say(reader.folder(), " holds one version of the weights in ", name_of(dtype_of<T>),
               "; the second version starts equal to it");
  if (step == 0) return;
  for (const auto& entry : entries) {
    auto weight = entry.weight;
    weight.name = second_weights + weight.name;
    load_staged(handle_, reader, weight, rounding_bytes);
  }
}

/// Whether a checkpoint has a fragment's mean difference in the type of messages; equal on all
/// ranks.
template <class P>
bool RankCheckpoint<P>::holds_means(const checkpoint::Reader& reader, int fragment) const {
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

/// Restores outer momentum, the mean difference in flight, and the workers, as far as the
/// checkpoint has them. Other workers continue from the shared weights and the first worker's
/// optimizer state, which are already loaded.
template <class P>
void RankCheckpoint<P>::load_workers(const checkpoint::Reader& reader) {
  parts_.local->begin(handle_);
  if (lacks_adapters(reader, architecture_)) return;  // the adapters begin a new run
  const std::int64_t step = reader.state().step;
  const auto stored =
      std::ranges::find(reader.arrays(), worker_progress, &checkpoint::ArrayInfo::name);
  const std::int64_t workers = stored == reader.arrays().end() ? 0 : stored->shape.front();
  if (workers == 0 && step > 0)
    say(reader.folder(), " holds no workers of local training; all workers start from its weights");
  else if (workers > 0 && workers != parts_.local->workers())
    say(reader.folder(), " holds ", workers, " workers; ",
        workers < parts_.local->workers()
            ? "the others start from the shared weights, with the first worker's optimizer state"
            : "the others are ignored");
  for (const auto& block : parts_.optimizer->state())
    if (const auto momentum = parts_.local->outer_momentum(block);
        momentum.data.data() != nullptr && reader.has(momentum.name))
      load_array(handle_, reader, momentum);
  if (const auto fragment = parts_.local->schedule().in_flight(step);
      fragment && holds_means(reader, *fragment))
    parts_.local->load_means(step, [&](const auto& means) {
      for (const auto& [first, mean] : means) load_staged(handle_, reader, mean, rounding_bytes);
    });
  for (std::int64_t w = 0; w < parts_.local->workers_here(); ++w) {
    const std::int64_t worker = parts_.local->first_worker() + w;
    if (worker >= workers) continue;
    parts_.local->select(handle_, w);
    load_worker(reader, worker);
    load_progress(reader, worker);
    if (parts_.weight_gather) parts_.weight_gather->forget_windows();
  }
}

template <class P>
void RankCheckpoint<P>::load_worker(const checkpoint::Reader& reader, std::int64_t worker) {
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
    load_state(handle_, reader, block, as_worker);
  }
}

template <class P>
void RankCheckpoint<P>::load_progress(const checkpoint::Reader& reader, std::int64_t worker) {
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

template class RankCheckpoint<model::Fp32>;
template class RankCheckpoint<model::Fp64>;
template class RankCheckpoint<model::MixedBf16>;
template class RankCheckpoint<model::MixedFp16>;

}  // namespace trireme::train
