// The instructions at a step's end: sums of gradients, the norm and the update. With overlapping
// steps, sums begin in one instruction and end in another.
#include <trireme/kernels/elementwise.hpp>
#include <trireme/optim/learning_rate.hpp>
#include <trireme/tensor/region.hpp>
#include <trireme/train/step_actions.hpp>

namespace trireme::train {

template <class P>
void StepActions<P>::reduce_gradients(const Step& step) {
  const std::int64_t number = step_of(step);
  parts_.reducer_of(number).finish(handle_, step.instr.stage);
  if (parts_.servers) return;  // they do the rest of the step
  // Gradients of head norms cover this rank's heads only. With sequence parallelism, gradients of
  // norms, biases and positions cover this rank's tokens only.
  for (const bool partial : {false, true}) {
    const auto gradients =
        parts_.parameters_of(number).replicated_gradients(step.instr.stage, partial);
    if ((partial || parts_.axis.cuts_tokens()) && gradients.extent(0) > 0)
      parts_.tensor.template all_reduce<typename P::Gradient>(
          handle_, gradients, grid::Reduction::sum, "gradients of replicated arrays");
  }
}

template <class P>
void StepActions<P>::begin_tied_sum(std::int64_t step) {
  parts_.optimizer_of(step).combine_tied_gradients(handle_);
  if (parts_.embedding.size() == 1) return;
  const auto& table = parts_.parameters_of(step).entry("embedding.token");
  if (!table.spec->frozen)
    tied_sum_ = parts_.embedding.template start_all_reduce<typename P::Gradient>(
        handle_, table.gradient.data, grid::Reduction::sum);
}
template <class P>
void StepActions<P>::begin_tied(const Step& step) {
  begin_tied_sum(step_of(step));
  tied_has_begun_ = true;
}
template <class P>
void StepActions<P>::reduce_tied(const Step& step) {
  if (parts_.servers) return;
  if (!tied_has_begun_) begin_tied_sum(step_of(step));
  tied_has_begun_ = false;
  if (tied_sum_.active()) parts_.embedding.wait(tied_sum_, "gradient of the tied token table");
}
/// Sums the gradients of shared layers over the tensor ranks that share heads, the data axis, the
/// tensor axis and the pipeline.
template <class P>
void StepActions<P>::sum_shared_layers() {
  for (std::int64_t layer = 0; layer < config_.model.shared_layers; ++layer)
    parts_.shared_gradients->sum(handle_, layer);
  parts_.reducer->reduce_shared(handle_);
  for (const architecture::SharedPart& part : architecture::shared_parts(
           parts_.parameters.local_arrays(), parts_.parameters.placement())) {
    const View1<typename P::Gradient> gradients(
        parts_.parameters.all_gradients().data() +
            parts_.parameters.gradient_places().place(part.run.offset),
        static_cast<std::size_t>(part.run.extent));
    const bool over_tensor = part.partial_gradient || (!part.split && parts_.axis.cuts_tokens());
    if (over_tensor)
      parts_.tensor.template all_reduce<typename P::Gradient>(
          handle_, gradients, grid::Reduction::sum, "gradients of replicated arrays");
    parts_.pipeline.template all_reduce<typename P::Gradient>(
        handle_, gradients, grid::Reduction::sum, "gradients of shared layers");
  }
}

/// The losses of a step are summed together with its norm, over the replicas of the last stage and
/// then over the ranks of a replica, of which the others add zeros.
template <class P>
void StepActions<P>::begin_norm_sum(std::int64_t step) {
  parts_.optimizer_of(step).begin_norm(handle_);
  const View1<double> losses = records_->losses(step);
  const bool has_losses = parts_.parameters.shard().has_head();
  if (has_losses)
    parts_.replicas.template all_reduce<double>(handle_, losses, grid::Reduction::sum, "loss");
  if (!has_losses || parts_.tensor.rank() > 0) kernels::fill(handle_, losses, 0.0);
  loss_sum_ =
      parts_.replica.template start_all_reduce<double>(handle_, losses, grid::Reduction::sum);
}
template <class P>
void StepActions<P>::begin_norm(const Step& step) {
  begin_norm_sum(step_of(step));
  norm_has_begun_ = true;
}
template <class P>
void StepActions<P>::gradient_norm(const Step& step) {
  if (parts_.servers) return;
  if (config_.model.shared_layers > 0) sum_shared_layers();
  if (vocabulary_) parts_.optimizer->combine_tied_gradients(handle_);
  if (!parts_.second) {
    parts_.optimizer->find_norm(handle_);
    if (parts_.noise)
      parts_.noise->add_step(handle_, parts_.optimizer->squares(), parts_.optimizer->loss_scale(),
                             batch_.micro, batch_.global);
    return;
  }
  if (!norm_has_begun_) begin_norm_sum(step_of(step));
  norm_has_begun_ = false;
  parts_.optimizer->end_norm(handle_);
  parts_.replica.wait(loss_sum_, "loss");
}

template <class P>
void StepActions<P>::optimizer_step(const Step& step) {
  if (parts_.servers) return;
  const std::int64_t number = step_of(step);
  const double rate = optim::learning_rate(config_.optimizer, number, batches_.global(number));
  optim::Optimizer<P>& optimizer = parts_.optimizer_of(number);
  if (parts_.second) {
    parts_.finish_gathers();
    // The weights that this step was computed with are replaced by the newest ones, then updated.
    kernels::copy<T>(handle_, parts_.parameters_of(number).all_weights(),
                     parts_.parameters_of(number + 1).all_weights());
    kernels::copy<double>(handle_, records_->scale_before(number), optimizer.loss_scale());
    optimizer.delayed_step(handle_, number, rate);
    kernels::copy<double>(handle_, records_->status(number), optimizer.status());
  } else {
    optimizer.step(handle_, number, rate);
  }
  if (parts_.fp8) finish_fp8();
  if (!parts_.weight_gather) return;
  const Region region("gather_weights");
  parts_.weight_gather_of(number).update(handle_);
}

/// Maxima are exact, so that their order does not matter.
template <class P>
void StepActions<P>::finish_fp8() {
  const Region region("fp8_scales");
  for (grid::Communicator* ranks : {&parts_.replica, &parts_.replicas})
    ranks->template all_reduce<float>(handle_, parts_.fp8->maxima(), grid::Reduction::maximum,
                                      "maxima of fp8 tensors");
  parts_.fp8->finish_step(handle_, step_);
}

template void StepActions<model::Fp32>::reduce_gradients(const Step&);
template void StepActions<model::Fp32>::begin_tied_sum(std::int64_t);
template void StepActions<model::Fp32>::begin_tied(const Step&);
template void StepActions<model::Fp32>::reduce_tied(const Step&);
template void StepActions<model::Fp32>::sum_shared_layers();
template void StepActions<model::Fp32>::begin_norm_sum(std::int64_t);
template void StepActions<model::Fp32>::begin_norm(const Step&);
template void StepActions<model::Fp32>::gradient_norm(const Step&);
template void StepActions<model::Fp32>::optimizer_step(const Step&);
template void StepActions<model::Fp32>::finish_fp8();
template void StepActions<model::Fp64>::reduce_gradients(const Step&);
template void StepActions<model::Fp64>::begin_tied_sum(std::int64_t);
template void StepActions<model::Fp64>::begin_tied(const Step&);
template void StepActions<model::Fp64>::reduce_tied(const Step&);
template void StepActions<model::Fp64>::sum_shared_layers();
template void StepActions<model::Fp64>::begin_norm_sum(std::int64_t);
template void StepActions<model::Fp64>::begin_norm(const Step&);
template void StepActions<model::Fp64>::gradient_norm(const Step&);
template void StepActions<model::Fp64>::optimizer_step(const Step&);
template void StepActions<model::Fp64>::finish_fp8();
template void StepActions<model::MixedBf16>::reduce_gradients(const Step&);
template void StepActions<model::MixedBf16>::begin_tied_sum(std::int64_t);
template void StepActions<model::MixedBf16>::begin_tied(const Step&);
template void StepActions<model::MixedBf16>::reduce_tied(const Step&);
template void StepActions<model::MixedBf16>::sum_shared_layers();
template void StepActions<model::MixedBf16>::begin_norm_sum(std::int64_t);
template void StepActions<model::MixedBf16>::begin_norm(const Step&);
template void StepActions<model::MixedBf16>::gradient_norm(const Step&);
template void StepActions<model::MixedBf16>::optimizer_step(const Step&);
template void StepActions<model::MixedBf16>::finish_fp8();
template void StepActions<model::MixedFp16>::reduce_gradients(const Step&);
template void StepActions<model::MixedFp16>::begin_tied_sum(std::int64_t);
template void StepActions<model::MixedFp16>::begin_tied(const Step&);
template void StepActions<model::MixedFp16>::reduce_tied(const Step&);
template void StepActions<model::MixedFp16>::sum_shared_layers();
template void StepActions<model::MixedFp16>::begin_norm_sum(std::int64_t);
template void StepActions<model::MixedFp16>::begin_norm(const Step&);
template void StepActions<model::MixedFp16>::gradient_norm(const Step&);
template void StepActions<model::MixedFp16>::optimizer_step(const Step&);
template void StepActions<model::MixedFp16>::finish_fp8();

}  // namespace trireme::train
