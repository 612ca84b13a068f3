#pragma once

#include <trireme/base/types.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/copy_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::model {

/// Saved activations in host memory. The device has a few windows, each as large as what one layer
/// keeps, and the layers of a pass take turns in them: what a forward pass has saved is copied to
/// the host while the next layer is computed, and comes back while the backward pass computes the
/// layer behind it. Copies are queued and nothing waits on the host (Rhu et al. 2016, vDNN, arXiv
/// 1602.08124, section 3).
class OffloadedLayers {
 public:
  /// Bytes that a window begins with, and those behind them that backward_input leaves for
  /// backward_weight where these come apart.
  struct Sizes {
    Bytes saved = 0;
    Bytes work = 0;
    Bytes whole() const { return saved + work; }
  };
  /// A layer of a stage, counted from the stage's first, for the micro-batch in a slot.
  struct Key {
    int stage = -1;
    int slot = -1;
    std::int64_t layer = -1;
    std::int64_t window = 0;
    bool operator==(const Key&) const = default;
  };
  enum class Part : std::uint8_t { saved, work };

  /// Host memory for `slots` · `layers` of them.
  OffloadedLayers(std::vector<std::byte*> windows, Sizes sizes, int slots, std::int64_t layers);

  /// Kernels behind this may write to the layer's window, whatever it held.
  void begin_write(const Exec& exec, const Key& key);
  /// Starts to copy a part of what they have written.
  void keep(const Exec& exec, const Key& key, Part part);
  /// Starts to bring a layer back, unless its window still has it: its saved activations, with
  /// Part::work what lies behind them too.
  void fetch(const Key& key, Part upto);
  /// Kernels behind this may read it, and write to it.
  void begin_read(const Exec& exec, const Key& key, Part upto);
  /// Behind the last of these.
  void end_read(const Exec& exec, const Key& key);

  Bytes host_bytes() const { return memory_.capacity(); }

 private:
  struct Window {
    std::byte* data = nullptr;
    Key holds;
    Event computed;  ///< kernels have used it
    Event loaded;    ///< a copy into it
    Event stored;    ///< the last copy out of it, and with it all before
  };

  Window& window(const Key& key) { return windows_[static_cast<std::size_t>(key.window)]; }
  std::byte* record(const Key& key) const {
    return records_[static_cast<std::size_t>(key.slot * layers_ + key.layer)];
  }

  Sizes sizes_;
  std::int64_t layers_;
  Arena memory_;
  std::vector<Window> windows_;
  std::vector<std::byte*> records_;  ///< of a layer and a slot each, in host memory
  CopyQueue out_;
  CopyQueue in_;
};

/// The layers of one slot of a stage as its passes go through them; by default none is offloaded,
/// and every call does nothing.
class SlotOffload {
 public:
  using Part = OffloadedLayers::Part;

  SlotOffload() = default;
  /// Of a stage of `layers` layers, whose window is window(slot, layer). `all` must outlive this.
  SlotOffload(OffloadedLayers& all, int stage, int slot, std::int64_t layers, std::int64_t windows)
      : all_(&all), stage_(stage), slot_(slot), layers_(layers), windows_(windows) {}

  /// Layers that follow one another are in different windows.
  static std::int64_t window(int slot, std::int64_t layer, std::int64_t layers,
                             std::int64_t windows) {
    return (slot * layers + layer) % windows;
  }

  void begin_write(const Exec& exec, std::int64_t layer) const {
    if (has(layer)) all_->begin_write(exec, key(layer));
  }
  void keep(const Exec& exec, std::int64_t layer, Part part = Part::saved) const {
    if (has(layer)) all_->keep(exec, key(layer), part);
  }
  void fetch(std::int64_t layer, Part upto = Part::saved) const {
    if (has(layer)) all_->fetch(key(layer), upto);
  }
  /// begin_read, and fetch of the layer that comes next in a backward pass.
  void begin_read(const Exec& exec, std::int64_t layer, Part upto = Part::saved) const {
    if (!has(layer)) return;
    all_->begin_read(exec, key(layer), upto);
    fetch(layer - 1, upto);
  }
  void end_read(const Exec& exec, std::int64_t layer) const {
    if (has(layer)) all_->end_read(exec, key(layer));
  }

 private:
  bool has(std::int64_t layer) const { return all_ != nullptr && layer >= 0 && layer < layers_; }
  OffloadedLayers::Key key(std::int64_t layer) const {
    return {stage_, slot_, layer, window(slot_, layer, layers_, windows_)};
  }

  OffloadedLayers* all_ = nullptr;
  int stage_ = 0;
  int slot_ = 0;
  std::int64_t layers_ = 0;
  std::int64_t windows_ = 1;
};

}  // namespace trireme::model
