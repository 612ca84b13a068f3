#pragma once

#include <trireme/base/types.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/copy_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::model {

/// Saved activations in host memory. The device has a few windows, each as large as one layer's
/// kept memory, which the layers of a pass use in turn. A layer's activations are copied to the
/// host while the forward pass computes the next layer, and back while the backward pass computes
/// the following layer. Copies are queued; the host never waits (Rhu et al. 2016, vDNN, arXiv
/// 1602.08124, section 3).
class OffloadedLayers {
 public:
  /// Bytes of saved activations at the beginning of a window, and of the following part that
  /// backward_input stores for backward_weight if the two are separate.
  struct Sizes {
    Bytes saved = 0;
    Bytes work = 0;
    Bytes whole() const { return saved + work; }
  };
  /// A layer, counted from its stage's first layer, for the micro-batch in a slot.
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

  /// After this call, kernels may overwrite the layer's window.
  void begin_write(const Exec& exec, const Key& key);
  /// Starts the copy of a written part to the host.
  void keep(const Exec& exec, const Key& key, Part part);
  /// Starts the copy of a layer back to its window, unless the window still holds it: its saved
  /// activations, and with Part::work also the following part.
  void fetch(const Key& key, Part upto);
  /// After this call, kernels may read and write the window.
  void begin_read(const Exec& exec, const Key& key, Part upto);
  /// Call after the last kernel that uses the window.
  void end_read(const Exec& exec, const Key& key);

  Bytes host_bytes() const { return memory_.capacity(); }

 private:
  struct Window {
    std::byte* data = nullptr;
    Key holds;
    Event computed;  ///< last use by kernels
    Event loaded;    ///< last copy into it
    Event stored;    ///< last copy out of it, which follows all earlier copies
  };

  Window& window(const Key& key) { return windows_[static_cast<std::size_t>(key.window)]; }
  std::byte* record(const Key& key) const {
    return records_[static_cast<std::size_t>(key.slot * layers_ + key.layer)];
  }

  Sizes sizes_;
  std::int64_t layers_;
  Arena memory_;
  std::vector<Window> windows_;
  std::vector<std::byte*> records_;  ///< one per layer and slot, in host memory
  CopyQueue out_;
  CopyQueue in_;
};

/// The offloaded layers of one slot of a stage, in the order of its passes. By default no layer is
/// offloaded, and every call does nothing.
class SlotOffload {
 public:
  using Part = OffloadedLayers::Part;

  SlotOffload() = default;
  /// A stage of `layers` layers, with windows window(slot, layer). `all` must outlive this object.
  SlotOffload(OffloadedLayers& all, int stage, int slot, std::int64_t layers, std::int64_t windows)
      : all_(&all), stage_(stage), slot_(slot), layers_(layers), windows_(windows) {}

  /// Window of a layer; consecutive layers use different windows.
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
  /// Calls begin_read, and fetches the next layer of the backward pass.
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
