#pragma once

#include <trireme/architecture/local_sizes.hpp>
#include <trireme/commands/session.hpp>

#include <cstdint>

namespace trireme::commands {

/// This rank's part of the model, and how often a step goes through it.
struct BenchShard {
  architecture::LocalSizes sizes;
  std::int64_t layers = 0;  ///< of this rank
  std::int64_t micros = 0;  ///< micro-batches of a step
  std::int64_t parameters = 0;
  std::int64_t states = 0;  ///< parameters whose optimizer state this rank holds
  bool has_embedding = false;
  bool has_head = false;
};

BenchShard shard_of(const Session& session);

}  // namespace trireme::commands
