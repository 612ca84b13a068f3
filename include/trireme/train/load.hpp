#pragma once

#include <trireme/base/check.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/grid/heartbeat.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/named_tensor.hpp>

#include <algorithm>
#include <vector>

namespace trireme::train {

/// Reads this rank's slice of one array. Waits.
template <class T>
void load_array(const Exec& exec, const checkpoint::Reader& reader, const NamedTensor<T>& tensor) {
  grid::Heartbeat::publish({"restart"});
  std::vector<T> values(static_cast<std::size_t>(tensor.elements()));
  reader.read_slice(tensor.name, dtype_of<T>, tensor.shape, tensor.offset, tensor.extent,
                    values.data());
  copy_to_device<T>(exec, tensor.data, values);
  fence(exec, "train/load copies an array to the device");
}

/// Whether a checkpoint is one of weights before the first step, such as `trireme import` writes.
/// Later ones must have the optimizer's state: without it the run would go on as another one.
inline bool holds_weights_only(const checkpoint::Reader& reader) {
  const auto is_state = [](const checkpoint::ArrayInfo& array) {
    return array.name.starts_with("optimizer.");
  };
  return reader.state().step == 0 && std::ranges::none_of(reader.arrays(), is_state);
}

/// Reads this rank's weights. UsageError if the checkpoint has other arrays than the model: with
/// fewer layers, all that the model asks for would be there, and yet it were another model.
template <class P>
void load_weights(const Exec& exec, const checkpoint::Reader& reader,
                  const architecture::Architecture& architecture,
                  const model::Parameters<P>& parameters) {
  for (const checkpoint::ArrayInfo& array : reader.arrays()) {
    const auto same = [&](const auto& spec) { return spec.name == array.name; };
    check_usage(
        array.name.starts_with("optimizer.") || std::ranges::any_of(architecture.arrays, same),
        reader.folder(), ": holds the array '", array.name,
        "', which the deck's model has not; give the model that was saved (", reader.folder(),
        "/deck.toml)");
  }
  for (const auto& entry : parameters.entries()) load_array(exec, reader, entry.weight);
}

}  // namespace trireme::train
