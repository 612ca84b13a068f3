#pragma once

#include <trireme/base/types.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/copy_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::model {

/// Saved activations in host memory. The device has a few windows, each for the memory of one
/// layer; the layers of a pass use the windows in turn. The activations of layer l are copied to
/// the host while the forward pass computes layer l + 1, and back to the device while the backward
/// pass computes layer l + 1 (Rhu et al. 2016, vDNN, arXiv 1602.08124, section 3). The host never
/// waits.
class OffloadedLayers {
 public:
  /// Bytes of the two parts of a window: the saved activations, followed by the values that
  /// backward_input stores for a separate backward_weight.
  struct Sizes {
    Bytes saved = 0;
    Bytes work = 0;
    Bytes whole() const { return saved + work; }
  };
  /// A layer for the micro-batch in a slot, and the layer's window. `layer` counts from the first
  /// layer of the stage.
  struct Key {
    int stage = -1;
    int slot = -1;
    std::int64_t layer = -1;
    std::int64_t window = 0;
    bool operator==(const Key&) const = default;
  };
  enum class Part : std::uint8_t { saved, work };

  /// Allocates host memory for `slots` · `layers` windows.
  OffloadedLayers(std::vector<std::byte*> windows, Sizes sizes, int slots, std::int64_t layers);

  /// Kernels submitted to `exec` after this call may overwrite the layer's window.
  void begin_write(const Exec& exec, const Key& key);
  /// Queues the copy of a part to the host. The copy begins after the kernels submitted to `exec`
  /// so far.
  void keep(const Exec& exec, const Key& key, Part part);
  /// Queues the copy of a layer from the host to its window, unless the window holds this layer.
  /// The copy has the saved activations, and with Part::work also the values from backward_input.
  void fetch(const Key& key, Part upto);
  /// Calls fetch(). Kernels submitted to `exec` after this call may read and write the window.
  void begin_read(const Exec& exec, const Key& key, Part upto);
  /// Call this after submitting the last kernel that uses the window.
  void end_read(const Exec& exec, const Key& key);

  Bytes host_bytes() const { return memory_.capacity(); }

 private:
  struct Window {
    std::byte* data = nullptr;
    Key holds;
    Event computed;  ///< end of the last kernel that uses the window
    Event loaded;    ///< end of the last copy into the window
    Event stored;    ///< end of the last copy out of the window; earlier copies end before it
  };

  Window& window(const Key& key) { return windows_[static_cast<std::size_t>(key.window)]; }
  std::byte* record(const Key& key) const {
    return records_[static_cast<std::size_t>(key.slot * layers_ + key.layer)];
  }

  Sizes sizes_;
  std::int64_t layers_;
  Arena memory_;
  std::vector<Window> windows_;
  std::vector<std::byte*> records_;  ///< one record per layer and slot, in host memory
  CopyQueue out_;
  CopyQueue in_;
};

/// The offloaded layers of one slot of a stage. Calls do nothing for a layer that the stage does
/// not have. A default-constructed object has no layers.
class SlotOffload {
 public:
  using Part = OffloadedLayers::Part;

  SlotOffload() = default;
  /// `layers`: number of layers of the stage. `all` must outlive this object.
  SlotOffload(OffloadedLayers& all, int stage, int slot, std::int64_t layers, std::int64_t windows)
      : all_(&all), stage_(stage), slot_(slot), layers_(layers), windows_(windows) {}

  /// Number of a layer's window. Consecutive layers use different windows.
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
  /// Calls OffloadedLayers::begin_read(), and fetches the next layer of the backward pass.
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
