#include <trireme/model/offloaded_layers.hpp>
#include <trireme/tensor/streams.hpp>

#include <gtest/gtest.h>

#include <vector>

#include "support/recorded_device/schedules.hpp"

// Saved activations that leave for the host and return, as they are compiled for CUDA.

namespace trireme::model {
namespace {

using testing::count_up;
using testing::counted;
using testing::in_all_schedules;
using testing::observe;
using Part = OffloadedLayers::Part;

constexpr std::int64_t part_floats = 16;  // floats of a part
constexpr OffloadedLayers::Sizes sizes{4 * part_floats, 4 * part_floats};

struct Device {
  explicit Device(int windows, int slots, std::int64_t layers)
      : memory("windows", windows * sizes.whole()),
        offload(addresses(windows), sizes, slots, layers) {}

  std::vector<std::byte*> addresses(int windows) {
    std::vector<std::byte*> all;
    for (int i = 0; i < windows; ++i) all.push_back(memory.take<std::byte>(sizes.whole()).data());
    return all;
  }
  float* window(std::int64_t i, Part part) const {
    return reinterpret_cast<float*>(memory.data() + i * sizes.whole() +
                                    (part == Part::work ? sizes.saved : 0));
  }

  streams::OwnStream compute{false};
  Arena memory;
  OffloadedLayers offload;
};

double value(int slot, std::int64_t layer, Part part) {
  return 1000.0 * (slot + 1) + 100.0 * static_cast<double>(layer) +
         (part == Part::work ? 50.0 : 0.0);
}

void forward(Device& d, const SlotOffload& slot, int s, std::int64_t layers, int windows) {
  for (std::int64_t l = 0; l < layers; ++l) {
    const std::int64_t w = SlotOffload::window(s, l, layers, windows);
    slot.begin_write(d.compute.exec(), l);
    count_up(d.compute.exec(), d.window(w, Part::saved), part_floats, value(s, l, Part::saved));
    slot.keep(d.compute.exec(), l);
  }
}

/// The pass that reads `upto` of every layer, from the last one on; it writes after the first part
/// if it is the pass that leaves the second one.
void backward(Device& d, const SlotOffload& slot, int s, std::int64_t layers, int windows,
              Part upto, bool leaves_work) {
  std::vector<std::vector<double>> saved(static_cast<std::size_t>(layers)), work(saved);
  slot.fetch(layers - 1, upto);
  for (std::int64_t l = layers - 1; l >= 0; --l) {
    const auto i = static_cast<std::size_t>(l);
    const std::int64_t w = SlotOffload::window(s, l, layers, windows);
    slot.begin_read(d.compute.exec(), l, upto);
    observe(d.compute.exec(), d.window(w, Part::saved), part_floats, saved[i]);
    if (upto == Part::work)
      observe(d.compute.exec(), d.window(w, Part::work), part_floats, work[i]);
    if (leaves_work) {
      count_up(d.compute.exec(), d.window(w, Part::work), part_floats, value(s, l, Part::work));
      slot.keep(d.compute.exec(), l, Part::work);
    }
    slot.end_read(d.compute.exec(), l);
  }
  d.compute.exec().fence();
  for (std::int64_t l = 0; l < layers; ++l) {
    const auto i = static_cast<std::size_t>(l);
    EXPECT_EQ(saved[i], counted(part_floats, value(s, l, Part::saved))) << "layer " << l;
    if (upto == Part::work) {
      EXPECT_EQ(work[i], counted(part_floats, value(s, l, Part::work))) << "layer " << l;
    }
  }
}

void run(int windows, bool separate_weights) {
  constexpr std::int64_t layers = 4;
  constexpr int slots = 2;
  Device d(windows, slots, layers);
  std::vector<SlotOffload> all;
  for (int s = 0; s < slots; ++s) all.emplace_back(d.offload, 0, s, layers, windows);
  for (int step = 0; step < 2; ++step) {
    for (int s = 0; s < slots; ++s)
      forward(d, all[static_cast<std::size_t>(s)], s, layers, windows);
    for (int s = 0; s < slots; ++s)
      backward(d, all[static_cast<std::size_t>(s)], s, layers, windows, Part::saved,
               separate_weights);
    for (int s = 0; separate_weights && s < slots; ++s)
      backward(d, all[static_cast<std::size_t>(s)], s, layers, windows, Part::work, false);
  }
  d.compute.exec().fence();
  while (testing::recorded_device().move_on()) {
  }
}

TEST(OffloadedLayers, AreSavedBeforeOverwritingAndFetchedBeforeUse) {
  for (const int windows : {2, 3, 5}) in_all_schedules([windows] { run(windows, false); });
}

TEST(OffloadedLayers, IncludeTheInputsOfWeightGradients) {
  for (const int windows : {2, 3}) in_all_schedules([windows] { run(windows, true); });
}

/// As schedules interleave micro-batches: the backward pass of the first one has begun its copies
/// when the forward pass of the second one takes the windows.
TEST(OffloadedLayers, AreFetchedAgainIfTheirWindowWasReused) {
  constexpr std::int64_t layers = 4;
  for (const int windows : {2, 3})
    in_all_schedules([windows] {
      Device d(windows, 2, layers);
      const SlotOffload first(d.offload, 0, 0, layers, windows);
      const SlotOffload second(d.offload, 0, 1, layers, windows);
      for (int step = 0; step < 2; ++step) {
        forward(d, first, 0, layers, windows);
        first.fetch(1);
        forward(d, second, 1, layers, windows);
        first.fetch(layers - 1);
        forward(d, second, 1, layers, windows);
        backward(d, first, 0, layers, windows, Part::saved, false);
        backward(d, second, 1, layers, windows, Part::saved, false);
      }
      while (testing::recorded_device().move_on()) {
      }
    });
}

TEST(OffloadedLayers, AreNotFetchedWhileTheirWindowHoldsThem) {
  constexpr std::int64_t layers = 5;
  for (const int windows : {2, 3})
    in_all_schedules([=] {
      Device d(windows, 1, layers);
      const SlotOffload slot(d.offload, 0, 0, layers, windows);
      forward(d, slot, 0, layers, windows);
      EXPECT_EQ(testing::recorded_device().calls("cudaMemcpyAsync"), layers);
      backward(d, slot, 0, layers, windows, Part::saved, false);
      EXPECT_EQ(testing::recorded_device().calls("cudaMemcpyAsync"), 2 * layers - windows);
      while (testing::recorded_device().move_on()) {
      }
    });
}

}  // namespace
}  // namespace trireme::model
