#pragma once

#include <trireme/checkpoint/manifest.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trireme::checkpoint {

/// A whole global array in host memory, contiguous, last axis fastest. Not owned.
struct ArrayView {
  std::string name;
  DType dtype = DType::fp32;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;
};

/// Writes `directory`/step_00000100 from the state's step: under a temporary name, flushed to the
/// device, renamed, then named in the file `latest`. Afterwards all but the `keep` newest
/// checkpoints are removed (0: none are), counted by step; the one just written stays. Bits are
/// stored as they are. One process writes to a directory at a time. Errors (a full disk) name the
/// file and leave all former checkpoints as they were. `progress`, if given, is called behind each
/// array.
void write(const std::string& directory, const RunState& state, std::span<const ArrayView> arrays,
           std::int64_t keep, const std::function<void()>& progress = {});

}  // namespace trireme::checkpoint
