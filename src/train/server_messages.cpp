#include <trireme/train/server_messages.hpp>

#include <trireme/base/check.hpp>

namespace trireme::train {

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
