// Losses and norms of the steps between two logged steps: a ring of rows on the device.
#include <trireme/train/step_history.hpp>

#include <trireme/kernels/elementwise.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/tensor/copy.hpp>

#include <algorithm>

namespace trireme::train {

StepHistory::StepHistory(const deck::RunConfig& run, std::int64_t terms)
    : terms_(terms),
      capacity_(plan::history_steps(run)),
      memory_("step history", plan::history_bytes(run, terms)),
      rows_(memory_.take<double>(capacity_ * (terms + 1))) {
  kept_.reserve(static_cast<std::size_t>(capacity_));
}

View1<double> StepHistory::row(std::int64_t step) const {
  return View1<double>(rows_.data() + step % capacity_ * (terms_ + 1),
                       static_cast<std::size_t>(terms_ + 1));
}

void StepHistory::add(const Exec& exec, std::int64_t step, std::int64_t targets,
                      View1<const double> losses) {
  if (std::ssize(kept_) == capacity_) kept_.erase(kept_.begin());
  kept_.push_back({step, targets, {}, 0});
  if (!cleared_) kernels::fill(exec, rows_, 0.0);  // norms stay 0 in runs without norms
  cleared_ = true;
  has_norm_ = false;
  kernels::copy<double>(exec, View1<double>(row(step).data(), losses.extent(0)), losses);
}

void StepHistory::add_norm(const Exec& exec, View1<const double> norm) {
  const View1<double> sum(row(kept_.back().step).data() + terms_, 1);
  if (has_norm_)
    kernels::accumulate<double>(exec, sum, norm);
  else
    kernels::copy<double>(exec, sum, norm);
  has_norm_ = true;
}

std::vector<StepHistory::Entry> StepHistory::take(const Exec& exec, std::int64_t step) {
  const auto end = std::ranges::upper_bound(kept_, step, {}, &Entry::step);
  std::vector<Entry> taken(kept_.begin(), end);
  kept_.erase(kept_.begin(), end);
  if (!taken.empty() && taken.back().step == step) taken.pop_back();
  if (taken.empty()) return taken;
  std::vector<double> rows(rows_.extent(0));
  copy_to_host<double>(exec, rows, rows_, "train/result reads the losses of earlier steps");
  for (Entry& entry : taken) {
    const double* first = rows.data() + entry.step % capacity_ * (terms_ + 1);
    entry.losses.assign(first, first + terms_);
    entry.norm = first[terms_];
  }
  return taken;
}

}  // namespace trireme::train
