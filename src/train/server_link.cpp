// Messages of a worker: a message per bucket and server, and announcements to the leader.
#include <trireme/train/server_link.hpp>

#include <trireme/architecture/server_ranges.hpp>
#include <trireme/base/check.hpp>
#include <trireme/tensor/region.hpp>

#include <span>

namespace trireme::train {
namespace {

template <class P>
std::vector<architecture::Bucket> buckets_of(const deck::ParallelConfig& parallel,
                                             const model::Parameters<P>& parameters) {
  return architecture::gradient_buckets(architecture::server_cut(
      parallel, parameters.architecture(), parameters.shard(), parameters.rank_arrays(),
      parameters.placement(), sizeof(typename P::Gradient)));
}

}  // namespace

template <class P>
ServerLink<P>::ServerLink(const deck::ParallelConfig& parallel, grid::Grid& grid,
                          model::Parameters<P>& parameters, const optim::Optimizer<P>& optimizer)
    : messages_(parallel, grid, buckets_of(parallel, parameters), parameters.placement().trained),
      parameters_(parameters),
      optimizer_(optimizer) {}

template <class P>
void ServerLink<P>::announce(const ServerMessages::Announcement& announcement) {
  if (!messages_.is_first()) return;
  const int leader = messages_.first_rank_of(messages_.server_place(0));
  grid::Request request = messages_.events.start_send(std::as_bytes(std::span(&announcement, 1)),
                                                      leader, ServerMessages::announcements);
  messages_.events.wait(request, "message to the servers");
}

template <class P>
void ServerLink<P>::fetch(const Exec& exec, std::int64_t step) {
  const Region region("fetch_weights");
  announce({0, step, 0});
  receive(exec);
}

template <class P>
void ServerLink<P>::fetch_current(const Exec& exec) {
  const Region region("fetch_weights");
  receive(exec);
}

template <class P>
void ServerLink<P>::fetch_status(const Exec& exec) {
  messages_.data.template broadcast<double>(exec, optimizer_.status(), messages_.server_place(0),
                                            "status of the servers");
}

template <class P>
void ServerLink<P>::broadcast(double& value, const char* what) {
  messages_.data.broadcast(std::as_writable_bytes(std::span(&value, 1)), 0, what);
}

template <class P>
void ServerLink<P>::receive(const Exec& exec) {
  const auto& places = parameters_.weight_places();
  const auto& buckets = messages_.buckets();
  arriving_.clear();
  arriving_.push_back(messages_.data.start_receive<double>(
      exec, optimizer_.status(), messages_.server_place(0), ServerMessages::status_channel));
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    if (!messages_.has_weights(i)) continue;
    for (int server = 0; server < messages_.servers(); ++server) {
      const std::int64_t begin = buckets[i].bounds[static_cast<std::size_t>(server)];
      const std::int64_t end = buckets[i].bounds[static_cast<std::size_t>(server) + 1];
      if (begin == end) continue;
      const View1<T> part(parameters_.all_weights().data() + places.place(begin),
                          static_cast<std::size_t>(end - begin));
      arriving_.push_back(messages_.data.start_receive<T>(
          exec, part, messages_.server_place(server), messages_.weight_channel(i)));
    }
  }
  for (grid::Request& request : arriving_) messages_.data.wait(request, "weights of the servers");
  parameters_.changed();
}

template <class P>
void ServerLink<P>::push(const Exec& exec, std::size_t i) {
  const auto& places = parameters_.gradient_places();
  const architecture::Bucket& bucket = messages_.buckets()[i];
  for (int server = 0; server < messages_.servers(); ++server) {
    const std::int64_t begin = bucket.bounds[static_cast<std::size_t>(server)];
    const std::int64_t end = bucket.bounds[static_cast<std::size_t>(server) + 1];
    if (begin == end) continue;
    const View1<const G> part(parameters_.all_gradients().data() + places.place(begin),
                              static_cast<std::size_t>(end - begin));
    sent_.push_back(messages_.data.start_send<G>(exec, part, messages_.server_place(server),
                                                 messages_.gradient_channel(i)));
  }
}

template <class P>
void ServerLink<P>::end_step(std::int64_t step, bool last) {
  announce({1, step, last ? 1 : 0});
  if (last) finish();
}

template <class P>
void ServerLink<P>::finish() {
  for (grid::Request& request : sent_) messages_.data.wait(request, "gradients to the servers");
  sent_.clear();
}

template class ServerLink<model::Fp32>;
template class ServerLink<model::Fp64>;
template class ServerLink<model::MixedBf16>;
template class ServerLink<model::MixedFp16>;

ServerMessages::ServerMessages(const deck::ParallelConfig& parallel, grid::Grid& grid,
                               std::vector<architecture::Bucket> buckets, std::int64_t weights)
    : data(grid.data_messages("servers")),
      events(grid.world_messages("events")),
      workers_(static_cast<int>(parallel.data)),
      servers_(static_cast<int>(parallel.servers)),
      first_(grid.model().rank() == 0),
      buckets_(std::move(buckets)),
      weights_(weights) {
  check(gradient_channel(buckets_.size()) < data.channels(),
        "[parallel] bucket_bytes = ", parallel.bucket_bytes, " cuts the weights of a rank into ",
        buckets_.size(),
        " buckets, more than messages to servers can number; choose a larger bucket_bytes");
  const layout::ProcessGrid& places = grid.process_grid();
  layout::Coordinates at;
  for (at[Axis::data] = 0; at[Axis::data] < workers_ + servers_; ++at[Axis::data])
    first_ranks_.push_back(places.rank(at));
  for (Rank rank = 0; rank < places.ranks(); ++rank)
    if (places.position(Axis::data, rank) >= workers_ && rank != first_rank_of(workers_))
      server_ranks_.push_back(rank);
}

}  // namespace trireme::train
