// The training loop's part for parameter servers: workers meet only after steps that are logged,
// evaluated or saved. In between they agree on requests to stop without waiting for one another.
#include <trireme/tensor/copy.hpp>
#include <trireme/train/trainer.hpp>

#include <algorithm>
#include <utility>

namespace trireme::train {
namespace {}  // namespace

/// Steps from the begin of an agreement to its end. A worker that gets the weights for step c + lag
/// knows that every other worker has ended step c, so that it need not wait for the agreement.
std::int64_t Trainer::agreement_lag() const {
  return parts_.config.parallel.staleness + 1;
}

/// Whether all updates of the step are applied before the next one begins. A replayed run does so
/// after the steps of the recorded run only, whatever is requested.
bool Trainer::meets_after(std::int64_t step) const {
  const deck::Config& c = parts_.config;
  if (is_logged(step) || due(step, c.checkpoint.every)) return true;
  return c.parallel.replay.empty() &&
         (save_is_due_ || wanted_.stop != 0 || wanted_.checkpoint != 0);
}

Request Trainer::take_served_step(std::int64_t step) {
  const bool meets = meets_after(step);
  worker_.overlapping_step(step, parts_.samples, !meets);
  if (!meets) {
    begin_late_agreement(step);
    if (std::ssize(late_agreements_) > agreement_lag()) end_late_agreement();
    return {};
  }
  while (!late_agreements_.empty()) end_late_agreement();
  Request request = agreement(step);
  request.stop = std::max(request.stop, wanted_.stop);
  request.checkpoint = std::max(request.checkpoint, wanted_.checkpoint);
  wanted_ = {};
  return request;
}

void Trainer::begin_late_agreement(std::int64_t step) {
  LateAgreement& begun = late_agreements_.emplace_back();
  begun.phase = saver_.phases();
  begun.words = wishes(step);
  const std::int64_t n = std::ssize(begun.words);
  if (late_words_.extent(0) == 0) {
    late_memory_ = Arena("agreements", (agreement_lag() + 1) * n * 8);
    late_words_ = late_memory_.take<std::int64_t>((agreement_lag() + 1) * n);
  }
  const std::int64_t place = step % (agreement_lag() + 1);
  begun.sent = View1<std::int64_t>(late_words_.data() + place * n, begun.words.size());
  copy_to_device<std::int64_t>(exec_, begun.sent, begun.words);
  begun.request =
      parts_.world.start_all_reduce<std::int64_t>(exec_, begun.sent, grid::Reduction::maximum);
}

void Trainer::end_late_agreement() {
  LateAgreement ended = std::move(late_agreements_.front());
  late_agreements_.pop_front();
  parts_.world.wait(ended.request, "agreement at a step's end");
  copy_to_host<std::int64_t>(exec_, ended.words, ended.sent,
                             "train/end_late_agreement reads the requests");
  const Request found = agreed(ended.words, ended.phase);
  wanted_.stop = std::max(wanted_.stop, found.stop);
  wanted_.checkpoint = std::max(wanted_.checkpoint, found.checkpoint);
}

}  // namespace trireme::train
