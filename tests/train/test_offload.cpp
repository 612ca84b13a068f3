#include <trireme/plan/choices.hpp>

#include "support/training.hpp"
#include "support/whole_arrays.hpp"

#include <gtest/gtest.h>

/// Saved activations and the optimizer's state in host memory, the way a device takes, on the host
/// too: copies run there as late as what waits for them allows, so that a wait that is missing
/// gives other numbers.
namespace trireme::train {
namespace {

using namespace trireme::testing;

constexpr std::int64_t offload_steps = 3;

class OffloadTest : public ::testing::Test {
 protected:
  using Arrays = std::map<std::string, std::vector<double>>;

  static deck::Config config(std::vector<std::string> overrides, Offload offload) {
    for (const char* size : {"model.layers=9", "model.heads=6", "model.sequence=13"})
      overrides.emplace_back(size);
    deck::Config c = small_config(12, 1, runtime().ranks(), overrides);
    c.parallel.offload = offload;
    return c;
  }

  Rig rig_of(const deck::Config& c, const plan::Machine& machine) {
    return Rig(c, tokens_, runtime().world(), {}, machine);
  }

  /// With an evaluation between the steps, which takes the same memory.
  std::pair<Trace, Arrays> outcome(const deck::Config& c) {
    Rig rig = rig_of(c, with_own_memory());
    Trace trace = rig.run(1, 2);
    const data::Windows windows(tokens_, c.model.text_tokens());
    const std::vector<std::int32_t> bytes(257, 1);
    trace.losses.push_back(rig.engine->evaluate(windows, 7, bytes).tokens().nats);
    const Trace last = rig.run(3, offload_steps);
    trace.losses.push_back(last.losses[0]);
    return {trace, whole_arrays(*rig.engine, runtime().world())};
  }

  TemporaryFolder folder_;
  data::TokenFile tokens_{write_tokens(folder_, 20000)};
};

TEST_F(OffloadTest, GivesTheSameBitsOnEveryScheduleAndRecomputation) {
  const int ranks = runtime().ranks();
  for (const auto& layout : std::vector<std::vector<std::string>>{
           {},
           {"parallel.recompute=selective", "model.family=llama", "model.key_value_heads=2"},
           {"parallel.recompute=full"},
           {"model.family=bert", "model.vocabulary=261"},
           {"precision.compute=bf16", "parallel.shard=optimizer"},
           {text("parallel.pipeline=", ranks)},
           {text("parallel.pipeline=", ranks), "parallel.schedule=gpipe"},
           {text("parallel.pipeline=", ranks), "parallel.schedule=zb-h1"},
           {text("parallel.pipeline=", ranks), "parallel.schedule=zb-h1",
            "parallel.recompute=full"},
           {text("parallel.pipeline=", ranks), "parallel.schedule=interleaved",
            "parallel.chunks=2"},
           {text("parallel.tensor=", ranks), "parallel.sequence_parallel=true"}}) {
    SCOPED_TRACE(join(layout, " "));
    const auto expected = outcome(config(layout, Offload::none));
    const auto found = outcome(config(layout, Offload::both));
    if (runtime().rank() > 0) continue;
    EXPECT_EQ(found.first, expected.first);
    EXPECT_EQ(found.second, expected.second);
  }
}

TEST_F(OffloadTest, KeepsThreeLayersOnTheDevice) {
  const auto row = [](const std::vector<plan::MemoryRow>& rows, const std::string& what) {
    for (const plan::MemoryRow& r : rows)
      if (r.what == what) return r;
    return plan::MemoryRow{};
  };
  const auto memory = [&](const char* schedule, Offload offload) {
    return rig_of(config({text("parallel.pipeline=", runtime().ranks()),
                          text("parallel.schedule=", schedule)},
                         offload),
                  with_own_memory())
        .engine->memory();
  };
  for (const char* schedule : {"1f1b", "gpipe", "zb-h1"}) {
    SCOPED_TRACE(schedule);
    const auto all = memory(schedule, Offload::none);
    const auto rest = memory(schedule, Offload::activations);
    const plan::MemoryRow away = row(rest, "saved activations (host)");
    EXPECT_TRUE(away.on_host);
    const Bytes before = row(all, "saved activations").bytes;
    const Bytes behind = row(rest, "saved activations").bytes;
    // Three of the layers of all slots have a place on the device.
    const Bytes windows = behind - (before - away.bytes);
    EXPECT_LE(behind, before);
    EXPECT_GT(windows, 0);
    if (schedule == std::string("gpipe")) {  // which keeps all micro-batches at a time
      EXPECT_LT(behind, before);
      EXPECT_EQ(away.bytes % (windows / offload_windows), 0);
    }

    const auto state = memory(schedule, Offload::optimizer);
    EXPECT_EQ(row(state, "optimizer state (host)").bytes, row(all, "optimizer state").bytes);
    EXPECT_EQ(row(state, "optimizer state").bytes, 0);
    EXPECT_EQ(row(state, "saved activations").bytes, before);
  }
}

TEST_F(OffloadTest, HasNoEffectOnAHost) {
  const plan::Machine host = installation::this_machine();
  if (host.own_memory) GTEST_SKIP() << "the kernels run on a device";
  const deck::Config c = config({}, Offload::both);
  const auto with = rig_of(c, host).engine->memory();
  const auto without = rig_of(config({}, Offload::none), host).engine->memory();
  ASSERT_EQ(with.size(), without.size());
  for (std::size_t i = 0; i < with.size(); ++i) EXPECT_EQ(with[i].bytes, without[i].bytes);
  const auto notes = plan::notes(c, host);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].topic, "offload");
  EXPECT_NE(notes[0].words.find("no effect"), std::string::npos);
}

}  // namespace
}  // namespace trireme::train
