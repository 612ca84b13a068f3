// A server's results, its slices of a checkpoint, and the way back.
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/fence.hpp>
#include <trireme/tensor/region.hpp>
#include <trireme/train/load.hpp>
#include <trireme/train/progress.hpp>
#include <trireme/train/rank_parts.hpp>
#include <trireme/train/server_worker.hpp>
#include <trireme/train/slices.hpp>

#include <algorithm>
#include <array>

namespace trireme::train {

template <class P>
void ServerWorker<P>::initialise() {
  const Region region("initialise");
  parameters_.initialise(handle_, static_cast<std::uint64_t>(config_.run.seed));
  optimizer_->zero_state(handle_);
  optimizer_->copy_masters_from_weights(handle_);
  const double scale = initial_loss_scale(config_.precision);
  optimizer_->set_progress(handle_, {0, 0, scale, 0, 0, scale});
  begin_after(0);
}

/// The workers have the losses, and the servers the rest.
template <class P>
StepResult ServerWorker<P>::result() {
  const Region region("result");
  messages_->data.template broadcast<double>(handle_, optimizer_->status(),
                                             messages_->server_place(0), "status of the servers");
  std::array<double, kernels::status_size> status{};
  copy_to_host<double>(handle_, status, optimizer_->status(),
                       "train/result reads the gradient norm and what was skipped");
  StepResult found;
  found.gradient_norm = status[kernels::status_norm];
  found.skips = skips_from<P>(config_, status, *optimizer_);
  messages_->data.broadcast(std::as_writable_bytes(std::span(&found.loss, 1)), 0,
                            "loss of the workers");
  return found;
}

template <class P>
StepResult ServerWorker<P>::result_of(std::int64_t step) {
  check(step == step_, "step ", step, " is not the last one, ", step_);
  return result();
}

template <class P>
Evaluation ServerWorker<P>::evaluate(const data::Windows& /*file*/, std::int64_t /*windows*/,
                                     const std::vector<std::int32_t>& /*bytes_of_token*/) {
  const Region region("evaluation");
  for (int worker = 0; worker < messages_->workers(); ++worker) send_weights(worker);
  finish_sends();
  Evaluation found;
  found.losses.emplace_back();
  messages_->data.broadcast(std::as_writable_bytes(std::span(&found.losses.front().nats, 1)), 0,
                            "loss of the evaluation");
  return found;
}

template <class P>
std::vector<Score> ServerWorker<P>::score(const data::Requests& /*requests*/) {
  throw Error("servers score no requests");
}

/// One server writes its whole arrays, several servers their parts.
template <class P>
std::vector<checkpoint::SliceView> ServerWorker<P>::share() {
  fence(handle_, "train/share waits for the step");
  const auto& entries = parameters_.entries();
  const auto state = optimizer_->state();
  const bool divided = parameters_.weight_places().has_windows();
  const auto all = architecture::saved_parts(architecture_, parameters_.shard(),
                                             parameters_.local_arrays(), 1, 0);
  std::vector<checkpoint::SliceView> slices;
  const auto add_state = [&](const auto& array_of) {
    if (divided) {
      for (const auto& block : state)
        if (const auto* array = block.counted ? array_of(block) : nullptr)
          slices.push_back(slice_of(handle_, *array, {0, array->offset, array->extent, 0}));
      return;
    }
    for (const auto& part : all) {
      if (entries[part.local].local.frozen) continue;
      const auto block =
          std::ranges::lower_bound(state, part.local, {}, [](const auto& b) { return b.local; });
      if (const auto* array = array_of(*block)) slices.push_back(slice_of(handle_, *array, part));
    }
  };
  if (divided || optim::Optimizer<P>::has_masters)
    add_state([](const auto& block) { return &block.updated; });
  if (divided)
    for (const auto& block : parameters_.owned_frozen())
      slices.push_back(frozen_slice_of(handle_, block, {0, block.offset, block.extent, 0}));
  else
    for (const auto& part : all) {
      const auto& entry = entries[part.local];
      if (entry.local.frozen)
        slices.push_back(frozen_slice_of(handle_, entry.weight, part));
      else if (!optim::Optimizer<P>::has_masters)
        slices.push_back(slice_of(handle_, entry.weight, part));
    }
  const std::size_t kinds = architecture::state_arrays(config_.optimizer).size();
  for (std::size_t kind = 0; kind < kinds; ++kind)
    add_state([kind](const auto& block) {
      return kind < block.arrays.size() ? &block.arrays[kind] : nullptr;
    });
  return slices;
}

template <class P>
void ServerWorker<P>::load(const checkpoint::Reader& reader) {
  const Region region("load");
  const std::int64_t step = reader.state().step;
  begin_after(step);
  const bool fresh = lacks_adapters(reader, architecture_);
  load_weights(handle_, reader, architecture_, parameters_,
               static_cast<std::uint64_t>(config_.run.seed));
  const auto state = optimizer_->state();
  if constexpr (optim::Optimizer<P>::has_masters) {
    if (fresh) optimizer_->copy_masters_from_weights(handle_);
    for (const auto& block : state)
      if (!fresh || !parameters_.entries()[block.local].spec->adapter)
        load_array(handle_, reader, block.updated);
  }
  const bool begins = fresh || holds_weights_only(reader);
  if (begins)
    optimizer_->zero_state(handle_);
  else
    for (const auto& block : state)
      for (const auto& array : block.arrays) load_array(handle_, reader, array);
  optimizer_->set_progress(handle_, progress_after(config_, reader, begins));
}

template <class P>
std::vector<plan::MemoryRow> ServerWorker<P>::memory() const {
  std::vector<plan::MemoryRow> rows{{"weights", parameters_.weight_bytes()},
                                    {"gradients", parameters_.gradient_bytes()},
                                    {"optimizer state", optimizer_->state_bytes()},
                                    {"received gradients", received_.capacity()}};
  if (const Bytes bytes = handle_.workspace_bytes(); bytes > 0)
    rows.push_back({"kernel workspace", bytes});
  return rows;
}

template <class P>
std::string ServerWorker<P>::description() const {
  const DType type = config_.precision.compute;
  return text(name_of(type), " products by ", handle_.choice().products_description(type));
}

#define TRIREME_INSTANTIATE(P)                                                      \
  template void ServerWorker<P>::initialise();                                      \
  template StepResult ServerWorker<P>::result();                                    \
  template StepResult ServerWorker<P>::result_of(std::int64_t);                     \
  template Evaluation ServerWorker<P>::evaluate(const data::Windows&, std::int64_t, \
                                                const std::vector<std::int32_t>&);  \
  template std::vector<Score> ServerWorker<P>::score(const data::Requests&);        \
  template std::vector<checkpoint::SliceView> ServerWorker<P>::share();             \
  template void ServerWorker<P>::load(const checkpoint::Reader&);                   \
  template std::vector<plan::MemoryRow> ServerWorker<P>::memory() const;            \
  template std::string ServerWorker<P>::description() const;
TRIREME_INSTANTIATE(model::Fp32)
TRIREME_INSTANTIATE(model::Fp64)
TRIREME_INSTANTIATE(model::MixedBf16)
TRIREME_INSTANTIATE(model::MixedFp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::train
