#pragma once

#include <trireme/base/narrow.hpp>
#include <trireme/checkpoint/hyperslab.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/train/engine.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::testing {

/// Writes values as they are in memory, and reads them.
inline void put(std::string& out, const std::vector<std::int64_t>& numbers) {
  const auto count = static_cast<std::int64_t>(numbers.size());
  out.append(reinterpret_cast<const char*>(&count), sizeof count);
  out.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof count);
}
inline std::vector<std::int64_t> take_numbers(std::string_view& in) {
  std::int64_t count = 0;
  std::memcpy(&count, in.data(), sizeof count);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::memcpy(numbers.data(), in.data() + sizeof count, numbers.size() * sizeof count);
  in.remove_prefix(sizeof count * (numbers.size() + 1));
  return numbers;
}

/// The bytes of a slice as in a checkpoint, from any memory.
inline std::string bytes_of(const checkpoint::SliceView& slice) {
  std::string bytes(static_cast<std::size_t>(slice.bytes()), '\0');
  if (slice.data != nullptr)
    std::memcpy(bytes.data(), slice.data, bytes.size());
  else if (!bytes.empty())
    slice.copy(0, slice.bytes(), bytes.data());
  return bytes;
}

/// Appends values of another type.
template <class T>
void append_doubles(std::string& out, const std::string& numbers) {
  for (std::size_t at = 0; at < numbers.size(); at += sizeof(T)) {
    T stored{};
    std::memcpy(&stored, numbers.data() + at, sizeof stored);
    const double number = static_cast<float>(stored);
    out.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
}

/// The whole arrays of an engine by name, assembled from the slices that its ranks would write to a
/// checkpoint: on rank 0; empty on other ranks. Every element must be in one rank's share.
/// Collective.
inline std::map<std::string, std::vector<double>> whole_arrays(train::Engine& engine,
                                                               grid::Communicator& world) {
  std::string mine;
  for (const auto& slice : engine.share()) {
    if (slice.bytes() == 0) continue;
    std::vector<std::int64_t> name(slice.name.begin(), slice.name.end());
    for (const auto& numbers : {name, slice.shape, slice.offset, slice.extent}) put(mine, numbers);
    if (slice.dtype == DType::fp32)
      append_doubles<float>(mine, bytes_of(slice));
    else if (slice.dtype == DType::bf16)
      append_doubles<Bf16>(mine, bytes_of(slice));
    else if (slice.dtype == DType::fp16)
      append_doubles<Fp16>(mine, bytes_of(slice));
    else
      mine += bytes_of(slice);
  }
  std::map<std::string, std::vector<double>> arrays;
  std::map<std::string, std::size_t> held;
  for (const std::string& packed : world.gather(mine, 0, "whole arrays")) {
    for (std::string_view in = packed; !in.empty();) {
      const auto letters = take_numbers(in);
      const std::string name(letters.begin(), letters.end());
      const auto shape = take_numbers(in);
      checkpoint::Slab slab;
      slab.offset = take_numbers(in);
      slab.extent = take_numbers(in);
      auto& array = arrays[name];
      array.resize(static_cast<std::size_t>(checkpoint::volume(shape)));
      checkpoint::for_each_run(slab, slab, checkpoint::whole(shape),
                               [&](std::int64_t from, std::int64_t to, std::int64_t count) {
                                 std::memcpy(
                                     array.data() + to,
                                     in.data() + static_cast<std::size_t>(from) * sizeof(double),
                                     static_cast<std::size_t>(count) * sizeof(double));
                               });
      const auto elements = static_cast<std::size_t>(checkpoint::volume(slab.extent));
      held[name] += elements;
      in.remove_prefix(elements * sizeof(double));
    }
  }
  for (const auto& [name, array] : arrays) EXPECT_EQ(held[name], array.size()) << name;
  return arrays;
}

}  // namespace trireme::testing
