// Local training on a rank: selection of the current worker's arrays, and outer steps.
#include <trireme/optim/local_training.hpp>

#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/outer_step.hpp>

#include <algorithm>

namespace trireme::optim {
namespace {

template <class T>
Bytes bytes_of(View1<T> view) {
  return extent(view, 0) * static_cast<Bytes>(sizeof(T));
}

}  // namespace

template <class P>
LocalTraining<P>::LocalTraining(const deck::Config& config,
                                const architecture::Architecture& architecture,
                                model::Parameters<P>& parameters, Optimizer<P>& optimizer,
                                grid::Communicator& across, WeightGather<T>* gather)
    : config_(config),
      parameters_(parameters),
      optimizer_(optimizer),
      across_(across),
      gather_(gather),
      schedule_(config.local),
      blocks_(optimizer.state()),
      fragments_(static_cast<std::size_t>(config.local.fragments)),
      sizes_(fragments_.size()) {
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const std::int64_t n = blocks_[b].updated.elements();
    if (n == 0) continue;
    const auto f = static_cast<std::size_t>(architecture::fragment_of(
        *parameters.entries()[blocks_[b].local].spec, config.model, config.local));
    fragments_[f].push_back({b, sizes_[f]});
    sizes_[f] += n;
  }
  const std::int64_t others = workers_here() - 1;
  const std::int64_t state_elements = optimizer.state_elements();
  const auto take_state = [&](Arena& arena) {
    outer_ = arena.take<Master>(state_elements);
    if (config_.local.outer_momentum > 0) momentum_ = arena.take<Master>(state_elements);
    parked_.resize(static_cast<std::size_t>(others));
    for (Parked& parked : parked_)
      parked.state = arena.take<Master>(extent(optimizer.all_state(), 0));
  };
  const auto take_parked = [&](Arena& arena) {
    for (Parked& parked : parked_) {
      parked.weights = arena.take<T>(extent(live_weights(), 0));
      parked.status = arena.take<double>(kernels::status_size);
    }
  };
  Arena plan, parked_plan;
  take_state(plan);
  take_parked(parked_plan);
  state_ = Arena("local training", plan.used(), optimizer.state_memory());
  parked_memory_ = Arena("parked workers", parked_plan.used());
  take_state(state_);
  take_parked(parked_memory_);
  const std::int64_t fragment = architecture::fragment_elements(
      architecture, parameters.rank_arrays(), config, state_elements);
  const std::int64_t elements = architecture::exchanged_elements(
      config, fragment, static_cast<Bytes>(sizeof(typename P::Gradient)));
  if (config.local.differences == Differences::bf16)
    exchange_ = std::make_unique<OuterExchange<Bf16>>(across, config.parallel, elements);
  else
    exchange_ = std::make_unique<OuterExchange<Master>>(across, config.parallel, elements);
  for (std::int64_t w = 0; w < workers_here(); ++w) place_.push_back(w - 1);
  stale_.resize(place_.size());
}

/// Memory of the trained weights, which come first in the arena; with windows, of all weights.
template <class P>
auto LocalTraining<P>::live_weights() const -> View1<T> {
  const View1<T> all = parameters_.all_weights();
  if (parameters_.weight_places().has_windows()) return all;
  return part(all, 0, parameters_.placement().trained);
}

template <class P>
std::byte* LocalTraining<P>::moved(std::int64_t here, std::byte* live) const {
  const std::ptrdiff_t place = place_[static_cast<std::size_t>(here)];
  if (place < 0 || live == nullptr) return live;
  const Parked& parked = parked_[static_cast<std::size_t>(place)];
  const auto within = [&](auto from, auto to) -> std::byte* {
    const auto* begin = reinterpret_cast<std::byte*>(from.data());
    if (live < begin || live >= begin + bytes_of(from)) return nullptr;
    return reinterpret_cast<std::byte*>(to.data()) + (live - begin);
  };
  std::byte* found = within(live_weights(), parked.weights);
  if (found == nullptr) found = within(optimizer_.all_state(), parked.state);
  check(found != nullptr, "a worker's array is neither among the weights nor in the state");
  return found;
}

template <class P>
View1<double> LocalTraining<P>::status_of(std::int64_t here) const {
  const std::ptrdiff_t place = place_[static_cast<std::size_t>(here)];
  return place < 0 ? optimizer_.status() : parked_[static_cast<std::size_t>(place)].status;
}

template <class P>
void LocalTraining<P>::begin(const Exec& exec) {
  if (gather_ != nullptr) gather_->finish();
  std::visit(
      [&](auto& exchange) {
        if (exchange->in_flight()) exchange->finish(exec);
        exchange->forget();
      },
      exchange_);
  for (const Block& block : blocks_)
    kernels::copy<Master>(exec, part(outer_, block.first, block.updated.elements()),
                          block.updated.data);
  if (momentum_.data() != nullptr) kernels::fill(exec, momentum_, 0.0);
  for (std::size_t w = 0; w < place_.size(); ++w) {
    place_[w] = static_cast<std::ptrdiff_t>(w) - 1;
    stale_[w] = false;
    if (w == 0) continue;
    const Parked& parked = parked_[w - 1];
    kernels::copy<T>(exec, parked.weights, live_weights());
    kernels::copy<Master>(exec, parked.state, optimizer_.all_state());
    kernels::copy<double>(exec, parked.status, optimizer_.status());
  }
}

/// Rounds master weights, and starts gathers of divided weights. Collective among the replicas.
template <class P>
void LocalTraining<P>::refresh(const Exec& exec) {
  optimizer_.round_weights(exec);
  parameters_.changed();
  if (gather_ != nullptr) gather_->update(exec);
}

template <class P>
void LocalTraining<P>::select(const Exec& exec, std::int64_t here) {
  const auto worker = static_cast<std::size_t>(here);
  if (place_[worker] >= 0) {
    if (gather_ != nullptr) gather_->forget_windows();
    const Parked& parked = parked_[static_cast<std::size_t>(place_[worker])];
    kernels::swap_contents<T>(exec, live_weights(), parked.weights);
    kernels::swap_contents<Master>(exec, optimizer_.all_state(), parked.state);
    kernels::swap_contents<double>(exec, optimizer_.status(), parked.status);
    std::swap(place_[worker], *std::ranges::find(place_, -1));
    parameters_.changed();
  }
  if (stale_[worker]) refresh(exec);
  stale_[worker] = false;
}

template <class P>
template <class D>
void LocalTraining<P>::send(OuterExchange<D>& exchange, const Exec& exec, int fragment,
                            std::int64_t first, std::int64_t n) {
  exchange.begin(n);
  for (std::int64_t w = 0; w < workers_here(); ++w)
    for_pieces(fragment, first, n,
               [&](const Block& block, std::int64_t from, std::int64_t to, std::int64_t count) {
                 kernels::outer_difference<Master, D>(
                     exec, part(exchange.difference(w), to, count),
                     part(outer_, block.first + from, count),
                     of_worker(w, part(block.updated.data, from, count)));
               });
  exchange.send(exec);
}

template <class P>
template <class D>
void LocalTraining<P>::update(OuterExchange<D>& exchange, const Exec& exec, int fragment,
                              std::int64_t first) {
  exchange.finish(exec);
  const deck::LocalConfig& local = config_.local;
  const kernels::OuterRule rule{local.outer_learning_rate, local.outer_momentum,
                                local.outer_optimizer == OuterOptimizer::nesterov};
  const View1<D> mean = exchange.mean();
  for_pieces(
      fragment, first, extent(mean, 0),
      [&](const Block& block, std::int64_t from, std::int64_t to, std::int64_t count) {
        const View1<Master> outer = part(outer_, block.first + from, count);
        kernels::outer_update<Master, D>(
            exec, outer,
            momentum_.data() == nullptr ? momentum_ : part(momentum_, block.first + from, count),
            part(mean, to, count), rule);
        for (std::int64_t w = 0; w < workers_here(); ++w)
          kernels::mix_with_outer<Master>(exec, of_worker(w, part(block.updated.data, from, count)),
                                          outer, local.mixing);
      });
  exchange.forget();
  stale_.assign(stale_.size(), true);
}

template <class P>
void LocalTraining<P>::after_step(const Exec& exec, std::int64_t step) {
  const auto updated = schedule_.updated(step);
  const auto sent = schedule_.sent(step);
  if (!updated && !sent && !schedule_.summed(step)) return;
  if (gather_ != nullptr) gather_->finish();
  std::visit(
      [&](auto& exchange) {
        if (config_.local.delay > 0) {
          if (schedule_.summed(step)) exchange->sum(exec);
          if (updated && exchange->in_flight()) update(*exchange, exec, *updated, 0);
          if (sent) send(*exchange, exec, *sent, 0, sizes_[static_cast<std::size_t>(*sent)]);
          return;
        }
        if (!sent) return;
        const std::int64_t size = sizes_[static_cast<std::size_t>(*sent)];
        for (std::int64_t first = 0; first < size; first += exchange->elements()) {
          send(*exchange, exec, *sent, first, std::min(exchange->elements(), size - first));
          update(*exchange, exec, *sent, first);
        }
        // Ranks without an element of the fragment, too, because refresh() is collective.
        stale_.assign(stale_.size(), true);
      },
      exchange_);
  const auto selected = static_cast<std::size_t>(std::ranges::find(place_, -1) - place_.begin());
  if (stale_[selected]) refresh(exec);
  stale_[selected] = false;
}

template <class P>
void LocalTraining<P>::exchange_with_outer(const Exec& exec) {
  if (gather_ != nullptr) gather_->finish();
  for (const Block& block : blocks_)
    kernels::swap_contents<Master>(exec, block.updated.data,
                                   part(outer_, block.first, block.updated.elements()));
  refresh(exec);
}

template <class P>
NamedTensor<typename P::Master> LocalTraining<P>::outer_weights(const Block& block) const {
  NamedTensor<Master> tensor = block.updated;
  tensor.data = part(outer_, block.first, block.updated.elements());
  return tensor;
}

template <class P>
NamedTensor<typename P::Master> LocalTraining<P>::outer_momentum(const Block& block) const {
  NamedTensor<Master> tensor = block.updated;
  tensor.name = "optimizer.outer_momentum." + tensor.name;
  tensor.data = momentum_.data() == nullptr
                    ? momentum_
                    : part(momentum_, block.first, block.updated.elements());
  return tensor;
}

template <class P>
Bytes LocalTraining<P>::device_bytes() const {
  const Bytes messages =
      std::visit([](const auto& exchange) { return exchange->bytes(); }, exchange_);
  return messages + parked_memory_.capacity() +
         (optimizer_.state_memory() == ArenaMemory::host ? 0 : state_.capacity());
}

template <class P>
Bytes LocalTraining<P>::host_bytes() const {
  return optimizer_.state_memory() == ArenaMemory::host ? state_.capacity() : 0;
}

template class LocalTraining<model::Fp32>;
template class LocalTraining<model::Fp64>;
template class LocalTraining<model::MixedBf16>;
template class LocalTraining<model::MixedFp16>;

}  // namespace trireme::optim
