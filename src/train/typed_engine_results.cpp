// Results of the last step (losses, norm, skipped steps, gradient noise scale), the rank's slices
// of a checkpoint, and restart from a checkpoint.
#include <trireme/train/typed_engine.hpp>

#include <trireme/architecture/saved.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/noise_scale.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/region.hpp>
#include <trireme/train/load.hpp>
#include <trireme/train/progress.hpp>
#include <trireme/train/slices.hpp>

#include <algorithm>
#include <array>

namespace trireme::train {
namespace {

/// Combines the optimizer status of all workers: the mean norm, the last skipped step, the largest
/// numbers of skipped steps, the smallest loss scale and the smallest number of updates since.
std::vector<double> common_status(const std::vector<double>& all) {
  constexpr std::size_t size = kernels::status_size;
  std::vector<double> common(all.begin(), all.begin() + size);
  for (std::size_t w = 1; w < all.size() / size; ++w) {
    const double* one = all.data() + w * size;
    if (one[kernels::status_skipped_step] > common[kernels::status_skipped_step])
      for (const auto at : {kernels::status_skipped_step, kernels::status_skipped_sum})
        common[at] = one[at];
    for (const auto at : {kernels::status_loss_scale, kernels::status_scale_steps})
      common[at] = std::min(common[at], one[at]);
    for (const auto at : {kernels::status_skipped, kernels::status_skipped_in_row})
      common[at] = std::max(common[at], one[at]);
    common[kernels::status_norm] += one[kernels::status_norm];
  }
  common[kernels::status_norm] /= static_cast<double>(all.size() / size);
  return common;
}

}  // namespace

template <class P>
std::vector<double> TypedEngine<P>::statuses() {
  const auto workers = static_cast<std::size_t>(local_ ? local_->workers() : 1);
  std::vector<double> all(workers * kernels::status_size);
  for (std::int64_t w = 0; w < (local_ ? local_->workers_here() : 1); ++w) {
    const auto at = static_cast<std::size_t>((local_ ? local_->first_worker() : 0) + w);
    copy_to_host<double>(handle_,
                         std::span(all).subspan(at * kernels::status_size, kernels::status_size),
                         local_ ? local_->status_of(w) : parts_.optimizer->status(),
                         "train/result reads the gradient norm and what was skipped");
  }
  if (local_)
    local_->across().template all_reduce<double>(std::span(all), grid::Reduction::sum,
                                                 "progress of workers");
  return all;
}

template <class P>
StepResult TypedEngine<P>::result() {
  if (parts_.other_version) return result_of(actions_.step());
  const Region region("result");
  take_status();
  const std::vector<double> sums =
      loss_sums(local_ ? worker_losses_ : parts_.model->losses(), "train/result reads the loss");
  const std::vector<double> status = common_status(statuses());
  StepResult found = result_from(sums, status, actions_.step());
  found.earlier = earlier_steps(actions_.step());
  tell_servers(found.loss, "loss of the workers");
  if (!parts_.noise) return found;
  std::array<double, kernels::noise_state_size> noise{};
  copy_to_host<double>(handle_, noise, parts_.noise->state(),
                       "train/result reads the gradient noise scale");
  // Early on, and where the noise is much larger than the gradient, the estimate of the squared
  // gradient may not be positive.
  if (noise[kernels::noise_square] > 0 && noise[kernels::noise_variance] > 0)
    found.noise_scale = noise[kernels::noise_variance] / noise[kernels::noise_square];
  return found;
}

template <class P>
void TypedEngine<P>::remember(std::int64_t step) {
  const Region region("keep_losses");
  const bool overlaps = parts_.other_version.has_value();
  const bool divides = overlaps ? grid_.world().rank() == 0 : parts_.parameters.shard().has_head();
  const View1<double> losses = overlaps ? actions_.records().losses(step)
                               : local_ ? worker_losses_
                                        : parts_.model->losses();
  history_->add(handle_, step, divides ? actions_.batch_targets(step) : 0, losses);
  const auto add_norm = [&](View1<double> status) {
    history_->add_norm(handle_, View1<double>(status.data() + kernels::status_norm, 1));
  };
  if (overlaps) return add_norm(actions_.records().status(step));
  if (parts_.servers) return;
  if (!local_) return add_norm(parts_.optimizer->status());
  for (std::int64_t w = 0; w < local_->workers_here(); ++w) add_norm(local_->status_of(w));
}

/// Without overlapping steps, the losses are on the last stage of each replica, and the norms on
/// all ranks of a worker.
template <class P>
std::vector<StepLoss> TypedEngine<P>::earlier_steps(std::int64_t step) {
  const std::vector<StepHistory::Entry> entries = history_->take(handle_, step);
  if (entries.empty()) return {};
  const auto& terms = parts_.model->objective().losses;
  std::vector<double> losses, norms;
  for (const StepHistory::Entry& e : entries) {
    losses.insert(losses.end(), e.losses.begin(), e.losses.end());
    norms.push_back(e.norm);
  }
  const bool overlaps = parts_.other_version.has_value();
  if (!overlaps)
    parts_.replicas.template all_reduce<double>(std::span(losses), grid::Reduction::sum,
                                                "losses of earlier steps");
  if (local_)
    for (std::vector<double>* sums : {&losses, &norms})
      local_->across().template all_reduce<double>(std::span(*sums), grid::Reduction::sum,
                                                   "losses of earlier steps");
  for (std::size_t e = 0; e < entries.size(); ++e)
    for (std::size_t t = 0; t < terms.size(); ++t) {
      const std::int64_t counted =
          t == 0 ? entries[e].targets
                 : actions_.batch_samples(entries[e].step) * terms[t].per_sample;
      double& loss = losses[e * terms.size() + t];
      loss = counted == 0 ? 0 : loss / static_cast<double>(counted);
    }
  if (!overlaps)
    parts_.pipeline.broadcast(std::as_writable_bytes(std::span(losses)),
                              parts_.layout.rank_of(parts_.layout.last_stage()),
                              "losses of earlier steps");
  std::vector<StepLoss> found;
  for (std::size_t e = 0; e < entries.size(); ++e) {
    StepLoss& one = found.emplace_back();
    one.step = entries[e].step;
    for (std::size_t t = 0; t < terms.size(); ++t) {
      const double mean = losses[e * terms.size() + t];
      one.loss += mean;
      if (t > 0) one.other_losses.push_back(NamedLoss{std::string(terms[t].name), mean});
    }
    if (!parts_.servers)
      one.gradient_norm = norms[e] / static_cast<double>(local_ ? local_->workers() : 1);
  }
  return found;
}

template <class P>
StepResult TypedEngine<P>::result_from(std::span<const double> sums, std::span<const double> status,
                                       std::int64_t step) const {
  const Skips skips = skips_from<P>(config_, status, *parts_.optimizer);
  StepResult found{0, {}, status[kernels::status_norm], skips, {}};
  const auto& terms = parts_.model->objective().losses;
  const std::int64_t samples = actions_.batch_samples(step);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const std::int64_t counted =
        i == 0 ? actions_.batch_targets(step) : samples * terms[i].per_sample;
    const double mean = counted == 0 ? 0 : sums[i] / static_cast<double>(counted);
    found.loss = i == 0 ? mean : found.loss + mean;
    if (i > 0) found.other_losses.push_back(NamedLoss{std::string(terms[i].name), mean});
  }
  return found;
}

namespace {

/// State array `kind` of a block; without data if the block's array has no such state.
template <class Block>
auto array_of(const Block& block, std::size_t kind) {
  using Tensor = std::remove_cvref_t<decltype(block.updated)>;
  return kind < block.arrays.size() ? block.arrays[kind] : Tensor();
}

}  // namespace

template <class P>
std::vector<checkpoint::SliceView> TypedEngine<P>::share() {
  parts_.finish_gathers();
  fence(handle_, "train/share waits for the step");
  if (parts_.servers) return {};  // servers write all slices
  const auto& entries = parts_.parameters_of(actions_.step()).entries();
  std::vector<architecture::RankArray> arrays;
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
  // Adds the tensors that tensor_of returns for the blocks of this rank, except tensors without
  // data.
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
  if (local_) {
    share_workers(add_state);
    share_progress(slices);
  } else {
    // For two-byte weights the checkpoint stores the master weights, which a restart rounds again.
    if (optim::Optimizer<P>::has_masters || parts_.parameters.weight_places().has_windows())
      add_state([](const auto& block) { return block.updated; });
    else
      add_weights();
    for (std::size_t kind = 0; kind < state_arrays(); ++kind)
      add_state([kind](const auto& block) { return array_of(block, kind); });
  }
  if (local_ && local_->first_worker() > 0) return slices;  // the rest is equal for all workers
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

/// Adds the arrays of local training. The shared weights have the names of the model's weights. A
/// worker's weights are saved unless they equal the shared weights.
template <class P>
template <class AddState>
void TypedEngine<P>::share_workers(const AddState& add_state) {
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
void TypedEngine<P>::share_progress(std::vector<checkpoint::SliceView>& slices) {
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
void TypedEngine<P>::copy_second_weights(std::int64_t step) {
  if (!parts_.other_version) return;
  kernels::copy<T>(handle_, parts_.parameters_of(step + 1).all_weights(),
                   parts_.parameters_of(step).all_weights());
  parts_.parameters_of(step + 1).changed();
}

/// A run that continues a checkpoint of another schedule or precision begins with two equal
/// versions, like every new run.
template <class P>
void TypedEngine<P>::load_second_weights(const checkpoint::Reader& reader) {
  if (!parts_.other_version) return;
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
               "; the second version starts equal to it");
  if (step == 0) return;
  for (const auto& entry : entries) {
    auto weight = entry.weight;
    weight.name = second_weights + weight.name;
    load_staged(handle_, reader, weight, rounding_bytes);
  }
}

/// If the stored history has another length, the maxima of the latest steps are kept.
template <class P>
void TypedEngine<P>::load_fp8(const checkpoint::Reader& reader) {
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
void TypedEngine<P>::load(const checkpoint::Reader& reader) {
  if (history_) history_->forget();
  const Region region("load");
  load_model(reader);
  if (parts_.optimizer && reader.has(worker_progress) && !lacks_adapters(reader, architecture_))
    load_progress(reader, 0);  // the loaded state is the state of the first worker
  if (local_) load_workers(reader);
}

template <class P>
void TypedEngine<P>::load_model(const checkpoint::Reader& reader) {
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

// typed_engine.cpp instantiates the other members.
#define TRIREME_INSTANTIATE(P)                                                                  \
  template std::vector<double> TypedEngine<P>::statuses();                                      \
  template StepResult TypedEngine<P>::result();                                                 \
  template void TypedEngine<P>::remember(std::int64_t);                                         \
  template std::vector<StepLoss> TypedEngine<P>::earlier_steps(std::int64_t);                   \
  template StepResult TypedEngine<P>::result_from(std::span<const double>,                      \
                                                  std::span<const double>, std::int64_t) const; \
  template std::vector<checkpoint::SliceView> TypedEngine<P>::share();                          \
  template void TypedEngine<P>::load_fp8(const checkpoint::Reader&);                            \
  template void TypedEngine<P>::copy_second_weights(std::int64_t);                              \
  template void TypedEngine<P>::load_second_weights(const checkpoint::Reader&);                 \
  template void TypedEngine<P>::share_progress(std::vector<checkpoint::SliceView>&);            \
  template void TypedEngine<P>::load_model(const checkpoint::Reader&);                          \
  template void TypedEngine<P>::load(const checkpoint::Reader&);
TRIREME_INSTANTIATE(model::Fp32)
TRIREME_INSTANTIATE(model::Fp64)
TRIREME_INSTANTIATE(model::MixedBf16)
TRIREME_INSTANTIATE(model::MixedFp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::train
