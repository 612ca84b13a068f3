#include <trireme/model/offloaded_layers.hpp>

namespace trireme::model {

OffloadedLayers::OffloadedLayers(std::vector<std::byte*> windows, Sizes sizes, int slots,
                                 std::int64_t layers)
    : sizes_(sizes),
      layers_(layers),
      memory_("saved activations (host)", slots * layers * aligned(sizes.whole()),
              ArenaMemory::host) {
  windows_.resize(windows.size());
  for (std::size_t i = 0; i < windows.size(); ++i) windows_[i].data = windows[i];
  records_.resize(static_cast<std::size_t>(slots * layers));
  for (std::byte*& record : records_) record = memory_.take<std::byte>(sizes.whole()).data();
}

void OffloadedLayers::begin_write(const Exec& exec, const Key& key) {
  Window& w = window(key);
  wait(exec, w.stored);
  wait(exec, w.loaded);
  w.holds = key;
}

void OffloadedLayers::keep(const Exec& exec, const Key& key, Part part) {
  Window& w = window(key);
  const Bytes from = part == Part::saved ? 0 : sizes_.saved;
  const Bytes bytes = part == Part::saved ? sizes_.saved : sizes_.work;
  w.computed.record(exec);
  out_.wait(w.computed);
  out_.to_host(record(key) + from, w.data + from, bytes);
  w.stored.record(out_);
}

void OffloadedLayers::fetch(const Key& key, Part upto) {
  Window& w = window(key);
  if (w.holds == key) return;
  w.holds = key;
  const Bytes bytes = upto == Part::saved ? sizes_.saved : sizes_.whole();
  in_.wait(w.computed);
  in_.wait(w.stored);  // the layer was stored from the same window
  in_.to_device(w.data, record(key), bytes);
  w.loaded.record(in_);
}

void OffloadedLayers::begin_read(const Exec& exec, const Key& key, Part upto) {
  fetch(key, upto);
  wait(exec, window(key).loaded);
}

void OffloadedLayers::end_read(const Exec& exec, const Key& key) {
  window(key).computed.record(exec);
}

}  // namespace trireme::model
