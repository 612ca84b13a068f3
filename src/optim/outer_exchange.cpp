// Messages of an outer step: the parts of the differences, then the parts of the mean.
#include <trireme/optim/outer_exchange.hpp>

#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/outer_step.hpp>
#include <trireme/layout/split.hpp>

#include <exception>
#include <numeric>

namespace trireme::optim {

template <class D>
OuterExchange<D>::OuterExchange(grid::Communicator& across, const deck::ParallelConfig& parallel,
                                std::int64_t elements)
    : across_(across),
      per_rank_(parallel.workers_per_rank()),
      elements_(elements),
      memory_("outer steps",
              architecture::exchange_bytes(parallel, elements, static_cast<Bytes>(sizeof(D)))) {
  const std::int64_t ranks = across.size();
  differences_ = memory_.take<D>(per_rank_ * elements);
  mean_ = memory_.take<D>(elements);
  received_ = ranks == 1 ? differences_
                         : memory_.take<D>(per_rank_ * ranks * ((elements + ranks - 1) / ranks));
}

template <class D>
OuterExchange<D>::~OuterExchange() {
  if (std::uncaught_exceptions() > 0) return;
  for (grid::Request& transfer : transfers_) across_.wait(transfer, "differences of workers");
  across_.wait(gather_, "means of differences");
}

template <class D>
void OuterExchange<D>::begin(std::int64_t n) {
  check(n <= elements_, "an exchange of ", n, " elements, but its memory holds ", elements_);
  n_ = n;
  counts_.clear();
  for (int r = 0; r < across_.size(); ++r)
    counts_.push_back(layout::split(n, across_.size(), r).extent);
}

template <class D>
View1<D> OuterExchange<D>::difference(std::int64_t worker) const {
  return part(differences_, worker * n_, n_);
}

template <class D>
View2<D> OuterExchange<D>::received() const {
  const auto mine = static_cast<std::size_t>(counts_[static_cast<std::size_t>(across_.rank())]);
  return View2<D>(received_.data(), static_cast<std::size_t>(per_rank_ * across_.size()), mine);
}

template <class D>
void OuterExchange<D>::send(const Exec& exec) {
  state_ = State::sending;
  if (across_.size() == 1 || n_ == 0) return;
  const std::int64_t mine = counts_[static_cast<std::size_t>(across_.rank())];
  constexpr int channel = 0;
  std::int64_t first = 0;  // first element of the part of rank r
  across_.begin_group();
  for (int r = 0; r < across_.size(); ++r) {
    const std::int64_t theirs = counts_[static_cast<std::size_t>(r)];
    for (std::int64_t w = 0; w < per_rank_; ++w) {
      const View1<D> out = part(difference(w), first, theirs);
      const View1<D> in = part(received_, (r * per_rank_ + w) * mine, mine);
      if (r == across_.rank()) {
        kernels::copy<D>(exec, in, out);
        continue;
      }
      if (mine > 0) transfers_.push_back(across_.template start_receive<D>(exec, in, r, channel));
      if (theirs > 0) transfers_.push_back(across_.template start_send<D>(exec, out, r, channel));
    }
    first += theirs;
  }
  across_.end_group(exec);
}

template <class D>
void OuterExchange<D>::sum(const Exec& exec) {
  if (state_ != State::sending) return;
  state_ = State::gathering;
  if (n_ == 0) return;
  for (grid::Request& transfer : transfers_) across_.wait(transfer, "differences of workers");
  transfers_.clear();
  const auto rank = static_cast<std::size_t>(across_.rank());
  const std::int64_t first =
      std::accumulate(counts_.begin(), counts_.begin() + across_.rank(), std::int64_t{0});
  const View1<D> mine = part(mean_, first, counts_[rank]);
  kernels::mean_of_workers<D>(exec, mine, received());
  if (across_.size() > 1)
    gather_ = across_.template start_all_gather<D>(exec, mean(), mine, counts_);
}

template <class D>
void OuterExchange<D>::finish(const Exec& exec) {
  sum(exec);
  across_.wait(gather_, "means of differences");
  state_ = State::complete;
}

template <class D>
void OuterExchange<D>::resume(std::int64_t n) {
  begin(n);
  state_ = State::complete;
}

template class OuterExchange<float>;
template class OuterExchange<double>;
template class OuterExchange<Bf16>;

}  // namespace trireme::optim
