#pragma once

#include <trireme/architecture/fp8.hpp>
#include <trireme/base/check.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/grid/heartbeat.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/named_tensor.hpp>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme::train {

/// Size of the host buffer through which arrays are copied to a device.
inline constexpr std::int64_t staging_bytes = std::int64_t{64} << 20;
/// Size of the host buffer of arrays whose values are rounded while they are loaded.
inline constexpr std::int64_t rounding_bytes = std::int64_t{16} << 20;

/// Reads this rank's slice of one array through a host buffer of at most `bytes`. Waits.
template <class T>
void load_staged(const Exec& exec, const checkpoint::Reader& reader, const NamedTensor<T>& tensor,
                 std::int64_t bytes = staging_bytes) {
  const std::int64_t most =
      std::min(tensor.elements(), bytes / static_cast<std::int64_t>(sizeof(T)));
  const auto buffer = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(most));
  T* to = tensor.data.data();
  const checkpoint::Slab mine{tensor.offset, tensor.extent};
  checkpoint::for_each_block(mine, most, [&](const auto& block) {
    const auto count = static_cast<std::size_t>(checkpoint::volume(block.extent));
    reader.read_slice(tensor.name, dtype_of<T>, tensor.shape, block.offset, block.extent,
                      buffer.get());
    copy_to_device<T>(exec, View1<T>(to, count), std::span<const T>(buffer.get(), count));
    fence(exec, "train/load copies a part of an array to the device");
    to += count;  // blocks are contiguous in the slice's memory
  });
}

/// Like load_staged, for values that are stored in fp32 and rounded here to two bytes.
template <class T>
void load_rounded(const Exec& exec, const checkpoint::Reader& reader, const NamedTensor<T>& tensor,
                  std::int64_t bytes = rounding_bytes) {
  const std::int64_t most =
      std::min(tensor.elements(), bytes / static_cast<std::int64_t>(sizeof(float)));
  const auto stored = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(most));
  const auto rounded = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(most));
  T* to = tensor.data.data();
  const checkpoint::Slab mine{tensor.offset, tensor.extent};
  checkpoint::for_each_block(mine, most, [&](const auto& block) {
    const auto count = static_cast<std::size_t>(checkpoint::volume(block.extent));
    reader.read_slice(tensor.name, DType::fp32, tensor.shape, block.offset, block.extent,
                      stored.get());
    for (std::size_t i = 0; i < count; ++i) rounded[i] = static_cast<T>(stored[i]);
    copy_to_device<T>(exec, View1<T>(to, count), std::span<const T>(rounded.get(), count));
    fence(exec, "train/load copies a part of an array to the device");
    to += count;
  });
}

/// Reads this rank's slice of one array. Waits. bf16 and fp16 values are rounded from fp32 values.
template <class T>
void load_array(const Exec& exec, const checkpoint::Reader& reader, const NamedTensor<T>& tensor) {
  grid::Heartbeat::publish({"restart"});
  if constexpr (is_narrow<T>) {
    load_rounded(exec, reader, tensor);
  } else if constexpr (bool(Kokkos::SpaceAccessibility<Kokkos::DefaultHostExecutionSpace,
                                                       Memory>::accessible)) {
    fence(exec, "train/load waits until an array is no longer in use");
    reader.read_slice(tensor.name, dtype_of<T>, tensor.shape, tensor.offset, tensor.extent,
                      tensor.data.data());
  } else {
    load_staged(exec, reader, tensor);
  }
}

/// Like load_array, for values that are stored in bf16.
template <class T>
void load_widened(const Exec& exec, const checkpoint::Reader& reader,
                  const NamedTensor<T>& tensor) {
  const auto all =
      std::make_unique_for_overwrite<Bf16[]>(static_cast<std::size_t>(tensor.elements()));
  reader.read_slice(tensor.name, DType::bf16, tensor.shape, tensor.offset, tensor.extent,
                    all.get());
  const std::vector<T> wide(all.get(), all.get() + tensor.elements());
  copy_to_device<T>(exec, tensor.data, wide);
  fence(exec, "train/load copies a part of an array to the device");
}

/// Reads the state arrays of a block of the optimizer's state (optim::Optimizer::State). `renamed`
/// gives each array the name under which it is stored. The type may differ: bf16 or the type of
/// master weights.
template <class Block, class Rename>
void load_state(const Exec& exec, const checkpoint::Reader& reader, const Block& block,
                const Rename& renamed) {
  const auto in_bf16 = [&](const std::string& name) {
    const auto found = std::ranges::find(reader.arrays(), name, &checkpoint::ArrayInfo::name);
    return found != reader.arrays().end() && found->dtype == DType::bf16;
  };
  for (const auto& one : block.arrays)
    if (const auto array = renamed(one); in_bf16(array.name))
      load_widened(exec, reader, array);
    else
      load_array(exec, reader, array);
  for (const auto& one : block.narrow_arrays)
    if (const auto array = renamed(one); in_bf16(array.name))
      load_staged(exec, reader, array);
    else
      load_array(exec, reader, array);
}
template <class Block>
void load_state(const Exec& exec, const checkpoint::Reader& reader, const Block& block) {
  load_state(exec, reader, block, [](const auto& array) { return array; });
}

/// Whether a checkpoint is of step 0 and has no optimizer state, as `trireme import` writes it.
inline bool holds_weights_only(const checkpoint::Reader& reader) {
  const auto is_state = [](const checkpoint::ArrayInfo& array) {
    return array.name.starts_with("optimizer.");
  };
  return reader.state().step == 0 && std::ranges::none_of(reader.arrays(), is_state);
}

/// Whether a model has adapters and a checkpoint has none.
inline bool lacks_adapters(const checkpoint::Reader& reader,
                           const architecture::Architecture& architecture) {
  const auto is_there = [&](const architecture::ArraySpec& spec) {
    return spec.adapter && reader.has(spec.name);
  };
  return architecture.model.adapter.present() &&
         std::ranges::none_of(architecture.arrays, is_there);
}

/// Whether an array belongs to a module that predicts a further token, and the model has none.
inline bool is_of_left_out_module(const std::string& array,
                                  const architecture::Architecture& architecture) {
  return array.starts_with(architecture::module_prefix) && architecture.model.modules() == 0;
}

/// Reads this rank's weights. UsageError if the model and the checkpoint have different arrays of
/// weights; a model without modules that predict further tokens ignores theirs. If only the model
/// has adapters, the adapters get initial values from `seed`.
template <class P>
void load_weights(const Exec& exec, const checkpoint::Reader& reader,
                  const architecture::Architecture& architecture, model::Parameters<P>& parameters,
                  std::uint64_t seed = 0) {
  for (const checkpoint::ArrayInfo& array : reader.arrays()) {
    const auto same = [&](const auto& spec) { return spec.name == array.name; };
    check_usage(
        architecture::is_state(array.name) || is_of_left_out_module(array.name, architecture) ||
            std::ranges::any_of(architecture.arrays, same),
        reader.folder(), ": holds the array '", array.name,
        "', which is not in this deck's model; use the deck that was saved with the checkpoint (",
        reader.folder(), "/deck.toml)");
  }
  const bool fresh = lacks_adapters(reader, architecture);
  parameters.set_weights(exec, [&](const auto& entry) {
    if (fresh && entry.spec->initialisation == architecture::Initialisation::row_norms)
      parameters.set_row_norms(exec, entry,
                               [&](const auto& rows) { load_array(exec, reader, rows); });
    else if (fresh && entry.spec->adapter)
      parameters.initialise(exec, entry, seed);
    else
      load_array(exec, reader, entry.weight);
  });
}

}  // namespace trireme::train
