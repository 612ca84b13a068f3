// What `trireme check` prints of workers and servers is what a run allocates and sends.
#include <trireme/architecture/saved.hpp>
#include <trireme/plan/servers.hpp>

#include "support/training.hpp"

#include <gtest/gtest.h>

#include <map>

namespace trireme::train {
namespace {

using namespace trireme::testing;

class ServedPlan : public ::testing::Test {
 protected:
  struct Case {
    int tensor, pipeline, servers;
    std::vector<std::string> more;
  };

  void expect_as_planned(const Case& c) {
    const int model = c.tensor * c.pipeline;
    if (runtime().ranks() % model != 0 || runtime().ranks() <= model * c.servers) return;
    const std::string folder =
        runtime().world().broadcast(folder_.file("run"), 0, "rank 0's folder");
    std::vector<std::string> keys{"model.layers=5",
                                  "model.heads=6",
                                  "parallel.bucket_bytes=20000",
                                  "parallel.strategy=server",
                                  text("parallel.tensor=", c.tensor),
                                  text("parallel.pipeline=", c.pipeline),
                                  text("parallel.servers=", c.servers),
                                  "run.directory=" + folder};
    keys.insert(keys.end(), c.more.begin(), c.more.end());
    SCOPED_TRACE(join(keys, ", "));
    const deck::Config config = small_config(12, 1, runtime().ranks(), keys);
    Rig rig(config, tokens_, runtime().world(), {}, machine_);
    architecture_ = architecture::describe(config.model);
    shard_ = architecture::make_shard(architecture_, config.parallel, rig.grid().coordinates());
    needs_ = plan::training_needs(plan::step_programs(config, machine_))
                 .at(static_cast<std::size_t>(rig.grid().coordinates()[Axis::pipeline]));
    server_ = rig.grid().coordinates()[Axis::data] - static_cast<int>(config.parallel.data);
    expect_bytes(config, rig);
    expect_copy(config, rig);
    expect_messages(config, rig);
  }

  void expect_bytes(const deck::Config& config, Rig& rig) {
    const auto planned =
        server_ < 0 ? plan::training_memory(config, architecture_, shard_, needs_, machine_)
                    : plan::server_memory(config, architecture_, shard_, machine_);
    const auto allocated = rig.engine->memory();
    ASSERT_EQ(planned.size(), allocated.size());
    for (std::size_t i = 0; i < planned.size(); ++i) {
      EXPECT_EQ(planned[i].what, allocated[i].what);
      EXPECT_EQ(planned[i].bytes, allocated[i].bytes) << planned[i].what;
    }
  }

  /// The copy of the server that writes most; workers write nothing.
  void expect_copy(const deck::Config& config, Rig& rig) {
    Bytes bytes = 0;
    for (const auto& slice : rig.engine->share()) bytes += architecture::saved_bytes(slice.bytes());
    const auto most =
        rig.grid()
            .part_of_data_axis(static_cast<int>(config.parallel.data))
            .all_reduce<std::int64_t>(bytes, grid::Reduction::maximum, "bytes of a share");
    EXPECT_EQ(most, server_ < 0
                        ? plan::share_bytes(config, architecture_, shard_, machine_)
                        : plan::server_share_bytes(config, architecture_, shard_, machine_));
  }

  void expect_messages(const deck::Config& config, Rig& rig) {
    grid::Grid& grid = rig.grid();
    const std::map<std::string, grid::Communicator*> axes{
        {"tensor", &grid.communicator(Axis::tensor)},
        {"pipeline", &grid.communicator(Axis::pipeline)},
        {"tied", &grid.embedding()},
        {"model", &grid.model()},
        {server_ < 0 ? "servers" : "workers", &grid.data_messages("servers")},
        {server_ < 0 ? "workers" : "servers",
         &grid.part_of_data_axis(static_cast<int>(config.parallel.data))}};
    rig.engine->train_step(1, rig.samples);
    for (const auto& [name, communicator] : axes) communicator->reset_traffic();
    rig.engine->train_step(2, rig.samples);
    const auto rows =
        server_ < 0
            ? plan::step_traffic(config, architecture_, shard_, needs_.split_backward, machine_)
            : plan::server_messages(config, architecture_, shard_, server_, machine_);
    std::map<std::string, grid::Traffic> planned;
    for (const auto& row : rows) {
      planned[row.axis].operations += row.operations;
      planned[row.axis].bytes += row.bytes;
    }
    for (const auto& [name, communicator] : axes) {
      EXPECT_EQ(communicator->traffic().operations, planned[name].operations) << name;
      EXPECT_EQ(communicator->traffic().bytes, planned[name].bytes) << name;
    }
  }

  const plan::Machine machine_ = with_own_memory();
  TemporaryFolder folder_;
  data::TokenFile tokens_{write_tokens(folder_, 20000)};
  architecture::Architecture architecture_;
  architecture::Shard shard_;
  schedule::Needs needs_;
  int server_ = -1;  ///< number of this rank's server; negative: a worker
};

TEST_F(ServedPlan, PlannedBytesAndMessagesMatchARun) {
  for (const Case& c :
       {Case{1, 1, 1, {}},
        {1, 1, 2, {"optimizer.kind=lamb", "precision.compute=bf16"}},
        {1, 1, 2, {"parallel.updates=push", "parallel.staleness=2"}},
        {1, 1, 1, {"optimizer.frozen=embedding", "precision.compute=fp32"}},
        {1, 1, 2, {"adapter.kind=lora", "model.tied_embeddings=false"}},
        {2, 1, 1, {"parallel.sequence_parallel=true"}},
        {2, 1, 1, {"model.family=llama", "model.key_value_heads=1", "precision.compute=bf16"}},
        {1, 2, 1, {"parallel.schedule=interleaved", "parallel.chunks=2"}}})
    expect_as_planned(c);
}

}  // namespace
}  // namespace trireme::train
